"""X.509 by the ``cryptography`` package, imported on first use. Keys are made and profiles become certificates here."""

import datetime
import hashlib
import ipaddress
from typing import TYPE_CHECKING

from palyra.clock import MS_PER_SECOND
from palyra.identity.certificate import (
    CertificateProfile,
    CsrFacts,
    Purpose,
    require_csr_size,
    require_plain,
    require_signature,
)
from palyra.identity.device import CsrMalformed, IdentityTampered

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey


class CertificateSigner:
    """An authority with its key. It signs a given profile and decides nothing."""

    def __init__(self, certificate_der: bytes, key_der: bytes) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_der_private_key

        try:
            self._certificate = x509.load_der_x509_certificate(certificate_der)
            key = load_der_private_key(key_der, None)
        except ValueError:
            raise IdentityTampered("an authority's certificate or key cannot be read") from None
        if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != self._certificate.public_key():
            raise IdentityTampered("an authority's key is not the one of its certificate")
        self._key = key
        self.certificate_der = certificate_der

    def sign(self, profile: CertificateProfile, public_key_der: bytes) -> bytes:
        """Sign a certificate, in DER."""
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        public: EllipticCurvePublicKey = load_der_public_key(public_key_der)  # type: ignore[assignment]
        return _signed(profile, public, self._certificate.subject, self._key)

    def cross_sign(self, profile: CertificateProfile, newer_der: bytes) -> bytes:
        """Sign the newer authority's certificate with this one's key."""
        from cryptography import x509

        newer = x509.load_der_x509_certificate(newer_der)
        public: EllipticCurvePublicKey = newer.public_key()  # type: ignore[assignment]
        return _signed(profile, public, self._certificate.subject, self._key)


def create_authority(profile: CertificateProfile) -> tuple[bytes, bytes]:
    """Make a self-signed certificate and its private key, both in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = _new_key()
    certificate = _signed(profile, key.public_key(), _name(profile.common_name), key)
    return certificate, key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def create_key() -> tuple[bytes, bytes]:
    """Make a key pair: the private half in PEM, the public half in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = _new_key()
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), public


def read_requested_key(csr_der: bytes) -> bytes:
    """Return the public key of a request, in DER. Refuse a request for more, and ignore the subject.

    The signature is checked last, so that only P-256 keys are computed with.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    require_csr_size(csr_der)
    try:
        csr = x509.load_der_x509_csr(csr_der)
        facts = _facts_of(csr)
    except Exception:
        # The parser raises a dozen kinds of errors without a common base. None of them says more than this.
        raise CsrMalformed("the certificate request cannot be read") from None
    require_plain(facts)
    try:
        valid = csr.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        valid = False
    require_signature(valid)
    return facts.public_key_der


def key_sha256(public_key_der: bytes) -> str:
    return hashlib.sha256(public_key_der).hexdigest()


def _facts_of(csr: "x509.CertificateSigningRequest") -> CsrFacts:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = csr.public_key()
    return CsrFacts(
        key_curve=key.curve.name if isinstance(key, EllipticCurvePublicKey) else "",
        public_key_der=key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        extension_oids=tuple(extension.oid.dotted_string for extension in csr.extensions),
        attribute_oids=tuple(attribute.oid.dotted_string for attribute in csr.attributes),
    )


def _signed(
    profile: CertificateProfile,
    public: "EllipticCurvePublicKey",
    issuer: "x509.Name",
    issuer_key: "EllipticCurvePrivateKey",
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID

    is_authority = profile.purpose is Purpose.AUTHORITY
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(profile.common_name))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(profile.not_before_ms))
        .not_valid_after(_moment(profile.not_after_ms))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=profile.path_length), critical=True)
        .add_extension(_usage(signs_certificates=is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    names = _alternative_names(profile)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if not is_authority:
        device = profile.purpose is Purpose.DEVICE
        use = ExtendedKeyUsageOID.CLIENT_AUTH if device else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.DER)


def _alternative_names(profile: CertificateProfile) -> "list[x509.GeneralName]":
    from cryptography import x509

    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(profile.uri)] if profile.uri else []
    names += [x509.DNSName(name) for name in profile.dns_names]
    return names + [x509.IPAddress(ipaddress.ip_address(address)) for address in profile.addresses]


def _usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _moment(instant_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(instant_ms // MS_PER_SECOND, datetime.UTC)
