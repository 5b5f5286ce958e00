"""Decisions about leases: grant, lease, cancel, decline, settle, disclaim, expire, retry. Each fills a draft."""

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import Draft, FleetDecision
from palyra.fleet.domain.lease import (
    DuplicateResult,
    FencedResult,
    GrantRepeated,
    GrantUnknown,
    LateResult,
    LeaseEnded,
    LeaseEvent,
    LeaseState,
    NotOwed,
    StaleFence,
    UnknownLease,
    WorkerApprovalGrant,
    WorkerLease,
    WrongWorker,
    after,
    call_fields,
    require_retryable,
)
from palyra.fleet.domain.settlement import (
    CleanupContradicted,
    CleanupForAnother,
    CleanupIncomplete,
    LeaseSettlement,
    ResultTooLarge,
    SettlementDisagrees,
    require_authentic,
    require_clean,
    require_current,
)
from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerTransition
from palyra.fleet.domain.workspace_scope import require_artifacts
from palyra.fleet.limits import MAX_REASON_CHARS


class CapabilityLacking(Denied):
    code = "worker.lacks_capability"
    hint = "`palyra worker list` shows what each worker attested that it can do"


def issue_grant(draft: Draft, command: commands.IssueGrant) -> FleetDecision:
    if draft.situation.grant is not None:
        raise GrantRepeated("there is a grant with this id", grant_id=command.grant_id)
    draft.put_grant(command.grant, new=True)
    _note_grant(draft, command.grant)
    return draft.done()


def lease_work(draft: Draft, command: commands.LeaseWork) -> FleetDecision:
    """Lease a call. Misuse of a grant is recorded; a refusal because of the worker is not."""
    worker, grant, now_ms = draft.worker, draft.situation.grant, draft.now_ms
    is_new = grant is None and command.grant is not None
    if is_new:
        grant = command.grant
    worker.require_ready(draft.policy, now_ms)
    capabilities = worker.attested.capabilities if worker.attested else frozenset()
    if not command.needs <= capabilities:
        lacking = ", ".join(sorted(command.needs - capabilities))
        raise CapabilityLacking(f"the worker lacks {lacking[:200]}", worker_id=worker.worker_id)
    require_artifacts(command.inputs, command.scope, written=False)
    bound = call_fields(command)
    try:
        if grant is None:
            raise GrantUnknown("there is no such grant", grant_id=command.grant_id)
        grant.require(now_ms=now_ms, **bound)
    except Denied as refusal:
        draft.note_call("lease.refused", command, grant_id=command.grant_id, tool=command.tool, code=refusal.code)
        return draft.done(refusal)
    lease = WorkerLease(
        lease_id=command.lease_id,
        worker_id=worker.worker_id,
        grant_id=grant.grant_id,
        fence=draft.situation.fence,
        state=LeaseState.OPEN,
        scope=command.scope,
        inputs=command.inputs,
        nonce=command.nonce,
        idempotent=command.idempotent,
        attempt=grant.attempt,
        max_output_bytes=command.max_output_bytes,
        granted_ms=now_ms,
        deadline_ms=now_ms + min(command.timeout_ms, draft.policy.lease_ttl_ms),
        **bound,
    )
    draft.put_lease(None, lease)
    if is_new:
        _note_grant(draft, grant)
    draft.put_grant(msgspec.structs.replace(grant, used_by=lease.lease_id), new=is_new)
    draft.move(
        WorkerTransition.LEASE,
        open_leases=(*worker.open_leases, lease.lease_id),
        leases_granted=worker.leases_granted + 1,
    )
    draft.note_lease("lease.granted", lease, grant_id=grant.grant_id, deadline_ms=lease.deadline_ms)
    return draft.done()


def cancel(draft: Draft, command: commands.CancelLease) -> FleetDecision:
    """Cancel a lease. The worker still settles it, or the deadline ends it."""
    lease = _known(draft)
    if lease.state is not LeaseState.CANCELLING:
        reason = command.reason[:MAX_REASON_CHARS]
        cancelled = msgspec.structs.replace(lease, state=after(lease.state, LeaseEvent.CANCEL), reason=reason)
        draft.put_lease(lease.state, cancelled)
        draft.note_lease("lease.cancelled", cancelled, reason=reason)
    return draft.done()


def decline(draft: Draft, command: commands.DeclineLease) -> FleetDecision:
    lease = _own(draft, command.worker_id, command.session)
    if isinstance(lease, FleetDecision):
        return lease
    draft.worker.require_attested(draft.policy, draft.now_ms)
    if command.fence != lease.fence:
        return _refuse(draft, lease, StaleFence("that is not the fencing number of the lease"))
    draft.end_lease(lease, LeaseEvent.DECLINE, "lease.declined", reason=command.reason[:MAX_REASON_CHARS])
    _rest(draft)
    return draft.done()


