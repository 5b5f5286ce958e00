"""The commands to the fleet, and the decision on each. The ledger loads what a command names; the manager decides.

``actor`` is the actor in the journal. A worker's message carries the number of the session that it came on.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from palyra.errors import PalyraError, Unavailable
from palyra.fleet.domain.lease import LeaseEvent, LeaseState, WorkerApprovalGrant, WorkerLease
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.settlement import LeaseDisclaimer, LeaseSettlement
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.fleet.domain.worker import UnknownWorker, WorkerLifecycleState, WorkerRecord, WorkerTransition, after
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.limits import MAX_REASON_CHARS
from palyra.signing.dsse import Verifier
from palyra.store.event import NewEvent


class FleetCommand(msgspec.Struct, frozen=True, kw_only=True):
    """An empty ``worker_id`` stands for the worker of the lease."""

    actor: str
    worker_id: str = ""
    lease_id: str = ""
    grant_id: str = ""
    # The ledger loads these besides the worker, lease and grant that are named.
    with_open_leases: ClassVar[bool] = False
    with_count: ClassVar[bool] = False
    with_fence: ClassVar[bool] = False
    # A full disk refuses new work. All other commands are about work that already runs.
    begins_work: ClassVar[bool] = False


class OpenSession(FleetCommand, frozen=True, kw_only=True):
    """A worker connected. The first connection registers it. ``named`` are the open leases in its hello."""

    name: str
    daemon: str
    boot_id: str
    slots: int
    nonce: str
    named: frozenset[str] = frozenset()
    with_open_leases = True
    with_count = True
    begins_work = True


class Challenge(FleetCommand, frozen=True, kw_only=True):
    """Asks for a new attestation. An open challenge stays unchanged."""

    nonce: str


class PresentAttestation(FleetCommand, frozen=True, kw_only=True):
    session: int
    signed: SignedStatement
    key: Verifier
    egress_keys: Mapping[str, Verifier]
    with_open_leases = True


class ChangeSlots(FleetCommand, frozen=True, kw_only=True):
    session: int
    slots: int


class ReportWorkspaces(FleetCommand, frozen=True, kw_only=True):
    """The number of scratch workspaces on the worker's disk, from a heartbeat."""

    session: int
    count: int
    with_open_leases = True


class EndSession(FleetCommand, frozen=True, kw_only=True):
    session: int


class DeclareLost(FleetCommand, frozen=True, kw_only=True):
    with_open_leases = True


class LapseAttestation(FleetCommand, frozen=True, kw_only=True):
    """The worker's attestation became too old."""


class ClaimCleanup(FleetCommand, frozen=True, kw_only=True):
    """The worker reconnected and has not proved its cleanup."""

    with_open_leases = True


class DrainWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""


class ResumeWorker(FleetCommand, frozen=True, kw_only=True):
    """Ends a drain."""


class QuarantineWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str
    with_open_leases = True


class ReportViolation(FleetCommand, frozen=True, kw_only=True):
    """An egress proxy's report on its own connection."""

    egress_id: str
    violation: str
    with_open_leases = True


class ReleaseWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""


class RemoveWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""
    with_open_leases = True


class IssueGrant(FleetCommand, frozen=True, kw_only=True):
    grant: WorkerApprovalGrant
    begins_work = True


class LeaseWork(FleetCommand, frozen=True, kw_only=True):
    """``needs`` are capabilities. ``nonce`` is for the cleanup proof. The manager checks placement's choice again.

    ``grant`` is issued together with its lease unless its id exists, so that both wait for the disk once.
    """

    run_id: str
    call_id: str
    principal: str
    tool: str
    argument_digest: str
    needs: frozenset[str]
    scope: WorkerWorkspaceScope
    inputs: tuple[ArtifactRef, ...] = ()
    nonce: str
    idempotent: bool
    timeout_ms: int
    max_output_bytes: int
    grant: WorkerApprovalGrant | None = None
    with_fence = True
    begins_work = True


