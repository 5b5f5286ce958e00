"""Who is at the other end: the checks on every call and on every message of a stream, in their one order.

A client certificate is there; it can be read, which gives its fingerprint; it is a certificate of ours that is neither
revoked, locked, expired nor superseded; its device is of a kind this service is for and is paired; and that device is
the one the message speaks for. The first that fails is the refusal. Inside it has its own code, for the record; outside
it is one of two words, so that whoever is refused learns nothing about anybody.
"""

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from palyra.devicelink.limits import MAX_REFUSAL_KINDS, REFUSALS_RECORDED_EVERY_SECONDS
from palyra.errors import Denied, PalyraError
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.records import IssuedCertificate, PeerIdentity, ServerCertificate


class Outward(StrEnum):
    """All that a refused peer is told."""

    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"


class NoCertificate(Denied):
    code = "nodes.no_certificate"
    hint = "devices connect with the certificate they got when they were paired"


class UnreadableCertificate(Denied):
    code = "nodes.unreadable_certificate"
    hint = "what the connection presented is not one X.509 certificate"


class WrongKind(Denied):
    code = "nodes.wrong_kind"
    hint = "a worker's certificate is not for nodes, nor a node's for workers"


class UnpairedDevice(Denied):
    code = "nodes.unpaired_device"
    hint = "`palyra pair code` begins a pairing"


class OtherDevice(Denied):
    code = "nodes.other_device"
    hint = "a device speaks for itself only: device_id is that of its own certificate"


# Who they are could not be established; everybody else is known and may not.
_UNESTABLISHED: Final = "identity."


def fingerprint_of_peer(certificate: bytes | None, digest: Callable[[bytes], str]) -> str:
    """The first two checks. A connection has one certificate for as long as it lives, so they hold for all of it."""
    if not certificate:
        raise NoCertificate("the connection has no client certificate")
    try:
        return digest(certificate)
    except PalyraError:
        raise
    except ValueError as error:
        raise UnreadableCertificate("the client certificate cannot be read") from error


def check_peer(
    fingerprint: str,
    *,
    identify: Callable[[str], PeerIdentity],
    kinds: Collection[DeviceKind],
    is_paired: Callable[[DeviceId], bool],
    claimed: str,
) -> PeerIdentity:
    """The checks that can come out differently from one message to the next."""
    peer = identify(fingerprint)
    if peer.kind not in kinds:
        raise WrongKind(f"a certificate of a {peer.kind.value} came where it is not for", device=peer.device_id)
    if not is_paired(peer.device_id):
        raise UnpairedDevice("the device of this certificate is not paired", device=peer.device_id)
    if claimed != peer.device_id:
        raise OtherDevice("the message names another device than its certificate", device=peer.device_id)
    return peer


def outward(refusal: PalyraError) -> Outward:
    if isinstance(refusal, NoCertificate | UnreadableCertificate) or refusal.code.startswith(_UNESTABLISHED):
        return Outward.UNAUTHENTICATED
    return Outward.PERMISSION_DENIED


# What the RPC side needs of identity and of the pipeline, declared here by the consumer.


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


# Refusals counted always and recorded now and then: who is refused again and again does not fill the journal.


class RefusalKind(NamedTuple):
    method: str
    code: str
    device_id: str
    fingerprint: str


class _Count:
    __slots__ = ("recorded", "waiting")

    def __init__(self) -> None:
        self.recorded = float("-inf")
        self.waiting = 0


class RefusalCounts:
    def __init__(self) -> None:
        self._counts: dict[RefusalKind, _Count] = {}
        self.total = 0

    def note(self, kind: RefusalKind, now: float) -> int:
        """How many refusals of this kind to record now; 0 where one was recorded only just."""
        self.total += 1
        count = self._counts.pop(kind, None) or _Count()
        # The kind seen last is at the end; the one that nobody was refused for the longest time goes.
        self._counts[kind] = count
        if len(self._counts) > MAX_REFUSAL_KINDS:
            del self._counts[next(iter(self._counts))]
        count.waiting += 1
        if now - count.recorded < REFUSALS_RECORDED_EVERY_SECONDS:
            return 0
        count.recorded, waiting, count.waiting = now, count.waiting, 0
        return waiting
