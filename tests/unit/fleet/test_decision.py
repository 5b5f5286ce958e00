import msgspec
import pytest

from fakes.fleet_peers import POLICY, WORKER, a_lease, numbered
from palyra.fleet.domain.commands import Draft, FleetDecision, Situation
from palyra.fleet.domain.lease import LeaseState
from palyra.fleet.domain.worker import UnknownWorker, WorkerRecord, WorkerTransition
from palyra.fleet.domain.worker import WorkerLifecycleState as State

LEASES = (a_lease(lease_id=numbered(7)), a_lease(lease_id=numbered(8), fence=4))
BUSY = WorkerRecord(
    worker_id=WORKER,
    state=State.BUSY,
    name="w",
    daemon="d",
    boot_id="b",
    slots=4,
    revision=5,
    connected=True,
    open_leases=(numbered(7), numbered(8)),
    registered_ms=0,
    since_ms=10,
)


def draft() -> Draft:
    return Draft(POLICY, Situation(worker=BUSY, open_leases=LEASES), "tester", 1_000)


def test_nothing_done_is_no_change() -> None:
    made = draft()
    made.change(slots=4)
    decision = made.done()
    assert not decision.worker_changed and decision.worker == BUSY and decision.events == ()


def test_a_change_counts_the_revision_up_once() -> None:
    made = draft()
    made.change(slots=3)
    made.move(WorkerTransition.DRAIN)
    decision = made.done()
    assert decision.worker == msgspec.structs.replace(BUSY, slots=3, state=State.DRAINING, revision=6, since_ms=1_000)


def test_staying_in_a_state_does_not_restart_its_clock() -> None:
    made = draft()
    assert made.move(WorkerTransition.CONNECT).since_ms == 10


def test_fencing_voids_everything_and_notes_what_is_owed() -> None:
    made = draft()
    assert made.fence_open("gone", owed=True)
    assert not made.fence_open("gone", owed=True), "a second time there is nothing left"
    decision = made.done()
    assert decision.worker is not None and decision.worker.owes == BUSY.open_leases and not decision.worker.open_leases
    assert [(one.was, one.lease.state) for one in decision.leases] == [(LeaseState.OPEN, LeaseState.FENCED)] * 2
    assert [(one.kind, one.run, one.payload["reason"]) for one in decision.events] == [
        ("lease.fenced", LEASES[0].run_id, "gone")
    ] * 2


def test_quarantine_leaves_nothing_that_could_be_used() -> None:
    made = draft()
    made.quarantine("x" * 5_000)
    worker = made.done().worker
    assert worker is not None and (worker.state, worker.connected, worker.attested) == (State.QUARANTINED, False, None)
    assert (worker.nonce, worker.owes, worker.open_leases, len(worker.reason)) == ("", (), (), 1_024)


def test_without_a_worker_there_is_nothing_to_change() -> None:
    with pytest.raises(UnknownWorker):
        Draft(POLICY, Situation(), "tester", 0).change(slots=1)
    assert Draft(POLICY, Situation(), "tester", 0).done() == FleetDecision()
