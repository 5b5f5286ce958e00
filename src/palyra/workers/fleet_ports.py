"""What the fleet's service needs of the listener's gate, of identities and of metrics, declared by the consumer."""

from collections.abc import Collection
from typing import Any, NoReturn, Protocol

from palyra.errors import PalyraError
from palyra.identity.device import DeviceKind
from palyra.identity.records import IssuedCertificate, PeerIdentity
from palyra.workers.daemon_messages import Told
from palyra.workers.signed_statement import DeviceVerifier


class FleetIdentities(Protocol):
    async def used(self, peer: PeerIdentity) -> None: ...

    async def renew(self, peer: PeerIdentity, csr_der: bytes, generation: int) -> IssuedCertificate: ...

    def ca_bundle_pem(self) -> bytes: ...


class Gate(Protocol):
    """The gate of the listener for devices: the checks on every peer, in their one order."""

    @property
    def identities(self) -> FleetIdentities: ...

    async def admit(self, context: Any, kinds: Collection[DeviceKind], claimed: str, method: str) -> PeerIdentity: ...

    async def admit_renewal(
        self, context: Any, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity: ...

    async def fingerprint(self, context: Any, method: str) -> str: ...

    async def admit_message(
        self, context: Any, fingerprint: str, kinds: Collection[DeviceKind], claimed: str, method: str
    ) -> PeerIdentity: ...

    def check(self, fingerprint: str, kinds: Collection[DeviceKind], claimed: str) -> PeerIdentity: ...

    async def refuse(self, context: Any, refusal: PalyraError, method: str, fingerprint: str = "") -> NoReturn: ...

    async def note(self, refusal: PalyraError, method: str, fingerprint: str = "") -> None: ...


class DeviceKeys(Protocol):
    """The public keys of devices."""

    def of_certificate(self, pem: bytes) -> "DeviceKeyOf": ...

    def of_device(self, device_id: str, kind: DeviceKind) -> DeviceVerifier | None:
        """The key of a device of this kind that is paired and not revoked."""


class DeviceKeyOf(DeviceVerifier, Protocol):
    def public_der(self) -> bytes:
        """The SubjectPublicKeyInfo: who holds it can check what the device signed."""


class FleetMetrics(Protocol):
    def lease_ended(self, state: str, seconds: float) -> None: ...

    def worker_refused(self, code: str) -> None: ...


class Line(Protocol):
    """The way down to one connected worker. None of it waits."""

    @property
    def sent(self) -> int:
        """How often something was sent."""

    def send(self, told: Told) -> None: ...

    def send_along(self, told: Told) -> None:
        """With whatever is sent next: for what nobody waits for. A message costs more than what is in it."""

    def end(self, code: str, message: str) -> None:
        """Says goodbye and ends the stream."""