class CancelLease(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""


class DeclineLease(FleetCommand, frozen=True, kw_only=True):
    session: int
    fence: int
    reason: str = ""
    with_open_leases = True


class SettleLease(FleetCommand, frozen=True, kw_only=True):
    """``statement`` was opened with the key of the worker's certificate. If that failed, ``refusal`` is the reason."""

    session: int
    statement: LeaseSettlement | None
    digest: str
    refusal: PalyraError | None = None
    with_open_leases = True


class NoteTaken(FleetCommand, frozen=True, kw_only=True):
    """The worker showed by a message or a request that it has the lease."""

    with_open_leases = True


class DisclaimLease(FleetCommand, frozen=True, kw_only=True):
    """The worker states that it never began a lease. ``refusal`` is set if the statement could not be opened."""

    session: int
    statement: LeaseDisclaimer | None
    refusal: PalyraError | None = None
    with_open_leases = True


class ExpireLease(FleetCommand, frozen=True, kw_only=True):
    with_open_leases = True


class RetryLease(FleetCommand, frozen=True, kw_only=True):
    """A new grant, ``grant_id``, for the call of a lease that was lost or declined."""

    valid_ms: int
    begins_work = True


class ChangedMeanwhile(Unavailable):
    code = "fleet.changed_meanwhile"
    hint = "another process changed the same worker or lease at the same time: try again"


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the ledger that one command is about, read inside the transaction."""

    worker: WorkerRecord | None = None
    lease: WorkerLease | None = None
    grant: WorkerApprovalGrant | None = None
    open_leases: tuple[WorkerLease, ...] = ()
    # Workers that are not removed.
    workers: int = 0
    fence: int = 0


class LeaseChange(msgspec.Struct, frozen=True):
    """``was`` is the state that the ledger must find, or None for a new lease."""

    was: LeaseState | None
    lease: WorkerLease


class FleetDecision(msgspec.Struct, frozen=True, kw_only=True):
    """``worker`` is the present record, changed or not. A refusal may change records and is in the journal too."""

    worker: WorkerRecord | None = None
    worker_changed: bool = False
    leases: tuple[LeaseChange, ...] = ()
    grant: WorkerApprovalGrant | None = None
    grant_is_new: bool = False
    events: tuple[NewEvent, ...] = ()
    refusal: PalyraError | None = None


class Draft:
    def __init__(self, policy: WorkerFleetPolicy, situation: Situation, actor: str, now_ms: int) -> None:
        self.policy = policy
        self.now_ms = now_ms
        self.situation = situation
        self._actor = actor
        self._worker = situation.worker
        self._leases: dict[str, LeaseChange] = {}
        self._grant: tuple[WorkerApprovalGrant, bool] | None = None
        self._events: list[NewEvent] = []

    @property
    def worker(self) -> WorkerRecord:
        if self._worker is None:
            raise UnknownWorker("there is no such worker")
        return self._worker

    def register(self, worker: WorkerRecord) -> None:
        self._worker = worker

    def change(self, **changes: Any) -> WorkerRecord:
        self._worker = msgspec.structs.replace(self.worker, **changes)
        return self._worker

    def move(self, event: WorkerTransition, **changes: Any) -> WorkerRecord:
        state = after(self.worker.state, event)
        if state is not self.worker.state:
            changes["since_ms"] = self.now_ms
        return self.change(state=state, **changes)

    def put_lease(self, was: LeaseState | None, lease: WorkerLease) -> None:
        self._leases[lease.lease_id] = LeaseChange(was, lease)

    def put_grant(self, grant: WorkerApprovalGrant, *, new: bool) -> None:
        self._grant = (grant, new)

    def end_lease(self, lease: WorkerLease, event: LeaseEvent, kind: str, **facts: Any) -> None:
        """End a lease and remove it from the worker's open ones. The caller changes the worker's state."""
        ended = lease.ended(event, self.now_ms, **facts)
        self.put_lease(lease.state, ended)
        self.change(open_leases=_without(self.worker.open_leases, lease.lease_id))
        self.note_lease(kind, ended, **msgspec.to_builtins(facts))

    def fence_open(self, reason: str, *, owed: bool) -> bool:
        """Void the worker's open leases. If ``owed``, it must prove their cleanup when it reconnects."""
        fenced = [one for one in self.situation.open_leases if one.lease_id not in self._leases]
        for lease in fenced:
            self.end_lease(lease, LeaseEvent.FENCE, "lease.fenced", reason=reason)
        if owed and fenced:
            self.owe(*(lease.lease_id for lease in fenced))
        return bool(fenced)

    def owe(self, *lease_ids: str) -> None:
        self.change(owes=(*self.worker.owes, *lease_ids), owes_since_ms=self.now_ms)

    def pay(self, lease_id: str) -> None:
        self.change(owes=_without(self.worker.owes, lease_id))

    def note_end_reported(self, lease_id: str) -> None:
        """Note the reported end of a lease that a quarantine took away: its workspace is gone."""
        if lease_id in self.worker.written_off:
            self.change(written_off=_without(self.worker.written_off, lease_id))

    def quarantine(self, reason: str) -> None:
        """Void the worker's leases and end its connection. A release and a new attestation lead out of quarantine."""
        reason = reason[:MAX_REASON_CHARS]
        if self.worker.state is WorkerLifecycleState.DRAINING:
            self.change(drained=self.worker.reason)
        worker = self.worker
        # The worker may learn this long after its release, and ends what it runs only then.
        written_off = tuple(dict.fromkeys((*worker.written_off, *worker.owes, *worker.open_leases)))
        self.fence_open(reason, owed=False)
        self.move(
            WorkerTransition.QUARANTINE,
            connected=False,
            attested=None,
            nonce="",
            owes=(),
            written_off=written_off,
            reason=reason,
        )
        self.note_worker("worker.quarantined", reason=reason)

    def note_worker(self, kind: str, **facts: Any) -> None:
        payload = {"worker_id": self.worker.worker_id, "name": self.worker.name, "state": self.worker.state.value}
        self._events.append(NewEvent(kind=kind, actor=self._actor, payload={**payload, **facts}))

    def note_lease(self, kind: str, lease: WorkerLease, **facts: Any) -> None:
        payload = {"lease_id": lease.lease_id, "worker_id": lease.worker_id, "fence": lease.fence, "tool": lease.tool}
        self.note_call(kind, lease, **payload, **facts)

    def note_call(self, kind: str, call: WorkerLease | WorkerApprovalGrant | LeaseWork, **payload: Any) -> None:
        self._events.append(
            NewEvent(
                kind=kind,
                actor=self._actor,
                principal=call.principal,
                run=call.run_id,
                call=call.call_id,
                payload=payload,
            )
        )

    def done(self, refusal: PalyraError | None = None) -> FleetDecision:
        before, worker = self.situation.worker, self._worker
        changed = worker is not None and worker is not before and worker != before
        if changed and worker is not None:
            worker = msgspec.structs.replace(worker, revision=worker.revision + 1)
        grant, new = self._grant or (None, False)
        return FleetDecision(
            worker=worker,
            worker_changed=changed,
            leases=tuple(self._leases.values()),
            grant=grant,
            grant_is_new=new,
            events=tuple(self._events),
            refusal=refusal,
        )


def _without(lease_ids: tuple[str, ...], lease_id: str) -> tuple[str, ...]:
    return tuple(one for one in lease_ids if one != lease_id)
