"""The leases of a worker's egress proxy: its errors, the daemon's grants, and the registry of all leases."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from palyra.egress.domain.rules import parse_rules
from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.fleet import limits
from palyra.fleet.domain.lease import LeaseId
from palyra.ids import InvalidId


class BadEgressPolicy(InvalidInput):
    code = "worker_egress.bad_policy"
    hint = "correct what the message names in the file that --policy gives"


class WrongUser(Denied):
    code = "worker_egress.wrong_user"
    hint = "only the worker's own user may use its egress proxy: --worker-uid names that user"


class AnotherConnected(Denied):
    code = "worker_egress.another_connected"
    hint = "one process of the worker uses its proxy at a time: end the other process first"


class BadHandoverMessage(InvalidInput):
    code = "worker_egress.bad_message"
    hint = "worker and proxy are of different versions: update both"


class OtherWorker(Denied):
    code = "worker_egress.other_worker"
    hint = "a proxy serves the one worker that it was set up for: every worker has a proxy of its own"


class LeaseNotGranted(Denied):
    code = "worker_egress.not_granted"
    hint = "the daemon gave the proxy no grant for this lease; it does before it offers the lease to the worker"


class FenceDiffers(Denied):
    code = "worker_egress.stale_fence"
    hint = "the fencing number is not that of the grant"


class LeaseOver(Denied):
    code = "worker_egress.lease_over"
    hint = "the lease ended, or its deadline passed"


class BeyondPolicy(Denied):
    code = "worker_egress.beyond_policy"
    hint = "the daemon granted a host that the proxy's own policy does not allow: bring the two together"


class ListenerExists(InvalidInput):
    code = "worker_egress.door_stands"
    hint = "a lease has one listener at a time: close the one that is open"
    http_status = 409


class NoListener(InvalidInput):
    code = "worker_egress.no_door"
    hint = "no listener of this lease is open"
    http_status = 409


class BadListenerSocket(InvalidInput):
    code = "worker_egress.bad_socket"
    hint = "a listener's sockets are in the network of a sandbox, never in the worker's own"


class TooManyLeases(LimitExceeded):
    code = "worker_egress.too_many_leases"
    hint = "the proxy keeps as many leases as it can: is the daemon of another version?"


class ProxyGone(Unavailable):
    code = "worker_egress.proxy_gone"
    hint = "start the worker's egress proxy: palyra-egressd run"


class DaemonLinkLost(Unavailable):
    code = "worker_egress.daemon_lost"
    hint = "check the daemon and the network between"


# The grant comes over the proxy's own connection to the daemon, never through the worker. A signed grant carried by the
# worker could not be revoked before its end, and the worker could keep it for later. It would also need a key of the
# daemon that the proxy learns over this very connection.


class LeaseGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``hosts`` are rules. ``timeout_ms`` counts from the arrival at the proxy."""

    worker_id: str
    lease_id: str
    fence: int
    run_id: str = ""
    call_id: str = ""
    principal: str = ""
    tool: str = ""
    hosts: tuple[str, ...] = ()
    max_bytes: int = 0
    max_tunnels: int = 0
    timeout_ms: int = 0


class AccessState(StrEnum):
    """``ending``: the lease is over and its listener stays open, so that a program which still uses it is seen."""

    GRANTED = "granted"
    SERVING = "serving"
    ENDING = "ending"
    ENDED = "ended"


class AccessEvent(StrEnum):
    OPEN = "open"
    CLOSE = "close"
    END = "end"


TRANSITIONS: Final[dict[tuple[AccessState, AccessEvent], AccessState]] = {
    (AccessState.GRANTED, AccessEvent.OPEN): AccessState.SERVING,
    (AccessState.GRANTED, AccessEvent.END): AccessState.ENDED,
    (AccessState.SERVING, AccessEvent.CLOSE): AccessState.GRANTED,
    (AccessState.SERVING, AccessEvent.END): AccessState.ENDING,
    (AccessState.ENDING, AccessEvent.CLOSE): AccessState.ENDED,
}
OVER: Final = frozenset((AccessState.ENDING, AccessState.ENDED))
_REFUSALS: Final[dict[tuple[AccessState, AccessEvent], type[PalyraError]]] = {
    (AccessState.GRANTED, AccessEvent.CLOSE): NoListener,
    (AccessState.SERVING, AccessEvent.OPEN): ListenerExists,
    (AccessState.ENDING, AccessEvent.OPEN): LeaseOver,
    # The daemon, the deadline and the list of a new connection may each end a lease; only the first counts.
    (AccessState.ENDING, AccessEvent.END): LeaseOver,
    (AccessState.ENDED, AccessEvent.OPEN): LeaseOver,
    (AccessState.ENDED, AccessEvent.END): LeaseOver,
    (AccessState.ENDED, AccessEvent.CLOSE): NoListener,
}


def after(state: AccessState, event: AccessEvent) -> AccessState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise _REFUSALS[state, event](f"a lease that is {state.value} here cannot {event.value}") from None


