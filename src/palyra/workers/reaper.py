"""What is due because time has passed: silence, lapsed attestations, deadlines, cleanups that did not come.

Pure: a ledger gives the candidates, this says which commands to decide on, and the commands look again inside their
transaction. So two daemons may reap the same ledger, and a heartbeat in between wins.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from palyra.workers.commands import Challenge, ClaimCleanup, DeclareLost, ExpireLease, FleetCommand, LapseAttestation
from palyra.workers.fleet_policy import WorkerFleetPolicy
from palyra.workers.lease import WorkerLease
from palyra.workers.lifecycle import TRANSITIONS, WorkerEvent
from palyra.workers.record import WorkerRecord

ACTOR: Final = "palyrad"
NEVER_MS: Final = 2**62


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that might be due; more does no harm."""

    workers: tuple[WorkerRecord, ...] = ()
    leases: tuple[WorkerLease, ...] = ()


def due(
    candidates: Candidates, policy: WorkerFleetPolicy, now_ms: int, new_nonce: Callable[[], str]
) -> list[FleetCommand]:
    found: list[FleetCommand] = []
    for worker in candidates.workers:
        found += _due_of(worker, policy, now_ms, new_nonce)
    found += [
        ExpireLease(actor=ACTOR, lease_id=lease.lease_id)
        for lease in candidates.leases
        if lease.is_open and now_ms >= lease.due_ms(policy)
    ]
    return found


def _due_of(
    worker: WorkerRecord, policy: WorkerFleetPolicy, now_ms: int, new_nonce: Callable[[], str]
) -> Iterable[FleetCommand]:
    if worker.silent_at(policy, now_ms):
        # Nothing else matters for a worker that is gone.
        return [DeclareLost(actor=ACTOR, worker_id=worker.worker_id)]
    found: list[FleetCommand] = []
    if now_ms >= _lapses_ms(worker, policy):
        found.append(LapseAttestation(actor=ACTOR, worker_id=worker.worker_id))
    if now_ms >= _challenge_ms(worker, policy):
        found.append(Challenge(actor=ACTOR, worker_id=worker.worker_id, nonce=new_nonce()))
    if now_ms >= _cleanup_ms(worker, policy):
        found.append(ClaimCleanup(actor=ACTOR, worker_id=worker.worker_id))
    return found


def look_again_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    """When something other than its silence may next be due for a worker; a ledger keeps and searches by this."""
    return min(_lapses_ms(worker, policy), _challenge_ms(worker, policy), _cleanup_ms(worker, policy))


def _lapses_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    return worker.attested_until_ms(policy) if worker.attested is not None else NEVER_MS


def _challenge_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    if not worker.connected or (worker.state, WorkerEvent.ATTEST) not in TRANSITIONS:
        return NEVER_MS
    wanted = 0 if worker.attested is None else worker.attested.attested_ms + policy.challenge_after_ms()
    if worker.attested is not None:
        wanted = min(wanted, worker.attested_until_ms(policy))
    return max(wanted, worker.nonce_ms + policy.nonce_life_ms) if worker.nonce else wanted


def _cleanup_ms(worker: WorkerRecord, policy: WorkerFleetPolicy) -> int:
    owing = (worker.owes or worker.written_off) and worker.connected and worker.attested is not None
    return worker.owes_since_ms + policy.settle_grace_ms if owing else NEVER_MS
