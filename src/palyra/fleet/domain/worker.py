"""The life of one worker. One table holds every transition; any other is refused.

``busy`` has at least one open lease, ``available`` has none. Only these two get leases, and only while connected and
freshly attested. ``draining`` and ``quarantined`` outlast connections. Both lead back through ``registered``, and so
through a new attestation. A worker that was draining before its quarantine is draining after its release.
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


class WorkerTransition(StrEnum):
    """``lapse``: the attestation became too old. ``lose``: silence. ``idle``: the last open lease ended."""

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
_E = WorkerTransition

TRANSITIONS: Final[dict[tuple[WorkerLifecycleState, WorkerTransition], WorkerLifecycleState]] = {
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
# Workers in these states may get leases.
LEASABLE: Final = frozenset((_S.AVAILABLE, _S.BUSY))
# Silence in these states changes the state even after the connection has ended.
EXPECTED_TO_SPEAK: Final = frozenset((_S.REGISTERED, _S.AVAILABLE, _S.BUSY))


class WrongWorkerState(InvalidInput):
    code = "worker.wrong_state"
    hint = "`palyra worker show WORKER` shows the worker's state and history"
    http_status = 409


def after(state: WorkerLifecycleState, event: WorkerTransition) -> WorkerLifecycleState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        words = event.value.replace("_", " ")
        raise WrongWorkerState(f"a worker that is {state.value} cannot {words}", state=state.value) from None


class UnknownWorker(InvalidInput):
    code = "worker.unknown"
    hint = "`palyra worker list` shows all workers"
    http_status = 404


class StaleSession(Denied):
    code = "worker.stale_session"
    hint = "another connection of this worker took over, or the daemon gave it up: connect again"


class NotAttested(Denied):
    code = "worker.not_attested"
    hint = "on every connection a worker attests itself before anything else"


class WorkerNotReady(Unavailable):
    code = "worker.not_ready"
    hint = "`palyra worker show WORKER` shows why it gets no leases"


class WorkerFull(LimitExceeded):
    code = "worker.full"
    hint = "wait until one of its leases ends, or add workers"


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's record of a worker. ``session`` numbers its connections; messages of an older one do not count.

    ``boot_id`` is one life of its process. ``owes`` are leases that ended without the worker and whose cleanup it must
    prove. ``written_off`` are those that a quarantine took away and that it may still clean up. ``egress_id`` is its
    last proxy. ``drained`` is the reason of a drain before the quarantine, or None. A ledger stores ``heard_ms``, the
    time of the last heartbeat, in a column of its own: heartbeats change nothing else.
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
        """The number of the present session; 0 if disconnected."""
        return self.session if self.connected else 0

    @property
    def workspaces_expected(self) -> int:
        """The most workspaces that it may have. More contradict its cleanup proofs."""
        return len(self.open_leases) + len(self.owes) + len(self.written_off)

    def room(self, policy: WorkerFleetPolicy) -> int:
        return max(0, min(self.slots, policy.max_leases_per_worker) - len(self.open_leases))

    def attested_until_ms(self, policy: WorkerFleetPolicy) -> int:
        """Return when its attestation expires; 0 if the present session has none."""
        if self.attested is None or self.attested.session != self.session or not self.connected:
            return 0
        return min(self.attested.expires_ms, self.attested.attested_ms + policy.attestation_interval_ms)

    @property
    def awaited(self) -> bool:
        """Whether it is connected, should be, or holds a lease, so that its silence counts."""
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
        """Raise unless it may get one more lease now."""
        if self.state not in LEASABLE or not self.connected or self.silent_at(policy, now_ms):
            raise WorkerNotReady(f"the worker is {self.state.value} or silent", worker_id=self.worker_id)
        if now_ms >= self.attested_until_ms(policy):
            raise WorkerNotReady("the worker has not attested itself lately", worker_id=self.worker_id)
        if self.owes:
            raise WorkerNotReady("the worker has not shown that it cleaned up", worker_id=self.worker_id)
        if not self.room(policy):
            raise WorkerFull("every slot of the worker is taken", worker_id=self.worker_id)
