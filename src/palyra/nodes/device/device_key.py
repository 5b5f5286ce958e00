"""The device's key, which never leaves it, and what its certificate says."""

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from palyra.clock import MS_PER_SECOND
from palyra.identity.renewal import renewal_due_ms
from palyra.nodes.device.device_record import HeldCertificate
from palyra.nodes.device.errors import DeviceFileBad
from palyra.secret import Secret


def new_key() -> Secret:
    key = ec.generate_private_key(ec.SECP256R1())
    return Secret(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
    )


def certificate_request(key_pem: Secret) -> bytes:
    """A request that carries the key and asks for nothing: what the certificate says is the daemon's to decide."""
    # The subject is ignored by the daemon; an empty one is refused by some tools.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "palyra device")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(_key(key_pem), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.DER)


def held_certificate(certificate_pem: str, generation: int) -> HeldCertificate:
    leaf = _leaf(certificate_pem)
    start, end = _ms(leaf.not_valid_before_utc), _ms(leaf.not_valid_after_utc)
    return HeldCertificate(generation=generation, renew_at_ms=renewal_due_ms(start, end), not_after_ms=end)


def require_own(certificate_pem: str, key_pem: Secret) -> None:
    """A certificate for another key would be of no use, and taking it over would lose ours."""
    if _leaf(certificate_pem).public_key() != _key(key_pem).public_key():
        raise DeviceFileBad("the certificate is not for this device's key")


def _leaf(certificate_pem: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate_pem.encode())
    except ValueError:
        raise DeviceFileBad("the device's certificate cannot be read") from None


def _key(key_pem: Secret) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(key_pem.reveal().encode(), None)
    except (ValueError, TypeError):
        raise DeviceFileBad("the device's key cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DeviceFileBad("the device's key is of another kind")
    return key


def _ms(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp()) * MS_PER_SECOND
