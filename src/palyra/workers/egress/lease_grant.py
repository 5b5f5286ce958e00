"""What the daemon granted a lease on the network, and what this proxy holds of it.

The grant comes over the proxy's own connection to the daemon, never through the worker. A statement signed by the
daemon and carried by the worker would have had the same content; it could not be taken back before it ends, would need
a key of the daemon's that the proxy learns over that very connection, and the worker could hold it back and use it
later. Here the end of a lease is an order like its begin, and there is nothing to replay.
"""

from enum import StrEnum
from typing import Final

import msgspec

from palyra.errors import PalyraError
from palyra.workers.egress.errors import DoorStands, LeaseOver, NoDoor


class LeaseGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``hosts`` are rules; ``timeout_ms`` counts from when the proxy is told."""

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
    """``ending``: the lease is over and its door still open, so that whoever goes on using it is seen."""

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
    (AccessState.GRANTED, AccessEvent.CLOSE): NoDoor,
    (AccessState.SERVING, AccessEvent.OPEN): DoorStands,
    (AccessState.ENDING, AccessEvent.OPEN): LeaseOver,
    # The daemon may say it, the deadline pass, and a new connection say it again: it ended the first time.
    (AccessState.ENDING, AccessEvent.END): LeaseOver,
    (AccessState.ENDED, AccessEvent.OPEN): LeaseOver,
    (AccessState.ENDED, AccessEvent.END): LeaseOver,
    (AccessState.ENDED, AccessEvent.CLOSE): NoDoor,
}


def after(state: AccessState, event: AccessEvent) -> AccessState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise _REFUSALS[state, event](f"a lease that is {state.value} here cannot {event.value}") from None


class LeaseAccess(msgspec.Struct, frozen=True, kw_only=True):
    """One lease at the proxy. Instants are of the monotonic clock; ``spent`` are bytes of doors that were closed."""

    grant: LeaseGrant
    state: AccessState
    ends_ms: int
    ended_ms: int = 0
    spent: int = 0

    @property
    def is_over(self) -> bool:
        return self.state in OVER
