"""The fleet manager: one command and the part of the ledger it is about go in, one decision comes out.

Pure. A ledger loads, asks for the decision and applies it in one transaction, so several daemons may share a ledger.
A refusal may change the ledger too: a worker whose attestation fails is quarantined.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from palyra.errors import Denied, LimitExceeded, PalyraError
from palyra.fleet.domain import commands, leasing
from palyra.fleet.domain.attestation import ChallengeExpired, WorkerAttestationExpectation, validate_attestation
from palyra.fleet.domain.commands import (
    Challenge,
    ClaimCleanup,
    DeclareLost,
    Draft,
    ExpireLease,
    FleetCommand,
    FleetDecision,
    LapseAttestation,
    Situation,
)
from palyra.fleet.domain.lease import WorkerLease
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.settlement import CleanupContradicted
from palyra.fleet.domain.worker import TRANSITIONS, WorkerLifecycleState, WorkerRecord, WorkerTransition, after
from palyra.fleet.limits import MAX_NAME_CHARS, MAX_REASON_CHARS, MAX_SLOTS


class FleetFull(LimitExceeded):
    code = "fleet.full"
    hint = "remove workers that are gone, or raise workers.max_workers"


class ForeignEgress(Denied):
    code = "worker.foreign_egress"
    hint = "only the egress proxy that a worker is bound to can report its violations"


class WorkerFleetManager:
    """Holds the policy and no state."""

    def __init__(self, policy: WorkerFleetPolicy) -> None:
        self.policy = policy

    def decide(self, command: commands.FleetCommand, situation: Situation, now_ms: int) -> FleetDecision:
        """Decide a command. A refusal is in the decision and not raised."""
        draft = Draft(self.policy, situation, command.actor, now_ms)
        try:
            return _decide(draft, command)
        except PalyraError as refusal:
            return FleetDecision(worker=situation.worker, refusal=refusal)


def _decide(draft: Draft, command: commands.FleetCommand) -> FleetDecision:
    match command:
        case commands.LeaseWork():
            return leasing.lease_work(draft, command)
        case commands.SettleLease():
            return leasing.settle(draft, command)
        case commands.IssueGrant():
            return leasing.issue_grant(draft, command)
        case commands.CancelLease():
            return leasing.cancel(draft, command)
        case commands.DeclineLease():
            return leasing.decline(draft, command)
        case commands.NoteTaken():
            return leasing.note_taken(draft, command)
        case commands.DisclaimLease():
            return leasing.disclaim(draft, command)
        case commands.ExpireLease():
            return leasing.expire(draft, command)
        case commands.RetryLease():
            return leasing.retry(draft, command)
        case commands.OpenSession():
            _open_session(draft, command)
        case commands.Challenge():
            _challenge(draft, command)
        case commands.PresentAttestation():
            return _attest(draft, command)
        case commands.ChangeSlots():
            draft.worker.require_session(command.session)
            draft.change(slots=_slots(command.slots))
        case commands.ReportWorkspaces():
            draft.worker.require_session(command.session)
            # A worker in quarantine keeps the reason that put it there.
            quarantined = draft.worker.state is WorkerLifecycleState.QUARANTINED
            if not quarantined and command.count > draft.worker.workspaces_expected:
                draft.quarantine(CleanupContradicted.code)
        case commands.EndSession():
            draft.worker.require_session(command.session)
            draft.move(WorkerTransition.DISCONNECT, connected=False, attested=None, nonce="")
            draft.note_worker("worker.disconnected")
        case commands.DeclareLost():
            _declare_lost(draft)
        case commands.LapseAttestation():
            _lapse(draft)
        case commands.ClaimCleanup():
            _claim_cleanup(draft)
        case commands.ReportViolation():
            return _violation(draft, command)
        case _:
            _operate(draft, command)
    return draft.done()


def _open_session(draft: Draft, command: commands.OpenSession) -> None:
    known, slots, now_ms = draft.situation.worker, _slots(command.slots), draft.now_ms
    changes = {
        "name": command.name[:MAX_NAME_CHARS],
        "daemon": command.daemon,
        "boot_id": command.boot_id,
        "slots": slots,
        "connected": True,
        "nonce": command.nonce,
        "nonce_ms": now_ms,
        "heard_ms": now_ms,
    }
    if known is None:
        if draft.situation.workers >= draft.policy.max_workers:
            raise FleetFull(f"the fleet has {draft.situation.workers} workers")
        draft.register(
            WorkerRecord(
                worker_id=command.worker_id,
                state=WorkerLifecycleState.REGISTERED,
                registered_ms=now_ms,
                since_ms=now_ms,
                **changes,  # type: ignore[arg-type]
            )
        )
        draft.note_worker("worker.registered", slots=slots)
        return
    same_life = command.boot_id == known.boot_id
    crashed = not same_life and bool(known.open_leases or known.owes)
    # A new life has no workspace. Within a life a worker names every lease that has one.
    written_off = tuple(one for one in known.written_off if same_life and one in command.named)
    draft.move(WorkerTransition.CONNECT, session=known.session + 1, attested=None, written_off=written_off, **changes)
    draft.note_worker("worker.connected", session=draft.worker.session, slots=slots)
    if crashed:
        draft.quarantine("worker.crashed")


def _challenge(draft: Draft, command: commands.Challenge) -> None:
    worker = draft.worker
    worker.require_session(worker.session)
    after(worker.state, WorkerTransition.ATTEST)
    if not worker.nonce or draft.now_ms >= worker.nonce_ms + draft.policy.nonce_life_ms:
        draft.change(nonce=command.nonce, nonce_ms=draft.now_ms)


def _attest(draft: Draft, command: commands.PresentAttestation) -> FleetDecision:
    worker = draft.worker
    worker.require_session(command.session)
    after(worker.state, WorkerTransition.ATTEST)
    expected = WorkerAttestationExpectation(
        worker_id=command.worker_id,
        key=command.key,
        nonce=worker.nonce,
        nonce_ms=worker.nonce_ms,
        policy=draft.policy,
        egress_keys=command.egress_keys,
    )
    try:
        valid = validate_attestation(command.signed, expected, draft.now_ms)
    except Denied as refusal:
        draft.note_worker("worker.attestation_refused", code=refusal.code)
        if isinstance(refusal, ChallengeExpired):
            draft.change(nonce="")
        else:
            draft.quarantine(refusal.code)
        return draft.done(refusal)
    valid = msgspec.structs.replace(valid, session=worker.session)
    draft.move(
        WorkerTransition.ATTEST,
        attested=valid,
        nonce="",
        egress_id=valid.egress_id,
        owes_since_ms=draft.now_ms,
    )
    draft.note_worker(
        "worker.attested",
        image_digest=valid.image_digest_sha256,
        build_digest=valid.build_digest_sha256,
        artifact_digest=valid.artifact_digest_sha256,
        egress_id=valid.egress_id,
        key_id=valid.key_id,
        capabilities=sorted(valid.capabilities),
        expires_ms=valid.expires_ms,
    )
    return draft.done()


def _declare_lost(draft: Draft) -> None:
    """Void the leases of a silent worker. Do nothing if it sent something meanwhile."""
    if not draft.worker.silent_at(draft.policy, draft.now_ms):
        return
    fenced = draft.fence_open("worker.orphaned", owed=True)
    draft.move(WorkerTransition.LOSE, connected=False, attested=None, nonce="")
    draft.note_worker("worker.orphaned" if fenced else "worker.offline", heard_ms=draft.worker.heard_ms)


def _lapse(draft: Draft) -> None:
    if draft.worker.attested is not None and draft.now_ms >= draft.worker.attested_until_ms(draft.policy):
        draft.move(WorkerTransition.LAPSE, attested=None)
        draft.note_worker("worker.lapsed")


def _claim_cleanup(draft: Draft) -> None:
    worker = draft.worker
    if not worker.connected or draft.now_ms < worker.owes_since_ms + draft.policy.settle_grace_ms:
        return
    if worker.owes:
        draft.quarantine("worker_cleanup.missing")
    elif worker.attested is not None:
        # A written-off lease needs no proof, but from now on its workspace counts as a contradiction.
        draft.change(written_off=())


def _violation(draft: Draft, command: commands.ReportViolation) -> FleetDecision:
    violation = command.violation[:MAX_REASON_CHARS]
    if not command.egress_id or command.egress_id != draft.worker.egress_id:
        refusal = ForeignEgress("the worker is not bound to this egress proxy", worker_id=command.worker_id)
        draft.note_worker("worker.violation_refused", egress_id=command.egress_id, violation=violation)
        return draft.done(refusal)
    draft.note_worker("worker.violation_reported", egress_id=command.egress_id, violation=violation)
    draft.quarantine("worker.egress_violation")
    return draft.done()


def _operate(draft: Draft, command: commands.FleetCommand) -> None:
    """Apply a person's decision about a worker."""
    match command:
        case commands.DrainWorker():
            draft.move(WorkerTransition.DRAIN, reason=command.reason[:MAX_REASON_CHARS])
            draft.note_worker("worker.draining", reason=draft.worker.reason)
        case commands.ResumeWorker() if draft.worker.open_leases:
            draft.move(WorkerTransition.RESUME_WITH_LEASES, reason="")
            draft.note_worker("worker.resumed")
        case commands.ResumeWorker():
            draft.move(WorkerTransition.RESUME, attested=None, nonce="", reason="")
            draft.note_worker("worker.resumed")
        case commands.QuarantineWorker():
            draft.quarantine(command.reason)
        case commands.ReleaseWorker():
            # The open challenge ends, so that the attestation is newer than the release.
            drained = draft.worker.drained
            event = WorkerTransition.RELEASE if drained is None else WorkerTransition.RELEASE_DRAINED
            draft.move(event, nonce="", reason=drained or "", drained=None)
            draft.note_worker("worker.released", reason=command.reason[:MAX_REASON_CHARS])
        case commands.RemoveWorker():
            reason = command.reason[:MAX_REASON_CHARS]
            draft.fence_open("worker.removed", owed=False)
            draft.move(
                WorkerTransition.REMOVE,
                connected=False,
                attested=None,
                nonce="",
                owes=(),
                written_off=(),
                reason=reason,
            )
            draft.note_worker("worker.removed", reason=reason)
        case _:
            raise TypeError(f"the manager does not know {type(command).__name__}")


