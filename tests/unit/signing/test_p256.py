from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fakes.certificates import make_certificate
from palyra.signing.dsse import BadSignature
from palyra.signing.ed25519 import MalformedKey
from palyra.signing.p256 import P256Signer, P256Verifier


def test_a_signature_holds_for_its_message_and_key_only() -> None:
    signer, other = P256Signer.generate(), P256Signer.generate()
    signature = signer.sign(b"message")
    signer.verifier().verify(b"message", signature)
    for verifier, message, said in (
        (signer.verifier(), b"massage", signature),
        (other.verifier(), b"message", signature),
        (signer.verifier(), b"message", signature[:-1]),
        (signer.verifier(), b"message", b""),
    ):
        with pytest.raises(BadSignature):
            verifier.verify(message, said)
    assert signer.verifier().key_id == signer.verifier().key_id != other.verifier().key_id


def test_other_keys_are_refused() -> None:
    larger = ec.generate_private_key(ec.SECP384R1())
    edwards = ed25519.Ed25519PrivateKey.generate()
    with pytest.raises(MalformedKey):
        P256Signer(larger)
    for key in (larger, edwards):
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        with pytest.raises(MalformedKey):
            P256Signer.from_pem(pem)
        with pytest.raises(MalformedKey):
            P256Verifier.from_der(der)
    for junk in (b"", b"junk"):
        with pytest.raises(MalformedKey):
            P256Signer.from_pem(junk)
        with pytest.raises(MalformedKey):
            P256Verifier.from_der(junk)
        with pytest.raises(MalformedKey):
            P256Verifier.from_certificate(junk)


def test_keys_come_from_pem_der_and_certificates() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    signer = P256Signer.from_pem(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert P256Verifier.from_der(der).key_id == signer.verifier().key_id
    P256Verifier.from_der(der).verify(b"x", signer.sign(b"x"))


def test_the_key_of_a_certificate(tmp_path: Path) -> None:
    make_certificate(tmp_path, ("device",))
    pem = (tmp_path / "host.pem").read_bytes()
    signer = P256Signer.from_pem(pem[pem.index(b"-----BEGIN PRIVATE KEY") :])
    P256Verifier.from_certificate(pem[: pem.index(b"-----BEGIN PRIVATE KEY")]).verify(b"x", signer.sign(b"x"))
