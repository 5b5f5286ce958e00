"""Requests as attackers write them, and certificates as they come out."""

import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.identity_harness import DeviceKey
from palyra.errors import PalyraError
from palyra.identity.certificate import authority_profile, device_profile, server_profile
from palyra.identity.device import (
    CsrAsksForAuthority,
    CsrAsksForMore,
    CsrAsksForNames,
    CsrBadSignature,
    CsrMalformed,
    CsrTooLarge,
    CsrWrongKey,
    DeviceId,
    DeviceKind,
    IdentityTampered,
    SpiffeId,
)
from palyra.identity.x509 import CertificateSigner, create_authority, create_key, key_sha256, read_requested_key

NOW = 1_790_000_000_000
NAME = SpiffeId("palyra-x", DeviceKind.NODE, DeviceId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
OTHER = "spiffe://palyra-x/node/01BX5ZZKBKACTAV9WEVGEMMVRZ"
DEVICE = DeviceKey()
CSR = DEVICE.csr()
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_der(key: DeviceKey) -> bytes:
    der: bytes = key.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return der


def test_a_plain_request_gives_its_key_and_nothing_else() -> None:
    assert read_requested_key(DEVICE.csr()) == public_der(DEVICE)
    # The subject is not read: it may claim whatever it likes.
    assert read_requested_key(DEVICE.csr(common_name="root")) == public_der(DEVICE)


@pytest.mark.promise("P-device-known")
@pytest.mark.parametrize(
    ("extension", "refusal"),
    [
        (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(OTHER)]), CsrAsksForNames),
        (x509.SubjectAlternativeName([x509.DNSName("palyra")]), CsrAsksForNames),
        (x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), CsrAsksForNames),
        (x509.BasicConstraints(ca=True, path_length=None), CsrAsksForAuthority),
        (x509.BasicConstraints(ca=False, path_length=None), CsrAsksForAuthority),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), CsrAsksForMore),
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), CsrAsksForMore),
    ],
)
def test_a_request_for_more_is_refused(extension: x509.ExtensionType, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        read_requested_key(DEVICE.csr(extension))


def test_a_name_beside_the_authority_bit_is_refused() -> None:
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(OTHER)])
    with pytest.raises(CsrAsksForAuthority):
        read_requested_key(DEVICE.csr(names, x509.BasicConstraints(ca=True, path_length=0)))


def test_attributes_are_refused_too() -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    builder = builder.add_attribute(x509.oid.AttributeOID.CHALLENGE_PASSWORD, b"hunter2")
    with pytest.raises(CsrAsksForMore):
        read_requested_key(builder.sign(DEVICE.key, hashes.SHA256()).public_bytes(Encoding.DER))


@pytest.mark.promise("P-device-known")
@pytest.mark.parametrize(
    "key",
    [RSA_KEY, ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP256K1())],
    ids=["rsa", "p384", "secp256k1"],
)
def test_other_keys_are_refused(key: object) -> None:
    with pytest.raises(CsrWrongKey):
        read_requested_key(DeviceKey(key).csr())


@pytest.mark.parametrize("make", [ed25519.Ed25519PrivateKey.generate, ed448.Ed448PrivateKey.generate])
def test_edwards_keys_are_refused(make: object) -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    with pytest.raises(CsrWrongKey):
        read_requested_key(builder.sign(make(), None).public_bytes(Encoding.DER))  # type: ignore[operator]


def test_a_dsa_key_is_refused() -> None:
    with pytest.raises(CsrWrongKey):
        read_requested_key(DeviceKey(dsa.generate_private_key(2048)).csr())


@pytest.mark.promise("P-device-known")
def test_a_request_for_somebody_elses_key_is_refused() -> None:
    """The attacker knows a victim's public key and wants a certificate for it."""
    victim = public_der(DeviceKey())
    with pytest.raises(CsrBadSignature):
        read_requested_key(DEVICE.csr().replace(public_der(DEVICE), victim))


@pytest.mark.promise("P-device-known")
def test_a_huge_request_is_refused_before_it_is_read() -> None:
    with pytest.raises(CsrTooLarge):
        read_requested_key(b"\x30\x84\x7f\xff\xff\xff" + b"\x00" * 100_000)
    many = [x509.DNSName(f"host-{number}.example.com") for number in range(500)]
    with pytest.raises(CsrTooLarge):
        read_requested_key(DEVICE.csr(x509.SubjectAlternativeName(many)))


@pytest.mark.promise("P-device-known")
@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00",
        b"\x30\x00",
        b"\x30\x80" + b"\x30\x80" * 1_000,
        b"-----BEGIN CERTIFICATE REQUEST-----\n",
        b"\xff" * 4_096,
        DEVICE.csr()[:-1],
        DEVICE.csr() + b"\x00",
        create_authority(authority_profile("x", now_ms=NOW))[0],
    ],
)
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(CsrMalformed):
        read_requested_key(garbage)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_changed_bit_leads_to_another_key(data: st.DataObject) -> None:
    csr = bytearray(CSR)
    place = data.draw(st.integers(0, len(csr) * 8 - 1))
    csr[place // 8] ^= 1 << place % 8
    try:
        assert read_requested_key(bytes(csr)) == public_der(DEVICE)
    except PalyraError as refused:
        assert refused.code.startswith("identity.csr_")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    with pytest.raises(CsrMalformed):
        read_requested_key(raw)


def test_a_device_certificate_says_what_the_profile_says() -> None:
    authority, private = create_authority(authority_profile("x", now_ms=NOW))
    profile = device_profile(NAME, now_ms=NOW, life_ms=60_000, authority_ends_ms=NOW * 2)
    leaf = x509.load_der_x509_certificate(CertificateSigner(authority, private).sign(profile, public_der(DEVICE)))
    issuer = x509.load_der_x509_certificate(authority)
    leaf.verify_directly_issued_by(issuer)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(str(NAME))]
    use = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and constraints.value == x509.BasicConstraints(ca=False, path_length=None)
    assert int(leaf.not_valid_after_utc.timestamp() * 1_000) == profile.not_after_ms
    assert int(leaf.not_valid_before_utc.timestamp() * 1_000) == profile.not_before_ms
    assert leaf.serial_number.bit_length() > 64


def test_a_server_certificate_is_for_servers_of_its_names_alone() -> None:
    authority, private = create_authority(authority_profile("x", now_ms=NOW))
    profile = server_profile(["box.lan", "10.0.0.7"], now_ms=NOW, life_ms=60_000, authority_ends_ms=NOW * 2)
    key_pem, public = create_key()
    leaf = x509.load_der_x509_certificate(CertificateSigner(authority, private).sign(profile, public))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["palyra", "box.lan"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.7")]
    assert not names.get_values_for_type(x509.UniformResourceIdentifier)
    use = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert key_pem.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_an_authority_signs_certificates_and_nothing_else() -> None:
    certificate = x509.load_der_x509_certificate(create_authority(authority_profile("x", now_ms=NOW))[0])
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign and not usage.digital_signature
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 1)


def test_a_signer_needs_the_key_of_its_certificate() -> None:
    one, _ = create_authority(authority_profile("one", now_ms=NOW))
    _, key = create_authority(authority_profile("two", now_ms=NOW))
    with pytest.raises(IdentityTampered):
        CertificateSigner(one, key)
    with pytest.raises(IdentityTampered):
        CertificateSigner(one, b"no key")
    with pytest.raises(IdentityTampered):
        CertificateSigner(b"no certificate", key)


def test_a_key_is_told_apart_by_its_digest() -> None:
    assert len(key_sha256(b"a")) == 64 and key_sha256(b"a") != key_sha256(b"b")