def _slots(offered: int) -> int:
    return max(0, min(offered, MAX_SLOTS))


# The reaper: commands that are due because time has passed. Each command checks again inside its transaction, so two
# daemons may reap the same ledger, and a heartbeat in between wins.

ACTOR: Final = "palyrad"
NEVER_MS: Final = 2**62


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """The records that may be due. Extra ones do no harm."""

    workers: tuple[WorkerRecord, ...] = ()
    leases: tuple[WorkerLease, ...] = ()


def due(
    candidates: Candidates, policy: WorkerFleetPolicy, now_ms: int, new_nonce: Callable[[], str]
) -> list[FleetCommand]:
    late = (lease for lease in candidates.leases if lease.is_open and now_ms >= lease.due_ms(policy))
    return [
        *(command for worker in candidates.workers for command in _due_of(worker, policy, now_ms, new_nonce)),
        *(ExpireLease(actor=ACTOR, lease_id=lease.lease_id) for lease in late),
    ]


def _due_of(
    worker: WorkerRecord, policy: WorkerFleetPolicy, now_ms: int, new_nonce: Callable[[], str]
) -> Iterable[FleetCommand]:
    if worker.silent_at(policy, now_ms):
        yield DeclareLost(actor=ACTOR, worker_id=worker.worker_id)
        return
    if now_ms >= _lapses_ms(worker, policy):
        yield LapseAttestation(actor=ACTOR, worker_id=worker.worker_id)
    if now_ms >= _challenge_ms(worker, policy):
        yield Challenge(actor=ACTOR, worker_id=worker.worker_id, nonce=new_nonce())
    if now_ms >= _cleanup_ms(worker, policy):
        yield ClaimCleanup(actor=ACTOR, worker_id=worker.worker_id)


def look_again_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    """Return when something but silence may next be due for a worker. Ledgers index their records by it."""
    return min(_lapses_ms(worker, policy), _challenge_ms(worker, policy), _cleanup_ms(worker, policy))


def _lapses_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    return worker.attested_until_ms(policy) if worker.attested is not None else NEVER_MS


def _challenge_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    if not worker.connected or (worker.state, WorkerTransition.ATTEST) not in TRANSITIONS:
        return NEVER_MS
    wanted = 0 if worker.attested is None else worker.attested.attested_ms + policy.challenge_after_ms()
    if worker.attested is not None:
        wanted = min(wanted, worker.attested_until_ms(policy))
    return max(wanted, worker.nonce_ms + policy.nonce_life_ms) if worker.nonce else wanted


def _cleanup_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    owing = (worker.owes or worker.written_off) and worker.connected and worker.attested is not None
    return worker.owes_since_ms + policy.settle_grace_ms if owing else NEVER_MS
