"""Everything that may happen to the fleet, as values. The ledger loads what a command names, and the manager decides.

``actor`` is who the journal says did it. A message of a worker carries the number of the session it came on.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from palyra.errors import PalyraError, Unavailable
from palyra.fleet.domain.lease import LeaseEvent, LeaseState, WorkerApprovalGrant, WorkerLease
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.settlement import LeaseDisclaimer, LeaseSettlement
from palyra.fleet.domain.signed_statement import DeviceVerifier, SignedStatement
from palyra.fleet.domain.worker import UnknownWorker, WorkerEvent, WorkerLifecycleState, WorkerRecord, after
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.limits import MAX_REASON_CHARS
from palyra.store.event import NewEvent


class FleetCommand(msgspec.Struct, frozen=True, kw_only=True):
    """``worker_id`` empty: the worker of the lease is meant."""

    actor: str
    worker_id: str = ""
    lease_id: str = ""
    grant_id: str = ""
    # What the ledger has to load besides the worker, lease and grant that are named.
    with_open_leases: ClassVar[bool] = False
    with_count: ClassVar[bool] = False
    with_fence: ClassVar[bool] = False
    # New work, which a full disk refuses; everything else is about work that already runs.
    begins_work: ClassVar[bool] = False


class OpenSession(FleetCommand, frozen=True, kw_only=True):
    """A worker connected. The first time registers it. ``named`` are the leases that it says it has."""

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
    """Asks for a new attestation; an open challenge stays as it is."""

    nonce: str


class PresentAttestation(FleetCommand, frozen=True, kw_only=True):
    session: int
    signed: SignedStatement
    key: DeviceVerifier
    egress_keys: Mapping[str, DeviceVerifier]
    with_open_leases = True


class ChangeSlots(FleetCommand, frozen=True, kw_only=True):
    session: int
    slots: int


class ReportWorkspaces(FleetCommand, frozen=True, kw_only=True):
    """How many scratch workspaces the worker has on disk, as its heartbeat says."""

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
    """The worker is back and still has not shown that it cleaned up."""

    with_open_leases = True


class DrainWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""


class ResumeWorker(FleetCommand, frozen=True, kw_only=True):
    """Ends a drain."""


class QuarantineWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str
    with_open_leases = True


class ReportViolation(FleetCommand, frozen=True, kw_only=True):
    """What an egress proxy saw, said on its own connection."""

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
    """``worker_id`` is placement's choice, checked again. ``needs`` are capabilities. ``nonce`` is for the cleanup.

    ``grant`` is issued with the lease that uses it, unless there is one of that id: one wait for the disk, not two.
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
    """``statement`` was opened with the key of the worker's certificate; if that failed, ``refusal`` says how."""

    session: int
    statement: LeaseSettlement | None
    digest: str
    refusal: PalyraError | None = None
    with_open_leases = True


class NoteTaken(FleetCommand, frozen=True, kw_only=True):
    """The worker showed that it has the lease, by whatever it said or asked for."""

    with_open_leases = True


class DisclaimLease(FleetCommand, frozen=True, kw_only=True):
    """The worker says that it never began a lease whose cleanup it owes. ``refusal``: its word could not be opened."""

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


# What the manager is shown, what it answers, and the draft in which one answer is written.


class ChangedMeanwhile(Unavailable):
    code = "fleet.changed_meanwhile"
    hint = "another process changed the same worker or lease at the same time: try again"


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the ledger that one command is about, as it is inside the transaction."""

    worker: WorkerRecord | None = None
    lease: WorkerLease | None = None
    grant: WorkerApprovalGrant | None = None
    open_leases: tuple[WorkerLease, ...] = ()
    # Workers that are not removed.
    workers: int = 0
    fence: int = 0


class LeaseChange(msgspec.Struct, frozen=True):
    """``was`` is the state that the ledger must find; None for a new lease."""

    was: LeaseState | None
    lease: WorkerLease


class FleetDecision(msgspec.Struct, frozen=True, kw_only=True):
    """``worker`` is the record as it now is, changed or not. A refusal may change things too, and is on record."""

    worker: WorkerRecord | None = None
    worker_changed: bool = False
    leases: tuple[LeaseChange, ...] = ()
    grant: WorkerApprovalGrant | None = None
    grant_is_new: bool = False
    events: tuple[NewEvent, ...] = ()
    refusal: PalyraError | None = None

    def lease(self) -> WorkerLease:
        """The one lease that the command was about."""
        return self.leases[0].lease


class Draft:
    """Collects what one command changes."""

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

    def move(self, event: WorkerEvent, **changes: Any) -> WorkerRecord:
        state = after(self.worker.state, event)
        if state is not self.worker.state:
            changes["since_ms"] = self.now_ms
        return self.change(state=state, **changes)

    def put_lease(self, was: LeaseState | None, lease: WorkerLease) -> None:
        self._leases[lease.lease_id] = LeaseChange(was, lease)

    def put_grant(self, grant: WorkerApprovalGrant, *, new: bool) -> None:
        self._grant = (grant, new)

    def end_lease(self, lease: WorkerLease, event: LeaseEvent, kind: str, **facts: Any) -> None:
        """The lease is over, and no longer among the worker's open ones; the worker's state is for the caller."""
        ended = lease.ended(event, self.now_ms, **facts)
        self.put_lease(lease.state, ended)
        self.change(open_leases=_without(self.worker.open_leases, lease.lease_id))
        self.note_lease(kind, ended, **msgspec.to_builtins(facts))

    def fence_open(self, reason: str, *, owed: bool) -> bool:
        """Voids what the worker still holds. ``owed``: it has to show the cleanup when it comes back."""
        fenced = [one for one in self.situation.open_leases if one.lease_id not in self._leases]
        for lease in fenced:
            self.end_lease(lease, LeaseEvent.FENCE, "lease.fenced", reason=reason)
        if owed and fenced:
            self.owe(*(lease.lease_id for lease in fenced))
        return bool(fenced)

    def owe(self, *lease_ids: str) -> None:
        self.change(owes=(*self.worker.owes, *lease_ids), owes_since_ms=self.now_ms)

    def pay(self, lease_id: str) -> None:
        """What it owed of this lease is shown."""
        self.change(owes=_without(self.worker.owes, lease_id))

    def reported(self, lease_id: str) -> None:
        """It told of the end of a lease that a quarantine had taken from it: its workspace is gone by then."""
        if lease_id in self.worker.written_off:
            self.change(written_off=_without(self.worker.written_off, lease_id))

    def quarantine(self, reason: str) -> None:
        """No lease before an operator's release and a new attestation. Its leases are void, its connection ends."""
        reason = reason[:MAX_REASON_CHARS]
        if self.worker.state is WorkerLifecycleState.DRAINING:
            self.change(drained=self.worker.reason)
        worker = self.worker
        # It may hear of this long after a person has let it out again, and ends what it runs only then.
        written_off = tuple(dict.fromkeys((*worker.written_off, *worker.owes, *worker.open_leases)))
        self.fence_open(reason, owed=False)
        self.move(
            WorkerEvent.QUARANTINE,
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
        self._events.append(
            NewEvent(
                kind=kind,
                actor=self._actor,
                principal=lease.principal,
                run=lease.run_id,
                call=lease.call_id,
                payload={**payload, **facts},
            )
        )

    def note(self, event: NewEvent) -> None:
        self._events.append(event)

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
