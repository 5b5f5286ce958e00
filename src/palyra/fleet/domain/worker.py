"""The life of one worker. One table holds every transition; what is not in it is refused.

``busy`` has at least one lease open, ``available`` none. Only those two get leases, and only while connected and
freshly attested. ``draining`` and ``quarantined`` outlast connections: what an operator or an alarm decided is not
undone by a cable. Both lead back through ``registered``, and so through a new attestation; a worker that was drained
when it came into quarantine is drained again when it is let out.
"""

from enum import StrEnum
from typing import Final

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, Unavailable
from palyra.fleet.domain.attestation import ValidAttestation
from palyra.fleet.domain.policy import WorkerFleetPolicy


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


# What the ledger knows of one worker, and whether it may be given work now.


class UnknownWorker(InvalidInput):
    code = "worker.unknown"
    hint = "`palyra worker list` shows the workers there are"
    http_status = 404


class StaleSession(Denied):
    code = "worker.stale_session"
    hint = "another connection of this worker took over, or it was given up: connect again"


class NotAttested(Denied):
    code = "worker.not_attested"
    hint = "after every connection a worker attests before it says anything else"


class WorkerNotReady(Unavailable):
    code = "worker.not_ready"
    hint = "`palyra worker show WORKER` tells why it gets no leases"


class WorkerFull(LimitExceeded):
    code = "worker.full"
    hint = "wait until one of its leases ends, or add workers"


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``session`` numbers the worker's connections: what an older one says no longer counts. ``boot_id`` is one life of
    its process. ``owes`` are leases that ended without the worker, whose traces it has yet to show removed;
    ``written_off`` those that a quarantine took from it, which it may still be cleaning up after. ``egress_id`` is the
    proxy it was bound to last. ``drained`` is why it was drained when it came into quarantine, and None if it was not.
    A ledger keeps ``heard_ms`` apart: heartbeats change nothing else.
    """

    worker_id: str
    state: WorkerLifecycleState
    name: str
    daemon: str
    boot_id: str
    slots: int
    revision: int = 0
    session: int = 1
    connected: bool = False
    nonce: str = ""
    nonce_ms: int = 0
    attested: ValidAttestation | None = None
    egress_id: str = ""
    open_leases: tuple[str, ...] = ()
    owes: tuple[str, ...] = ()
    owes_since_ms: int = 0
    written_off: tuple[str, ...] = ()
    registered_ms: int
    since_ms: int
    leases_granted: int = 0
    reason: str = ""
    drained: str | None = None
    heard_ms: int = 0

    @property
    def live_session(self) -> int:
        """The session that may speak; 0 if there is none."""
        return self.session if self.connected else 0

    @property
    def workspaces_expected(self) -> int:
        """How many leases it may have a workspace of. One more contradicts what it said of its cleanups."""
        return len(self.open_leases) + len(self.owes) + len(self.written_off)

    def room(self, policy: WorkerFleetPolicy) -> int:
        return max(0, min(self.slots, policy.max_leases_per_worker) - len(self.open_leases))

    def attested_until_ms(self, policy: WorkerFleetPolicy) -> int:
        """When its attestation stops counting; 0 if there is none for the present session."""
        if self.attested is None or self.attested.session != self.session or not self.connected:
            return 0
        return min(self.attested.expires_ms, self.attested.attested_ms + policy.attestation_interval_ms)

    @property
    def awaited(self) -> bool:
        """Whether its silence means something: it is connected, should be, or holds a lease."""
        return self.connected or self.state in EXPECTED_TO_SPEAK or bool(self.open_leases)

    def silent_at(self, policy: WorkerFleetPolicy, now_ms: int) -> bool:
        return self.awaited and now_ms >= self.heard_ms + policy.heartbeat_timeout_ms

    def require_session(self, session: int) -> None:
        if not self.connected or session != self.session:
            raise StaleSession("this connection of the worker is over", worker_id=self.worker_id)

    def require_attested(self, policy: WorkerFleetPolicy, now_ms: int) -> None:
        if now_ms >= self.attested_until_ms(policy):
            raise NotAttested("the worker has not attested itself on this connection", worker_id=self.worker_id)

    def require_ready(self, policy: WorkerFleetPolicy, now_ms: int) -> None:
        """Raises unless it may be given one more lease now."""
        if self.state not in LEASABLE or not self.connected or self.silent_at(policy, now_ms):
            raise WorkerNotReady(f"the worker is {self.state.value} or silent", worker_id=self.worker_id)
        if now_ms >= self.attested_until_ms(policy):
            raise WorkerNotReady("the worker has not attested itself lately", worker_id=self.worker_id)
        if self.owes:
            raise WorkerNotReady("the worker has not shown that it cleaned up", worker_id=self.worker_id)
        if not self.room(policy):
            raise WorkerFull("every slot of the worker is taken", worker_id=self.worker_id)
