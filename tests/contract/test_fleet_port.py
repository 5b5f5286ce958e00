"""What every ledger of the fleet must do, whatever it is kept in. A new backend joins BACKENDS and passes."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import EGRESS, OTHER, POLICY, WORKER, FleetPeers, numbered
from fakes.journal_harness import JournalHarness, StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import FleetDecision
from palyra.fleet.domain.lease import LeaseState, UnknownLease
from palyra.fleet.domain.manager import WorkerFleetManager, due
from palyra.fleet.domain.worker import StaleSession, UnknownWorker
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.store.fleet_tables import SqliteFleet
from palyra.fleet.store.port import Beat, FleetLedger
from palyra.fleet.store.schema import SCHEMA


class Backend:
    """A ledger, its clock, a second process on the same data, and what is in the journal."""

    def __init__(self, ledger: FleetLedger, clock: StillClock) -> None:
        self.ledger = ledger
        self.clock = clock
        self.again: Callable[[], FleetLedger] = lambda: ledger
        self.events: Callable[[], list[tuple[str, dict[str, Any]]]] = list
        self.close: Callable[[], None] = lambda: None


def in_memory(_folder: Path) -> Backend:
    clock = StillClock()
    ledger = MemoryFleet(clock, WorkerFleetManager(POLICY))
    backend = Backend(ledger, clock)
    backend.events = ledger.events  # type: ignore[assignment]

    def again() -> FleetLedger:
        ledger.restart()
        return ledger

    backend.again = again
    return backend


def in_sqlite(folder: Path) -> Backend:
    harness = JournalHarness(folder)
    stores = [harness.open(schema=SCHEMA)]
    backend = Backend(SqliteFleet(stores[0], WorkerFleetManager(POLICY)), harness.clock)

    def again() -> FleetLedger:
        stores.append(harness.open(schema=SCHEMA))
        return SqliteFleet(stores[-1], WorkerFleetManager(POLICY))

    def close() -> None:
        for store in stores:
            store.close()

    backend.again, backend.close = again, close
    backend.events = lambda: [(one.kind, one.payload_value()) for one in stores[0].events_since(0, 10_000)]
    return backend


BACKENDS = {"memory": in_memory, "sqlite": in_sqlite}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend = BACKENDS[request.param](tmp_path)
    yield backend
    backend.close()


@pytest.fixture
def peers() -> FleetPeers:
    return FleetPeers()


async def refused(ledger: FleetLedger, command: commands.FleetCommand) -> str:
    with pytest.raises(PalyraError) as raised:
        await ledger.decide(command)
    return raised.value.code


async def test_a_whole_lease_and_its_trace(backend: Backend, peers: FleetPeers) -> None:
    ledger, clock = backend.ledger, backend.clock
    worker = await peers.ready(ledger, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    assert ledger.worker(WORKER).state is State.BUSY and ledger.leases(WORKER) == [lease]
    await ledger.decide(peers.settle(lease, clock.now, worker.session))
    assert ledger.worker(WORKER).state is State.AVAILABLE and ledger.leases(WORKER) == []
    settled = ledger.lease(lease.lease_id)
    assert (settled.state, settled.output_digest) == (LeaseState.SETTLED, "ff" * 32)
    assert [kind for kind, _ in backend.events()] == [
        "worker.registered", "worker.attested", "lease.authorised", "lease.granted", "lease.settled",
    ]  # fmt: skip


async def test_another_process_sees_the_same_and_goes_on(backend: Backend, peers: FleetPeers) -> None:
    worker = await peers.ready(backend.ledger, now_ms=backend.clock.now)
    lease = await peers.leased(backend.ledger, now_ms=backend.clock.now)
    other = backend.again()
    assert other.worker(WORKER) == backend.ledger.worker(WORKER)
    assert other.lease(lease.lease_id) == lease
    await other.decide(peers.settle(lease, backend.clock.now, worker.session))
    assert await refused(backend.ledger, peers.settle(lease, backend.clock.now, worker.session)) == (
        "lease.duplicate_result"
    )


@pytest.mark.promise("P-worker-attested")
async def test_a_refusal_is_raised_after_what_it_changed_is_kept(backend: Backend, peers: FleetPeers) -> None:
    opened = await backend.ledger.decide(peers.open_session())
    assert opened.worker is not None
    lie = peers.present(opened.worker, backend.clock.now, build_digest_sha256="00" * 32)
    assert await refused(backend.ledger, lie) == "worker_attestation.build_digest"
    assert backend.ledger.worker(WORKER).state is State.QUARANTINED
    kinds = [kind for kind, _ in backend.events()]
    assert kinds[-2:] == ["worker.attestation_refused", "worker.quarantined"]


@pytest.mark.promise("P-worker-once")
async def test_of_many_that_want_the_last_places_only_so_many_get_one(backend: Backend, peers: FleetPeers) -> None:
    await peers.ready(backend.ledger, now_ms=backend.clock.now)
    other = backend.again()
    asks = []
    for number in range(12):
        grant = peers.grant(backend.clock.now)
        await backend.ledger.decide(peers.issue(grant))
        asks.append((backend.ledger, other)[number % 2].decide(peers.lease(WORKER, grant)))
    answers = await asyncio.gather(*asks, return_exceptions=True)
    granted = [one for one in answers if isinstance(one, FleetDecision)]
    assert len(granted) == POLICY.max_leases_per_worker
    assert {one.code for one in answers if isinstance(one, PalyraError)} == {"worker.full"}
    assert len(backend.ledger.worker(WORKER).open_leases) == POLICY.max_leases_per_worker


@pytest.mark.promise("P-worker-once")
async def test_a_grant_begins_one_lease_however_many_race_for_it(backend: Backend, peers: FleetPeers) -> None:
    for worker_id in (WORKER, OTHER):
        await peers.ready(backend.ledger, worker_id, now_ms=backend.clock.now)
    other, grant = backend.again(), peers.grant(backend.clock.now)
    await backend.ledger.decide(peers.issue(grant))
    answers = await asyncio.gather(
        *(
            (backend.ledger, other)[number % 2].decide(peers.lease((WORKER, OTHER)[number % 2], grant))
            for number in range(10)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(one, FleetDecision) for one in answers) == 1
    assert {one.code for one in answers if isinstance(one, PalyraError)} == {"worker_grant.used"}


@pytest.mark.promise("P-worker-once")
async def test_a_lease_is_settled_once_however_many_race_for_it(backend: Backend, peers: FleetPeers) -> None:
    worker = await peers.ready(backend.ledger, now_ms=backend.clock.now)
    lease = await peers.leased(backend.ledger, now_ms=backend.clock.now)
    other = backend.again()
    answers = await asyncio.gather(
        *(
            (backend.ledger, other)[number % 2].decide(
                peers.settle(lease, backend.clock.now, worker.session, output_bytes=number)
            )
            for number in range(8)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(one, FleetDecision) for one in answers) == 1
    assert {one.code for one in answers if isinstance(one, PalyraError)} == {"lease.duplicate_result"}
    assert sum(kind == "lease.settled" for kind, _ in backend.events()) == 1


@pytest.mark.promise("P-worker-once")
async def test_fencing_numbers_grow_across_processes_and_restarts(backend: Backend, peers: FleetPeers) -> None:
    worker = await peers.ready(backend.ledger, now_ms=backend.clock.now)
    fences = []
    for _ in range(3):
        for ledger in (backend.ledger, backend.again()):
            lease = await peers.leased(ledger, now_ms=backend.clock.now)
            fences.append(lease.fence)
            await ledger.decide(peers.settle(lease, backend.clock.now, worker.session))
    assert fences == sorted(set(fences))


async def test_commands_in_one_go_see_each_other_and_keep_their_refusals(backend: Backend, peers: FleetPeers) -> None:
    await peers.ready(backend.ledger, now_ms=backend.clock.now)
    grant = peers.grant(backend.clock.now)
    decisions = await backend.ledger.decide_all(
        [peers.lease(WORKER, grant), peers.issue(grant), peers.lease(WORKER, grant), peers.lease(WORKER, grant)]
    )
    codes = [one.refusal.code if one.refusal else None for one in decisions]
    assert codes == ["worker_grant.unknown", None, None, "worker_grant.used"]


async def test_heartbeats_move_the_hour_of_death_and_nothing_else(backend: Backend, peers: FleetPeers) -> None:
    ledger, clock = backend.ledger, backend.clock
    worker = await peers.ready(ledger, now_ms=clock.now)
    events = len(backend.events())
    clock.now += POLICY.heartbeat_timeout_ms - 100
    answer = await ledger.beat([Beat(worker_id=WORKER, session=worker.session)])
    assert answer.stale == () == answer.suspect
    clock.now += 200
    assert due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce) == []
    after = ledger.worker(WORKER)
    assert msgspec.structs.replace(after, heard_ms=0) == msgspec.structs.replace(worker, heard_ms=0)
    assert len(backend.events()) == events


async def test_heartbeats_of_sessions_that_are_over_are_stale(backend: Backend, peers: FleetPeers) -> None:
    worker = await peers.ready(backend.ledger, now_ms=backend.clock.now)
    await backend.ledger.decide(peers.open_session())
    beats = [
        Beat(worker_id=WORKER, session=worker.session),
        Beat(worker_id=WORKER, session=worker.session + 1),
        Beat(worker_id=WORKER, session=0),
        Beat(worker_id=OTHER, session=1),
    ]
    assert (await backend.ledger.beat(beats)).stale == (beats[0], beats[2], beats[3])
    end = commands.EndSession(actor="w", worker_id=WORKER, session=worker.session + 1)
    await backend.ledger.decide(end)
    assert (await backend.ledger.beat(beats)).stale == tuple(beats)
    with pytest.raises(StaleSession):
        await backend.ledger.decide(end)


async def test_more_workspaces_than_leases_are_suspect(backend: Backend, peers: FleetPeers) -> None:
    worker = await peers.ready(backend.ledger, now_ms=backend.clock.now)
    await peers.leased(backend.ledger, now_ms=backend.clock.now)
    for workspaces, suspect in ((0, False), (1, False), (2, True)):
        beat = Beat(worker_id=WORKER, session=worker.session, workspaces=workspaces)
        assert (await backend.ledger.beat([beat])).suspect == ((beat,) if suspect else ())


async def test_what_is_due_is_found_and_settles_the_matter(backend: Backend, peers: FleetPeers) -> None:
    ledger, clock = backend.ledger, backend.clock
    await peers.ready(ledger, now_ms=clock.now)
    await peers.ready(ledger, OTHER, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    clock.now += POLICY.heartbeat_timeout_ms
    found = due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce)
    assert {(type(one), one.worker_id) for one in found} == {
        (commands.DeclareLost, WORKER),
        (commands.DeclareLost, OTHER),
    }
    await ledger.decide_all(found)
    assert ledger.worker(WORKER).state is State.ORPHANED and ledger.worker(OTHER).state is State.OFFLINE
    assert ledger.lease(lease.lease_id).state is LeaseState.FENCED
    assert due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce) == []


async def test_a_heartbeat_between_looking_and_reaping_wins(backend: Backend, peers: FleetPeers) -> None:
    ledger, clock = backend.ledger, backend.clock
    worker = await peers.ready(ledger, now_ms=clock.now)
    await peers.leased(ledger, now_ms=clock.now)
    clock.now += POLICY.heartbeat_timeout_ms
    found = due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce)
    await ledger.beat([Beat(worker_id=WORKER, session=worker.session)])
    await ledger.decide_all(found)
    assert ledger.worker(WORKER).state is State.BUSY


async def test_deadlines_and_old_attestations_are_found(backend: Backend, peers: FleetPeers) -> None:
    ledger, clock = backend.ledger, backend.clock
    worker = await peers.ready(ledger, now_ms=clock.now)
    lease = await peers.leased(ledger, now_ms=clock.now)
    clock.now = lease.due_ms(POLICY)
    await ledger.beat([Beat(worker_id=WORKER, session=worker.session)])
    assert due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce) == [
        commands.ExpireLease(actor="palyrad", lease_id=lease.lease_id)
    ]
    clock.now += POLICY.challenge_after_ms()
    await ledger.beat([Beat(worker_id=WORKER, session=worker.session)])
    kinds = {type(one) for one in due(ledger.candidates(clock.now), POLICY, clock.now, peers.nonce)}
    assert kinds == {commands.ExpireLease, commands.Challenge}


async def test_lists_come_in_pages_and_counts_by_state(backend: Backend, peers: FleetPeers) -> None:
    ledger, clock = backend.ledger, backend.clock
    ids = [numbered(number) for number in range(1, 5)]
    for worker_id in ids:
        await ledger.decide(peers.open_session(worker_id))
    assert await refused(ledger, peers.open_session(numbered(5))) == "fleet.full"
    await ledger.decide(commands.RemoveWorker(actor="operator", worker_id=ids[3]))
    await ledger.decide(peers.open_session(numbered(5)))
    assert [one.worker_id for one in ledger.workers()] == [*ids, numbered(5)]
    assert [one.worker_id for one in ledger.workers(after=ids[2])] == [ids[3], numbered(5)]
    assert [one.worker_id for one in ledger.workers(State.REMOVED)] == [ids[3]]
    assert dict(ledger.counts()) == {State.REGISTERED: 4, State.REMOVED: 1}
    worker = await peers.ready(ledger, now_ms=clock.now)
    leases = [await peers.leased(ledger, now_ms=clock.now) for _ in range(2)]
    assert ledger.open_leases() == 2 and [one.worker_id for one in ledger.holders()] == [worker.worker_id]
    assert ledger.leases() == leases[::-1] and ledger.leases(before=leases[1].lease_id) == leases[:1]
    await ledger.decide(peers.settle(leases[0], clock.now, worker.session))
    assert ledger.leases(WORKER) == leases[1:] and len(ledger.leases(only_open=False)) == 2
    with pytest.raises(UnknownWorker):
        ledger.worker(numbered(77))
    with pytest.raises(UnknownLease):
        ledger.lease(numbered(77))


@pytest.mark.promise("P-worker-once")
async def test_what_ended_long_ago_is_forgotten_and_nothing_else(backend: Backend, peers: FleetPeers) -> None:
    ledger, clock = backend.ledger, backend.clock
    worker = await peers.ready(ledger, now_ms=clock.now)
    old = await peers.leased(ledger, now_ms=clock.now)
    await ledger.decide(peers.settle(old, clock.now, worker.session))
    assert await ledger.prune() == 0
    clock.now += limits.KEPT_AFTER_END_MS + 120_000
    worker = await peers.ready(ledger, now_ms=clock.now)
    kept = await peers.leased(ledger, now_ms=clock.now)
    assert await ledger.prune() == 2, "the lease and its grant"
    assert await refused(ledger, peers.settle(old, clock.now, worker.session)) == "lease.unknown"
    assert ledger.lease(kept.lease_id) == kept
    await ledger.decide(commands.RemoveWorker(actor="operator", worker_id=WORKER))
    clock.now += limits.KEPT_AFTER_REMOVAL_MS + 1_000
    assert await ledger.prune() == 3
    assert ledger.workers() == []


@pytest.mark.promise("P-worker-quarantine")
async def test_a_proxys_word_ends_the_work_of_a_healthy_worker(backend: Backend, peers: FleetPeers) -> None:
    worker = await peers.ready(backend.ledger, now_ms=backend.clock.now)
    lease = await peers.leased(backend.ledger, now_ms=backend.clock.now)
    report = commands.ReportViolation(actor="egress", worker_id=WORKER, egress_id=EGRESS, violation="relay")
    await backend.again().decide(report)
    assert await refused(backend.ledger, peers.settle(lease, backend.clock.now, worker.session)) == (
        "worker.stale_session"
    )
    assert backend.ledger.lease(lease.lease_id).state is LeaseState.FENCED
