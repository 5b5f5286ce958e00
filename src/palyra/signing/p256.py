"""ECDSA on P-256 with SHA-256: the keys of devices, which their certificates carry.

``cryptography`` is imported on first use, because most commands need no key.
"""

import hashlib
from typing import TYPE_CHECKING, Final, Self

from palyra.signing.dsse import BadSignature
from palyra.signing.ed25519 import MalformedKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

_KEY_ID_HEX_CHARS: Final = 32


class P256Signer:
    def __init__(self, key: "EllipticCurvePrivateKey") -> None:
        _require_curve(key.curve.name)
        self._key = key

    @classmethod
    def generate(cls) -> Self:
        """Make a key that exists only in this process."""
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

        return cls(generate_private_key(SECP256R1()))

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise MalformedKey("not a private key in PEM") from error
        if not isinstance(key, EllipticCurvePrivateKey):
            raise MalformedKey("a private key, but not one on an elliptic curve")
        return cls(key)

    def sign(self, message: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        return self._key.sign(message, ECDSA(SHA256()))

    def verifier(self) -> "P256Verifier":
        return P256Verifier(self._key.public_key())


class P256Verifier:
    def __init__(self, key: "EllipticCurvePublicKey") -> None:
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        _require_curve(key.curve.name)
        self._key = key
        self._algorithm = ECDSA(SHA256())
        self._der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.key_id = "p256:" + hashlib.sha256(self._der).hexdigest()[:_KEY_ID_HEX_CHARS]

    @classmethod
    def from_der(cls, der: bytes) -> Self:
        """Read a SubjectPublicKeyInfo, the form in certificates."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        try:
            key = load_der_public_key(der)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise MalformedKey("not a public key in DER") from error
        if not isinstance(key, EllipticCurvePublicKey):
            raise MalformedKey("a public key, but not one on an elliptic curve")
        return cls(key)

    @classmethod
    def from_certificate(cls, pem: bytes) -> Self:
        """Read the key of a certificate that TLS has already checked."""
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.x509 import load_pem_x509_certificate

        try:
            key = load_pem_x509_certificate(pem).public_key()
        except ValueError as error:
            raise MalformedKey("not a certificate in PEM") from error
        if not isinstance(key, EllipticCurvePublicKey):
            raise MalformedKey("the certificate's key is not one on an elliptic curve")
        return cls(key)

    def public_der(self) -> bytes:
        """Return the SubjectPublicKeyInfo."""
        return self._der

    def verify(self, message: bytes, signature: bytes) -> None:
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, message, self._algorithm)
        except InvalidSignature as error:
            raise BadSignature(f"the signature by {self.key_id} does not verify", key_id=self.key_id) from error


def _require_curve(name: str) -> None:
    if name != "secp256r1":
        raise MalformedKey(f"a key on the curve {name[:32]}, not on P-256")
