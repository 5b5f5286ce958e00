"""A device's key, which never leaves it, and its certificate."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from palyra.clock import MS_PER_SECOND
from palyra.devicelink.agent.device_folder import DeviceFileBad, DeviceRecord, HeldCertificate, NotPaired, PairingFolder
from palyra.identity.device import renewal_due_ms
from palyra.identity.x509 import create_key
from palyra.secret import Secret
from palyra.signing.p256 import P256Signer


def new_key() -> Secret:
    private_pem, _ = create_key()
    return Secret(private_pem.decode())


def certificate_request(key_pem: Secret) -> bytes:
    """Make a certificate request that carries the key only. The daemon decides the certificate's contents."""
    # The daemon ignores the subject. Some tools refuse an empty one.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "palyra device")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(_key(key_pem), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.DER)


def read_held_certificate(certificate_pem: str, generation: int) -> HeldCertificate:
    leaf = _leaf(certificate_pem)
    start, end = _ms(leaf.not_valid_before_utc), _ms(leaf.not_valid_after_utc)
    return HeldCertificate(generation=generation, renew_at_ms=renewal_due_ms(start, end), not_after_ms=end)


def require_own(certificate_pem: str, key_pem: Secret) -> None:
    """Refuse a certificate for another key, which would be useless and would replace ours."""
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


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    key_pem: Secret
    certificate_pem: str
    ca_bundle_pem: str


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    certificate_pem: str
    ca_bundle_pem: str
    generation: int


class DeviceKey:
    """The device's key, which signs statements and envelopes."""

    def __init__(self, pem: bytes) -> None:
        self._signer = P256Signer.from_pem(pem)
        self.key_id = self._signer.verifier().key_id

    def sign(self, message: bytes) -> bytes:
        return self._signer.sign(message)

    def public_key(self) -> bytes:
        """Return nothing: a P-256 key has no raw form. Verifiers read it from the certificate."""
        return b""


class HeldIdentity:
    """A device's pairing in use. Every change is on disk before it is used."""

    def __init__(self, folder: PairingFolder, record: DeviceRecord) -> None:
        if not record.paired or record.key_pem is None:
            raise NotPaired("this device is not paired")
        self._folder = folder
        self._record = record
        self.held = read_held_certificate(record.certificate_pem, record.generation)
        self._key = DeviceKey(record.key_pem.reveal().encode())
        self._changing = asyncio.Lock()

    @property
    def device_id(self) -> str:
        return str.__str__(self._record.device_id)

    @property
    def name(self) -> str:
        return self._record.device_name

    @property
    def servers(self) -> tuple[str, ...]:
        return self._record.servers

    @property
    def generation(self) -> int:
        return self._record.generation

    @property
    def renew_at_ms(self) -> int:
        return self.held.renew_at_ms

    @property
    def not_after_ms(self) -> int:
        return self.held.not_after_ms

    def key(self) -> DeviceKey:
        return self._key

    def credentials(self) -> Credentials:
        record = self._record
        assert record.key_pem is not None
        return Credentials(
            key_pem=record.key_pem, certificate_pem=record.certificate_pem, ca_bundle_pem=record.ca_bundle_pem
        )

    async def request_renewal(self) -> bytes:
        key = self._record.pending_key_pem
        if key is None:
            # On disk before it is sent, so that a lost answer can be asked for again with the same key.
            key = new_key()
            await self._change(pending_key_pem=key)
        return certificate_request(key)

    async def take_renewal(self, renewed: Renewed) -> None:
        key = self._record.pending_key_pem
        if key is None:
            raise NotPaired("no renewal was asked for")
        require_own(renewed.certificate_pem, key)
        held = read_held_certificate(renewed.certificate_pem, renewed.generation)
        await self._change(
            key_pem=key,
            pending_key_pem=None,
            certificate_pem=renewed.certificate_pem,
            ca_bundle_pem=renewed.ca_bundle_pem or self._record.ca_bundle_pem,
            generation=renewed.generation,
        )
        self.held, self._key = held, DeviceKey(key.reveal().encode())

    async def trust(self, ca_bundle_pem: str) -> None:
        """Store the authorities in force, which the authenticated daemon sent."""
        if ca_bundle_pem and ca_bundle_pem != self._record.ca_bundle_pem:
            await self._change(ca_bundle_pem=ca_bundle_pem)

    async def _change(self, **fields: Any) -> None:
        async with self._changing:
            changed = msgspec.structs.replace(self._record, **fields)
            await asyncio.to_thread(self._folder.save, changed)
            self._record = changed