def settle(draft: Draft, command: commands.SettleLease) -> FleetDecision:
    lease = _own(draft, command.worker_id, command.session)
    if isinstance(lease, FleetDecision):
        return lease
    statement = command.statement
    if statement is None:
        return _distrust(draft, lease, command.refusal or SettlementDisagrees("there is no statement"))
    if (statement.worker_id, statement.lease_id) != (command.worker_id, command.lease_id):
        return _distrust(draft, lease, SettlementDisagrees("the statement is about another lease or worker"))
    if statement.fence != lease.fence:
        return _refuse(draft, lease, StaleFence("that is not the fencing number of the lease"))
    if lease.disclaimed_ms:
        return _distrust(draft, lease, CleanupContradicted("the worker stated that it never began this lease"))
    if not lease.is_open:
        return _too_late(draft, lease, statement, command.digest)
    draft.worker.require_attested(draft.policy, draft.now_ms)
    if draft.now_ms >= lease.due_ms(draft.policy):
        _expire(draft, lease)
        return _too_late(draft, lease, statement, command.digest, LateResult("the deadline of the lease has passed"))
    try:
        if not 0 <= statement.output_bytes <= lease.max_output_bytes:
            raise ResultTooLarge(f"the lease allows {lease.max_output_bytes} bytes of output")
        require_artifacts(statement.artifacts, lease.scope, written=True)
    except (LimitExceeded, Denied, InvalidInput) as refusal:
        _take(draft, lease)
        return _refuse(draft, lease, refusal)
    try:
        require_authentic(statement.cleanup, lease, draft.now_ms)
    except Denied as refusal:
        return _distrust(draft, lease, refusal)
    draft.end_lease(
        lease,
        LeaseEvent.SETTLE,
        "lease.settled",
        outcome=statement.outcome,
        output_digest=statement.output_digest,
        settlement_digest=command.digest,
    )
    _rest(draft)
    try:
        require_clean(statement.cleanup)
    except CleanupIncomplete as failure:
        # The result counts, because the call has run. The worker gets no further lease.
        draft.quarantine(f"{failure.code}: {failure.message}")
    return draft.done()


def note_taken(draft: Draft, command: commands.NoteTaken) -> FleetDecision:
    """Record that the worker has the lease. A worker that disclaimed it has lied."""
    lease = _known(draft)
    if lease.worker_id != command.worker_id:
        return draft.done()
    if not lease.disclaimed_ms:
        _take(draft, lease)
    elif draft.worker.state is not WorkerLifecycleState.QUARANTINED:
        return _distrust(draft, lease, CleanupContradicted("the worker stated that it never began this lease"))
    return draft.done()


def disclaim(draft: Draft, command: commands.DisclaimLease) -> FleetDecision:
    """End the worker's duty to prove the cleanup. The lease stays lost: its call may have run again elsewhere."""
    lease = _own(draft, command.worker_id, command.session)
    if isinstance(lease, FleetDecision):
        return lease
    statement = command.statement
    if statement is None:
        return _distrust(draft, lease, command.refusal or CleanupForAnother("there is no statement"))
    draft.worker.require_attested(draft.policy, draft.now_ms)
    if lease.lease_id not in draft.worker.owes:
        return _refuse(draft, lease, NotOwed("nothing is owed of this lease", lease_id=lease.lease_id))
    try:
        require_current(statement, draft.worker)
        require_authentic(statement.cleanup, lease, draft.now_ms)
        if lease.taken_ms:
            raise CleanupContradicted("the worker showed before that it has this lease", lease_id=lease.lease_id)
    except Denied as lie:
        return _distrust(draft, lease, lie)
    try:
        require_clean(statement.cleanup)
    except CleanupIncomplete as failure:
        # An honest statement, but the traces have no explanation.
        return _distrust(draft, lease, failure)
    draft.pay(lease.lease_id)
    disclaimed = msgspec.structs.replace(lease, disclaimed_ms=draft.now_ms)
    draft.put_lease(lease.state, disclaimed)
    draft.note_lease("lease.disclaimed", disclaimed, boot_id=statement.boot_id, session=statement.session)
    return draft.done()


def expire(draft: Draft, _command: commands.ExpireLease) -> FleetDecision:
    """End an overdue lease. Do nothing if it has ended or is not due."""
    lease = _known(draft)
    if lease.is_open and draft.now_ms >= lease.due_ms(draft.policy):
        _expire(draft, lease)
    return draft.done()


