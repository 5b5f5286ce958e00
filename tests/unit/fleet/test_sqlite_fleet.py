from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import POLICY, WORKER, FleetPeers
from fakes.journal_harness import JournalHarness
from palyra.fleet.domain.commands import ChangedMeanwhile, FleetCommand, FleetDecision, Situation
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.fleet.store.fleet_tables import SqliteFleet
from palyra.fleet.store.schema import SCHEMA
from palyra.journal.verify import verify_journal
from palyra.store.sqlite.store import SqliteStore


@pytest.fixture
def harness(tmp_path: Path) -> JournalHarness:
    return JournalHarness(tmp_path)


@pytest.fixture
def store(harness: JournalHarness) -> Iterator[SqliteStore]:
    store = harness.open(schema=SCHEMA)
    yield store
    store.close()


class Stale(WorkerFleetManager):
    """Decides on what it saw before, as a process would that does not share the transaction."""

    seen: Situation | None = None

    def decide(self, command: FleetCommand, situation: Situation, now_ms: int) -> FleetDecision:
        return super().decide(command, self.seen or situation, now_ms)


async def test_a_rival_is_noticed_and_nothing_of_the_loser_is_kept(
    store: SqliteStore, harness: JournalHarness, peers: FleetPeers
) -> None:
    honest, stale = SqliteFleet(store, WorkerFleetManager(POLICY)), Stale(POLICY)
    await peers.ready(honest, now_ms=harness.clock.now)
    grants = [peers.grant(harness.clock.now) for _ in range(2)]
    await honest.decide_all([peers.issue(grant) for grant in grants])
    stale.seen = Situation(worker=honest.worker(WORKER), grant=grants[0], fence=7)
    await honest.decide(peers.lease(WORKER, grants[1]))
    head, before = store.head(), honest.worker(WORKER)
    with pytest.raises(ChangedMeanwhile):
        await SqliteFleet(store, stale).decide(peers.lease(WORKER, grants[0]))
    assert store.head() == head and honest.worker(WORKER) == before and len(honest.leases()) == 1
    # Its grant is still there to be used.
    await honest.decide(peers.lease(WORKER, grants[0]))


async def test_a_fencing_number_is_the_databases_to_keep_apart(
    store: SqliteStore, harness: JournalHarness, peers: FleetPeers
) -> None:
    honest, stale = SqliteFleet(store, WorkerFleetManager(POLICY)), Stale(POLICY)
    await peers.ready(honest, now_ms=harness.clock.now)
    lease = await peers.leased(honest, now_ms=harness.clock.now)
    grant = peers.grant(harness.clock.now)
    await honest.decide(peers.issue(grant))
    stale.seen = Situation(worker=honest.worker(WORKER), grant=grant, fence=lease.fence)
    with pytest.raises(ChangedMeanwhile):
        await SqliteFleet(store, stale).decide(peers.lease(WORKER, grant))


async def test_a_manager_that_fails_leaves_nothing(
    store: SqliteStore, harness: JournalHarness, peers: FleetPeers
) -> None:
    ledger = SqliteFleet(store, WorkerFleetManager(POLICY))
    with pytest.raises(TypeError):
        await ledger.decide_all([peers.open_session(), FleetCommand(actor="x", worker_id=WORKER)])
    assert ledger.workers() == [] and store.head()[0] == 0


async def test_the_schema_may_be_applied_again_and_numbers_go_on(harness: JournalHarness, peers: FleetPeers) -> None:
    fences: list[int] = []
    for _ in range(2):
        store = harness.open(schema=SCHEMA)
        ledger = SqliteFleet(store, WorkerFleetManager(POLICY))
        await peers.ready(ledger, now_ms=harness.clock.now)
        fences.append((await peers.leased(ledger, now_ms=harness.clock.now)).fence)
        store.close()
    assert fences == sorted(set(fences))


async def test_the_journal_of_a_fleet_verifies(store: SqliteStore, harness: JournalHarness, peers: FleetPeers) -> None:
    ledger = SqliteFleet(store, WorkerFleetManager(POLICY))
    worker = await peers.ready(ledger, now_ms=harness.clock.now)
    for _ in range(5):
        lease = await peers.leased(ledger, now_ms=harness.clock.now)
        await ledger.decide(peers.settle(lease, harness.clock.now, worker.session))
    store.seal()
    assert verify_journal(store.reader, harness.verifiers).events == store.head()[0]


async def test_what_is_due_is_found_by_index(store: SqliteStore) -> None:
    for sql in (
        "SELECT record FROM fleet_workers WHERE awaited = 1 AND heard_ms <= 5 ORDER BY heard_ms LIMIT 9",
        "SELECT record FROM fleet_workers WHERE look_ms <= 5 ORDER BY look_ms LIMIT 9",
        "SELECT record FROM fleet_leases WHERE ended_ms = 0 AND due_ms <= 5 ORDER BY due_ms LIMIT 9",
    ):
        plan: list[tuple[Any, ...]] = store.read("EXPLAIN QUERY PLAN " + sql)
        assert all("USING INDEX" in str(row[3]) for row in plan), plan


@pytest.mark.promise("P-worker-once")
async def test_open_leases_are_found_without_a_look_at_those_that_ended(store: SqliteStore) -> None:
    asked: list[tuple[str, Any]] = []

    class Watched:
        transact = store.transact

        def read(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
            asked.append((sql, params))
            return store.read(sql, params)

    ledger = SqliteFleet(Watched(), WorkerFleetManager(POLICY))
    assert ledger.leases() == ledger.leases("w") == ledger.leases("w", before="x") == ledger.holders() == []
    assert ledger.open_leases() == 0
    leases = [one for one in asked if "fleet_leases" in one[0]]
    assert len(leases) == 4
    for sql, params in leases:
        plan = store.read("EXPLAIN QUERY PLAN " + sql, params)
        assert "fleet_leases_open" in str(plan[0][3]), plan


async def test_records_are_stored_whole(store: SqliteStore, harness: JournalHarness, peers: FleetPeers) -> None:
    ledger = SqliteFleet(store, WorkerFleetManager(POLICY))
    worker = await peers.ready(ledger, now_ms=harness.clock.now)
    assert ledger.worker(WORKER) == worker
    assert msgspec.structs.asdict(worker)["attested"].capabilities == {"tier.b", "tier.c"}
