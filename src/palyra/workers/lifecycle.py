"""The life of one worker. One table holds every transition; what is not in it is refused.

``busy`` has at least one lease open, ``available`` none. Only those two get leases, and only while connected and
freshly attested. ``draining`` and ``quarantined`` outlast connections: what an operator or an alarm decided is not
undone by a cable. Both lead back through ``registered``, and so through a new attestation; a worker that was drained
when it came into quarantine is drained again when it is let out.
"""

from enum import StrEnum
from typing import Final

from palyra.errors import InvalidInput


class WorkerLifecycleState(StrEnum):
    REGISTERED = "registered"
    AVAILABLE = "available"
    BUSY = "busy"
    DRAINING = "draining"
    OFFLINE = "offline"
    QUARANTINED = "quarantined"
    ORPHANED = "orphaned"
    REMOVED = "removed"


class WorkerEvent(StrEnum):
    """``lapse`` is an attestation that became too old; ``lose`` is silence; ``idle`` the end of the last open lease."""

    CONNECT = "connect"
    ATTEST = "attest"
    LAPSE = "lapse"
    LEASE = "lease"
    IDLE = "idle"
    DISCONNECT = "disconnect"
    LOSE = "lose"
    DRAIN = "drain"
    RESUME = "resume"
    RESUME_WITH_LEASES = "resume_with_leases"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    RELEASE_DRAINED = "release_drained"
    REMOVE = "remove"


_S = WorkerLifecycleState
_E = WorkerEvent

TRANSITIONS: Final[dict[tuple[WorkerLifecycleState, WorkerEvent], WorkerLifecycleState]] = {
    (_S.REGISTERED, _E.CONNECT): _S.REGISTERED,
    (_S.REGISTERED, _E.ATTEST): _S.AVAILABLE,
    (_S.REGISTERED, _E.DISCONNECT): _S.OFFLINE,
    (_S.REGISTERED, _E.LOSE): _S.OFFLINE,
    (_S.REGISTERED, _E.DRAIN): _S.DRAINING,
    (_S.REGISTERED, _E.QUARANTINE): _S.QUARANTINED,
    (_S.REGISTERED, _E.REMOVE): _S.REMOVED,
    (_S.AVAILABLE, _E.CONNECT): _S.REGISTERED,
    (_S.AVAILABLE, _E.ATTEST): _S.AVAILABLE,
    (_S.AVAILABLE, _E.LAPSE): _S.REGISTERED,
    (_S.AVAILABLE, _E.LEASE): _S.BUSY,
    (_S.AVAILABLE, _E.DISCONNECT): _S.OFFLINE,
    (_S.AVAILABLE, _E.LOSE): _S.OFFLINE,
    (_S.AVAILABLE, _E.DRAIN): _S.DRAINING,
    (_S.AVAILABLE, _E.QUARANTINE): _S.QUARANTINED,
    (_S.AVAILABLE, _E.REMOVE): _S.REMOVED,
    (_S.BUSY, _E.CONNECT): _S.BUSY,
    (_S.BUSY, _E.ATTEST): _S.BUSY,
    (_S.BUSY, _E.LAPSE): _S.BUSY,
    (_S.BUSY, _E.LEASE): _S.BUSY,
    (_S.BUSY, _E.IDLE): _S.AVAILABLE,
    (_S.BUSY, _E.DISCONNECT): _S.BUSY,
    (_S.BUSY, _E.LOSE): _S.ORPHANED,
    (_S.BUSY, _E.DRAIN): _S.DRAINING,
    (_S.BUSY, _E.QUARANTINE): _S.QUARANTINED,
    (_S.BUSY, _E.REMOVE): _S.REMOVED,
    (_S.DRAINING, _E.CONNECT): _S.DRAINING,
    (_S.DRAINING, _E.ATTEST): _S.DRAINING,
    (_S.DRAINING, _E.LAPSE): _S.DRAINING,
    (_S.DRAINING, _E.IDLE): _S.DRAINING,
    (_S.DRAINING, _E.DISCONNECT): _S.DRAINING,
    (_S.DRAINING, _E.LOSE): _S.DRAINING,
    (_S.DRAINING, _E.RESUME): _S.REGISTERED,
    (_S.DRAINING, _E.RESUME_WITH_LEASES): _S.BUSY,
    (_S.DRAINING, _E.QUARANTINE): _S.QUARANTINED,
    (_S.DRAINING, _E.REMOVE): _S.REMOVED,
    (_S.OFFLINE, _E.CONNECT): _S.REGISTERED,
    (_S.OFFLINE, _E.DRAIN): _S.DRAINING,
    (_S.OFFLINE, _E.QUARANTINE): _S.QUARANTINED,
    (_S.OFFLINE, _E.REMOVE): _S.REMOVED,
    (_S.QUARANTINED, _E.CONNECT): _S.QUARANTINED,
    (_S.QUARANTINED, _E.DISCONNECT): _S.QUARANTINED,
    (_S.QUARANTINED, _E.LOSE): _S.QUARANTINED,
    (_S.QUARANTINED, _E.QUARANTINE): _S.QUARANTINED,
    (_S.QUARANTINED, _E.RELEASE): _S.REGISTERED,
    (_S.QUARANTINED, _E.RELEASE_DRAINED): _S.DRAINING,
    (_S.QUARANTINED, _E.REMOVE): _S.REMOVED,
    (_S.ORPHANED, _E.CONNECT): _S.ORPHANED,
    (_S.ORPHANED, _E.ATTEST): _S.AVAILABLE,
    (_S.ORPHANED, _E.DISCONNECT): _S.ORPHANED,
    (_S.ORPHANED, _E.LOSE): _S.ORPHANED,
    (_S.ORPHANED, _E.DRAIN): _S.DRAINING,
    (_S.ORPHANED, _E.QUARANTINE): _S.QUARANTINED,
    (_S.ORPHANED, _E.REMOVE): _S.REMOVED,
}
# Those that may be given work, if nothing else speaks against it.
LEASABLE: Final = frozenset((_S.AVAILABLE, _S.BUSY))
# Silence of a worker in these states changes its state even when its connection is already gone.
EXPECTED_TO_SPEAK: Final = frozenset((_S.REGISTERED, _S.AVAILABLE, _S.BUSY))


class WrongWorkerState(InvalidInput):
    code = "worker.wrong_state"
    hint = "`palyra worker show WORKER` tells the worker's state and how it came there"
    http_status = 409


def after(state: WorkerLifecycleState, event: WorkerEvent) -> WorkerLifecycleState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        words = event.value.replace("_", " ")
        raise WrongWorkerState(f"a worker that is {state.value} cannot {words}", state=state.value) from None