def retry(draft: Draft, command: commands.RetryLease) -> FleetDecision:
    lease = _known(draft)
    if draft.situation.grant is not None:
        raise GrantRepeated("there is a grant with this id", grant_id=command.grant_id)
    require_retryable(lease, draft.policy)
    grant = WorkerApprovalGrant(
        grant_id=command.grant_id,
        issued_ms=draft.now_ms,
        expires_ms=draft.now_ms + command.valid_ms,
        attempt=lease.attempt + 1,
        **call_fields(lease),
    )
    draft.put_grant(grant, new=True)
    draft.put_lease(lease.state, msgspec.structs.replace(lease, retried_as=grant.grant_id))
    draft.note_lease("lease.retried", lease, grant_id=grant.grant_id, attempt=grant.attempt)
    return draft.done()


def _known(draft: Draft) -> WorkerLease:
    if draft.situation.lease is None:
        raise UnknownLease("there is no such lease")
    return draft.situation.lease


def _own(draft: Draft, worker_id: str, session: int) -> WorkerLease | FleetDecision:
    """Return the worker's own lease, or the decision on a worker that names another's."""
    draft.worker.require_session(session)
    lease = _known(draft)
    if lease.worker_id != worker_id:
        return _distrust(draft, lease, WrongWorker("the lease is another worker's", lease_id=lease.lease_id))
    return lease


def _take(draft: Draft, lease: WorkerLease) -> None:
    if not lease.taken_ms:
        draft.put_lease(lease.state, msgspec.structs.replace(lease, taken_ms=draft.now_ms))


def _refuse(draft: Draft, lease: WorkerLease, refusal: PalyraError) -> FleetDecision:
    draft.note_lease("lease.result_refused", lease, sender=draft.worker.worker_id, code=refusal.code)
    return draft.done(refusal)


def _distrust(draft: Draft, lease: WorkerLease, refusal: PalyraError) -> FleetDecision:
    """Refuse a statement that no honest worker makes, and quarantine the worker."""
    draft.note_lease("lease.result_refused", lease, sender=draft.worker.worker_id, code=refusal.code)
    draft.quarantine(refusal.code)
    return draft.done(refusal)


def _too_late(
    draft: Draft, lease: WorkerLease, statement: LeaseSettlement, digest: str, refusal: PalyraError | None = None
) -> FleetDecision:
    """Refuse the result, but take the cleanup proof that the worker owes."""
    draft.note_end_reported(lease.lease_id)
    if refusal is None:
        refusal = _ended_refusal(lease)
        if isinstance(refusal, DuplicateResult) and digest == lease.settlement_digest:
            return draft.done(refusal)
    if lease.lease_id in draft.worker.owes:
        try:
            require_authentic(statement.cleanup, lease, draft.now_ms)
            require_clean(statement.cleanup)
        except (Denied, CleanupIncomplete) as failure:
            draft.quarantine(f"{failure.code}: {failure.message}")
        else:
            draft.pay(lease.lease_id)
    return _refuse(draft, lease, refusal)


def _ended_refusal(lease: WorkerLease) -> PalyraError:
    match lease.state:
        case LeaseState.SETTLED:
            return DuplicateResult("the lease is settled already", lease_id=lease.lease_id)
        case LeaseState.EXPIRED:
            return LateResult("the deadline of the lease has passed", lease_id=lease.lease_id)
        case LeaseState.FENCED:
            return FencedResult("the lease is void", lease_id=lease.lease_id)
        case _:
            return LeaseEnded(f"the lease is {lease.state.value}", lease_id=lease.lease_id)


def _expire(draft: Draft, lease: WorkerLease) -> None:
    """End a lease without a report. The worker owes its cleanup proof."""
    draft.end_lease(lease, LeaseEvent.EXPIRE, "lease.expired", reason="deadline")
    draft.owe(lease.lease_id)
    if draft.worker.open_leases:
        return
    if not draft.worker.connected:
        draft.move(WorkerTransition.LOSE)
    else:
        _rest(draft)


def _rest(draft: Draft) -> None:
    """Make the worker available after its last lease, unless its attestation is too old."""
    if draft.worker.open_leases:
        return
    draft.move(WorkerTransition.IDLE)
    if draft.now_ms >= draft.worker.attested_until_ms(draft.policy):
        draft.move(WorkerTransition.LAPSE, attested=None)


def _note_grant(draft: Draft, grant: WorkerApprovalGrant) -> None:
    names = ("grant_id", "tool", "argument_digest", "approval_id", "expires_ms")
    draft.note_call("lease.authorised", grant, **{name: getattr(grant, name) for name in names})
