"""The checks of a peer, on every call and on every message of a stream, in their fixed order.

A client certificate is present; it can be read, which gives its fingerprint; it is one of ours, and neither revoked,
locked, expired nor superseded; its device has a kind that the service accepts, and is paired; the message names that
device. The first failed check is the refusal. The journal gets its code. The peer gets one of two words, so that it
learns nothing about other devices.
"""

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from palyra.devicelink.limits import MAX_REFUSAL_KINDS, REFUSALS_RECORDED_EVERY_SECONDS
from palyra.errors import Denied, PalyraError
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.records import PeerIdentity


class Outward(StrEnum):
    """The two answers that a refused peer may get."""

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
    hint = "a device acts on its own behalf only: device_id is that of its own certificate"


# Refusals of unidentified peers. All others are identified, but not permitted.
_UNESTABLISHED: Final = "identity."


def fingerprint_of_peer(certificate: bytes | None, digest: Callable[[bytes], str]) -> str:
    """Run the first two checks, which hold for the whole connection, since its certificate never changes."""
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
    """Run the checks whose result can change from one message to the next."""
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


class CapabilityCalls(Protocol):
    """The pipeline, for a device that uses a capability of another device."""

    async def __call__(
        self, device_id: DeviceId, target: str, capability: str, input_json: bytes, timeout_ms: int
    ) -> tuple[str, bytes]:
        """Return the call's id and its output as JSON. Raise the call's error."""


# Refusals are always counted and recorded now and then, so that repeated ones do not fill the journal.


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
        """Count a refusal. Return how many of its kind to record now, or 0 if one was recorded recently."""
        self.total += 1
        count = self._counts.pop(kind, None) or _Count()
        # The last seen kind is at the end. The oldest one is dropped.
        self._counts[kind] = count
        if len(self._counts) > MAX_REFUSAL_KINDS:
            del self._counts[next(iter(self._counts))]
        count.waiting += 1
        if now - count.recorded < REFUSALS_RECORDED_EVERY_SECONDS:
            return 0
        count.recorded, waiting, count.waiting = now, count.waiting, 0
        return waiting
