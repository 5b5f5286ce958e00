import pytest

from fakes.fleet_peers import EGRESS, OTHER, POLICY, WORKER, FleetPeers, numbered
from fakes.journal_harness import StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.errors import PalyraError
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import Situation
from palyra.fleet.domain.lease import LeaseState, WorkerLease
from palyra.fleet.domain.manager import WorkerFleetManager, due
from palyra.fleet.domain.settlement import CleanupContradicted
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.domain.worker import WorkerRecord


async def refused(ledger: MemoryFleet, command: commands.FleetCommand) -> str:
    with pytest.raises(PalyraError) as raised:
        await ledger.decide(command)
    return raised.value.code


async def done(ledger: MemoryFleet, command: commands.FleetCommand) -> WorkerRecord:
    decision = await ledger.decide(command)
    assert decision.worker is not None
    return decision.worker


def release(worker_id: str = WORKER) -> commands.ReleaseWorker:
    return commands.ReleaseWorker(actor="operator", worker_id=worker_id)


async def test_the_fleet_is_bounded(ledger: MemoryFleet, peers: FleetPeers) -> None:
    for number in range(POLICY.max_workers):
        await ledger.decide(peers.open_session(numbered(number + 1)))
    assert await refused(ledger, peers.open_session(numbered(50))) == "fleet.full"
    # One that is known comes back all the same.
    assert (await done(ledger, peers.open_session(WORKER))).session == 2


