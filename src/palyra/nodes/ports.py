"""What the RPC side needs of identity and of the pipeline, declared here by the consumer."""

from typing import Protocol

from palyra.identity.device import DeviceId
from palyra.identity.records import IssuedCertificate, PeerIdentity, ServerCertificate


class Identities(Protocol):
    def identify(self, fingerprint: str) -> PeerIdentity:
        """Raises an ``identity.*`` error for a certificate that is not good now. It reads memory only."""

    def identify_for_renewal(self, fingerprint: str) -> PeerIdentity:
        """The same, but lets a superseded certificate pass."""

    async def used(self, peer: PeerIdentity) -> None:
        """Tells that a certificate is in use: the first use of a newer one retires the older one."""

    async def renew(self, peer: PeerIdentity, csr_der: bytes, generation: int) -> IssuedCertificate: ...

    async def revoke(self, device_id: DeviceId, *, reason: str, actor: str) -> None: ...

    def ca_bundle_pem(self) -> bytes: ...

    def server_certificate(self) -> ServerCertificate: ...


class CapabilityCalls(Protocol):
    """The pipeline, for a device that asks for a capability of another."""

    async def __call__(
        self, device_id: DeviceId, target: str, capability: str, input_json: bytes, timeout_ms: int
    ) -> tuple[str, bytes]:
        """The call's id and its output as JSON. Raises the call's error."""