class LeaseAccess(msgspec.Struct, frozen=True, kw_only=True):
    """One lease at the proxy. Instants are monotonic. ``spent`` are the bytes of its closed listeners."""

    grant: LeaseGrant
    state: AccessState
    ends_ms: int
    ended_ms: int = 0
    spent: int = 0

    @property
    def is_over(self) -> bool:
        return self.state in OVER


class LeaseRef(msgspec.Struct, frozen=True):
    lease_id: str
    fence: int


class LeaseRegistry:
    """The leases that the daemon granted to this proxy. Orders and instants go in, the leases to cut come out."""

    def __init__(self) -> None:
        self._leases: dict[str, LeaseAccess] = {}

    def find(self, lease_id: str) -> LeaseAccess | None:
        return self._leases.get(lease_id)

    def ids(self) -> frozenset[str]:
        return frozenset(self._leases)

    def add(self, grant: LeaseGrant, now_ms: int) -> None:
        """Add a grant. A known one stays unchanged: its deadline counts from the first arrival."""
        known = self._leases.get(grant.lease_id)
        if known is not None and known.grant.fence >= grant.fence:
            return
        if known is None and len(self._leases) >= limits.MAX_LEASES_KEPT and not self._drop_ended():
            raise TooManyLeases(f"{limits.MAX_LEASES_KEPT} leases are kept already")
        self._leases[grant.lease_id] = LeaseAccess(
            grant=grant, state=AccessState.GRANTED, ends_ms=now_ms + grant.timeout_ms
        )

    def end(self, ref: LeaseRef, now_ms: int) -> LeaseAccess | None:
        """Return the lease if this call ended it."""
        known = self._leases.get(ref.lease_id)
        if known is None or known.is_over or known.grant.fence > ref.fence:
            return None
        return self._step(known, AccessEvent.END, ended_ms=now_ms)

    def reconcile(self, still_open: Iterable[LeaseRef], now_ms: int) -> list[LeaseAccess]:
        """End the leases that are not on the daemon's whole list, and return them."""
        listed = frozenset(still_open)
        gone = [each for each in self._leases.values() if not each.is_over and _ref(each) not in listed]
        return [self._step(each, AccessEvent.END, ended_ms=now_ms) for each in gone]

    def end_overdue(self, now_ms: int) -> list[LeaseAccess]:
        """End and return the leases past their deadline. Forget those that ended long ago."""
        late = [each for each in self._leases.values() if not each.is_over and now_ms >= each.ends_ms]
        for each in list(self._leases.values()):
            if each.state is AccessState.ENDED and now_ms >= each.ended_ms + limits.ENDED_KEPT_MS:
                del self._leases[each.grant.lease_id]
        return [self._step(each, AccessEvent.END, ended_ms=now_ms) for each in late]

    def require(self, worker_id: str, ref: LeaseRef) -> LeaseAccess:
        """Return the lease in any state. Raise for one that the daemon did not grant to this worker."""
        known = self._leases.get(ref.lease_id)
        if known is None:
            raise LeaseNotGranted(f"no grant for the lease {ref.lease_id[:64]!r} is known here")
        if known.grant.worker_id != worker_id:
            raise OtherWorker("the lease was granted to another worker")
        if known.grant.fence != ref.fence:
            raise FenceDiffers(f"the lease has another fencing number than {ref.fence}")
        return known

    def open(self, access: LeaseAccess) -> LeaseAccess:
        return self._step(access, AccessEvent.OPEN)

    def close(self, access: LeaseAccess, moved: int) -> LeaseAccess:
        """Subtract the ``moved`` bytes of the listener from the lease's budget."""
        current = self._leases.get(access.grant.lease_id, access)
        return self._step(current, AccessEvent.CLOSE, spent=current.spent + moved)

    def _step(self, access: LeaseAccess, event: AccessEvent, **facts: int) -> LeaseAccess:
        changed = msgspec.structs.replace(access, state=after(access.state, event), **facts)
        self._leases[access.grant.lease_id] = changed
        return changed

    def _drop_ended(self) -> bool:
        """Forget the ended lease that was granted first."""
        oldest = next((key for key, each in self._leases.items() if each.state is AccessState.ENDED), None)
        if oldest is not None:
            del self._leases[oldest]
        return oldest is not None


def _ref(access: LeaseAccess) -> LeaseRef:
    return LeaseRef(access.grant.lease_id, access.grant.fence)


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the daemon. ``still_open`` counts only in a ``whole`` list."""

    whole: bool = False
    still_open: tuple[LeaseRef, ...] = ()
    granted: tuple[LeaseGrant, ...] = ()
    ended: tuple[LeaseRef, ...] = ()
    ca_bundle_pem: str = ""


def is_sound(grant: LeaseGrant) -> bool:
    """Tell whether an honest daemon can send this grant. Any other is dropped and opens nothing."""
    texts = (grant.worker_id, grant.run_id, grant.call_id, grant.principal, grant.tool)
    if any(len(text) > limits.MAX_FIELD_CHARS for text in texts) or len(grant.hosts) > limits.MAX_HOSTS_OF_A_LEASE:
        return False
    try:
        LeaseId.parse(grant.lease_id)
        parse_rules(grant.hosts)
    except (InvalidId, PalyraError):
        return False
    return grant.timeout_ms > 0