async def test_slots_are_what_the_worker_says_within_bounds(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    worker = await peers.ready(ledger, now_ms=clock.now, slots=10_000)
    assert worker.slots == 256 and worker.room(POLICY) == POLICY.max_leases_per_worker
    for slots, room in ((1, 1), (0, 0), (-5, 0)):
        change = commands.ChangeSlots(actor="w", worker_id=WORKER, session=worker.session, slots=slots)
        assert (await done(ledger, change)).room(POLICY) == room


async def test_an_attestation_on_an_older_connection_changes_nothing(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    first = await done(ledger, peers.open_session())
    await ledger.decide(peers.open_session())
    assert await refused(ledger, peers.present(first, clock.now)) == "worker.stale_session"
    assert ledger.worker(WORKER).state is State.REGISTERED


@pytest.mark.promise("P-worker-attested")
async def test_an_attestation_counts_once(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> None:
    opened = await done(ledger, peers.open_session())
    statement = peers.present(opened, clock.now)
    await ledger.decide(statement)
    assert await refused(ledger, statement) == "worker_attestation.stale_nonce"
    assert ledger.worker(WORKER).state is State.QUARANTINED


async def test_a_slow_answer_is_refused_and_the_worker_asked_again(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    opened = await done(ledger, peers.open_session())
    clock.now += POLICY.nonce_life_ms
    assert await refused(ledger, peers.present(opened, clock.now)) == "worker_attestation.challenge_expired"
    asked = await done(ledger, commands.Challenge(actor="palyrad", worker_id=WORKER, nonce=peers.nonce()))
    assert asked.state is State.REGISTERED and asked.nonce not in ("", opened.nonce)
    assert (await done(ledger, peers.present(asked, clock.now))).state is State.AVAILABLE


async def test_an_open_challenge_is_not_replaced(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> None:
    opened = await done(ledger, peers.open_session())
    asked = await done(ledger, commands.Challenge(actor="palyrad", worker_id=WORKER, nonce=peers.nonce()))
    assert asked.nonce == opened.nonce, "an answer on its way must not become a replay"


async def test_a_reconnect_needs_a_new_attestation(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> None:
    await peers.ready(ledger, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    again = await done(ledger, peers.open_session())
    assert again.state is State.BUSY and again.attested is None
    assert await refused(ledger, peers.settle(lease, clock.now, again.session)) == "worker.not_attested"
    with pytest.raises(PalyraError, match="attested itself lately"):
        await peers.leased(ledger, now_ms=clock.now)
    await ledger.decide(peers.present(again, clock.now))
    await ledger.decide(peers.settle(lease, clock.now, again.session))
    assert ledger.lease(lease.lease_id).state is LeaseState.SETTLED


@pytest.mark.promise("P-worker-quarantine")
async def test_a_crash_during_a_lease_quarantines(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> None:
    await peers.ready(ledger, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    back = await done(ledger, peers.open_session(boot="boot-2"))
    assert (back.state, back.reason, back.connected) == (State.QUARANTINED, "worker.crashed", False)
    assert ledger.lease(lease.lease_id).state is LeaseState.FENCED
    # Without a lease a new life of the process is nothing special.
    await peers.ready(ledger, OTHER, now_ms=clock.now)
    assert (await done(ledger, peers.open_session(OTHER, boot="boot-2"))).state is State.REGISTERED


@pytest.mark.promise("P-worker-quarantine")
async def test_release_alone_and_an_old_attestation_do_not_suffice(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(commands.QuarantineWorker(actor="operator", worker_id=WORKER, reason="odd"))
    waiting = await done(ledger, peers.open_session())
    early = peers.present(waiting, clock.now)
    assert await refused(ledger, early) == "worker.wrong_state"
    released = await done(ledger, release())
    assert (released.state, released.attested, released.nonce) == (State.REGISTERED, None, "")
    with pytest.raises(PalyraError, match="registered"):
        await peers.leased(ledger, now_ms=clock.now)
    # The challenge of before the release is no longer open.
    assert await refused(ledger, early) == "worker_attestation.stale_nonce"
    await ledger.decide(release())
    opened = await done(ledger, peers.open_session())
    assert (await done(ledger, peers.present(opened, clock.now))).state is State.AVAILABLE
    await peers.leased(ledger, now_ms=clock.now)


async def test_only_its_own_proxy_can_report_a_worker(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    await peers.ready(ledger, now_ms=clock.now)
    for egress_id in (OTHER, ""):
        report = commands.ReportViolation(actor="e", worker_id=WORKER, egress_id=egress_id, violation="x")
        assert await refused(ledger, report) == "worker.foreign_egress"
    assert ledger.worker(WORKER).state is State.AVAILABLE
    assert ledger.events()[-1][0] == "worker.violation_refused"
    own = commands.ReportViolation(actor="e", worker_id=WORKER, egress_id=EGRESS, violation="x" * 5_000)
    assert (await done(ledger, own)).reason == "worker.egress_violation"
    assert len(str(ledger.events()[-2][1]["violation"])) == 1_024


async def test_a_proxy_can_report_a_worker_that_is_away(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    worker = await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(commands.EndSession(actor="w", worker_id=WORKER, session=worker.session))
    own = commands.ReportViolation(actor="e", worker_id=WORKER, egress_id=EGRESS, violation="x")
    assert (await done(ledger, own)).state is State.QUARANTINED


async def test_more_workspaces_than_leases_contradict_the_cleanup(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    worker = await peers.ready(ledger, now_ms=clock.now)
    await peers.leased(ledger, now_ms=clock.now)
    for count, state in ((1, State.BUSY), (2, State.QUARANTINED)):
        said = commands.ReportWorkspaces(actor="w", worker_id=WORKER, session=worker.session, count=count)
        assert (await done(ledger, said)).state is state


async def let_out_with_a_lease(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> WorkerLease:
    """A person put the worker into quarantine while it worked, and lets it out before it heard of either."""
    await peers.ready(ledger, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    await ledger.decide(commands.QuarantineWorker(actor="operator", worker_id=WORKER, reason="looks odd"))
    await ledger.decide(release())
    return lease


def has_workspaces(worker: WorkerRecord, count: int) -> commands.ReportWorkspaces:
    return commands.ReportWorkspaces(actor="w", worker_id=WORKER, session=worker.session, count=count)


async def test_a_worker_that_is_let_out_may_still_be_cleaning_up_what_it_was_taken(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    lease = await let_out_with_a_lease(ledger, peers, clock)
    back = await done(ledger, peers.open_session(named=(lease.lease_id, "of another")))
    assert (await done(ledger, has_workspaces(back, 1))).state is State.REGISTERED
    attested = await done(ledger, peers.present(back, clock.now))
    assert attested.written_off == (lease.lease_id,) and not attested.owes
    assert (await done(ledger, has_workspaces(back, 1))).state is State.AVAILABLE
    assert await refused(ledger, peers.settle(lease, clock.now, back.session)) == "lease.fenced"
    assert ledger.worker(WORKER).written_off == ()
    assert (await done(ledger, has_workspaces(back, 1))).reason == CleanupContradicted.code, "it said that it is gone"


async def test_what_is_there_after_the_grace_speaks_against_it(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    lease = await let_out_with_a_lease(ledger, peers, clock)
    back = await done(ledger, peers.open_session(named=(lease.lease_id,)))
    await done(ledger, peers.present(back, clock.now))
    claim = commands.ClaimCleanup(actor="palyrad", worker_id=WORKER)
    assert (await done(ledger, claim)).written_off == (lease.lease_id,)
    clock.now += POLICY.settle_grace_ms
    assert claim in due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce)
    assert (await done(ledger, claim)).written_off == ()
    assert claim not in due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce)
    record = await done(ledger, has_workspaces(back, 1))
    assert (record.state, record.reason) == (State.QUARANTINED, CleanupContradicted.code)


@pytest.mark.parametrize("how", ["it does not name", "of an earlier life", "of a lease besides"])
async def test_a_workspace_that_no_lease_explains_contradicts_the_cleanup_of_one_that_was_let_out(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock, how: str
) -> None:
    lease = await let_out_with_a_lease(ledger, peers, clock)
    named = () if how == "it does not name" else (lease.lease_id,)
    boot = "boot-2" if how == "of an earlier life" else "boot-1"
    back = await done(ledger, peers.open_session(named=named, boot=boot))
    record = await done(ledger, has_workspaces(back, 2 if how == "of a lease besides" else 1))
    assert (record.state, record.reason) == (State.QUARANTINED, CleanupContradicted.code)


async def test_one_in_quarantine_keeps_its_reason_and_fills_no_journal_however_often_it_says_what_it_left(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(commands.QuarantineWorker(actor="operator", worker_id=WORKER, reason="the first reason"))
    worker = await done(ledger, peers.open_session(WORKER))
    before = len(ledger.journal)
    for _ in range(3):
        said = commands.ReportWorkspaces(actor="w", worker_id=WORKER, session=worker.session, count=1)
        record = await done(ledger, said)
        assert (record.state, record.reason, record.connected) == (State.QUARANTINED, "the first reason", True)
    assert len(ledger.journal) == before


async def test_a_drain_ends_nothing_and_begins_nothing(
    ledger: MemoryFleet, peers: FleetPeers, clock: StillClock
) -> None:
    worker = await peers.ready(ledger, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    await ledger.decide(commands.DrainWorker(actor="operator", worker_id=WORKER, reason="upgrade"))
    with pytest.raises(PalyraError, match="draining"):
        await peers.leased(ledger, now_ms=clock.now)
    resumed = await done(ledger, commands.ResumeWorker(actor="operator", worker_id=WORKER))
    assert resumed.state is State.BUSY
    await ledger.decide(commands.DrainWorker(actor="operator", worker_id=WORKER))
    await ledger.decide(peers.settle(lease, clock.now, worker.session))
    assert ledger.worker(WORKER).state is State.DRAINING
    resumed = await done(ledger, commands.ResumeWorker(actor="operator", worker_id=WORKER))
    assert resumed.state is State.REGISTERED and resumed.attested is None


async def test_a_drain_outlasts_a_quarantine(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> None:
    await peers.ready(ledger, now_ms=clock.now)
    await ledger.decide(commands.DrainWorker(actor="operator", worker_id=WORKER, reason="a new disk"))
    for reason in ("behaves oddly", "still does"):
        await ledger.decide(commands.QuarantineWorker(actor="operator", worker_id=WORKER, reason=reason))
    let_out = await done(ledger, release())
    assert (let_out.state, let_out.reason, let_out.nonce) == (State.DRAINING, "a new disk", "")
    assert ledger.journal[-1].payload["state"] == "draining"
    with pytest.raises(PalyraError, match="draining"):
        await peers.leased(ledger, now_ms=clock.now)
    await done(ledger, commands.ResumeWorker(actor="operator", worker_id=WORKER))
    await ledger.decide(commands.QuarantineWorker(actor="operator", worker_id=WORKER, reason="once more"))
    assert (await done(ledger, release())).state is State.REGISTERED, "it was not drained this time"


async def test_removal_is_final(ledger: MemoryFleet, peers: FleetPeers, clock: StillClock) -> None:
    await peers.ready(ledger, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    await ledger.decide(commands.RemoveWorker(actor="operator", worker_id=WORKER, reason="sold"))
    assert ledger.lease(lease.lease_id).state is LeaseState.FENCED
    for command in (peers.open_session(), release(), commands.DrainWorker(actor="operator", worker_id=WORKER)):
        assert await refused(ledger, command) == "worker.wrong_state"


async def test_an_unknown_worker_and_an_unknown_command() -> None:
    manager = WorkerFleetManager(POLICY)
    decision = manager.decide(release(), Situation(), 0)
    assert decision.refusal is not None and decision.refusal.code == "worker.unknown"
    with pytest.raises(TypeError):
        manager.decide(commands.FleetCommand(actor="x", worker_id=WORKER), Situation(), 0)
