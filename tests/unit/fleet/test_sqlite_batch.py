"""Many commands in one transaction: decided and written as if one after the other, with few statements."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import POLICY, FleetPeers, numbered
from fakes.journal_harness import JournalHarness, StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.fleet.domain import commands
from palyra.fleet.domain.commands import ChangedMeanwhile
from palyra.fleet.domain.lease import LeaseState
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.fleet.store.fleet_tables import SIZES, SqliteBatch, SqliteFleet, chunks
from palyra.fleet.store.port import Beat
from palyra.fleet.store.schema import SCHEMA

WORKERS = [numbered(number + 1) for number in range(23)]
MANAGER = WorkerFleetManager(msgspec.structs.replace(POLICY, max_workers=len(WORKERS) - 1))


class StoppedClock(StillClock):
    """Both ledgers read it, and each the same."""

    def now_ms(self) -> int:
        return self.now


class Both:
    """The ledger in SQL and the one in memory, told the same."""

    def __init__(self, folder: Path) -> None:
        self.clock = StoppedClock()
        self.peers = FleetPeers(MANAGER.policy)
        harness = JournalHarness(folder)
        self.store = harness.open(schema=SCHEMA, clock=self.clock)
        self.sqlite = SqliteFleet(self.store, MANAGER)
        self.memory = MemoryFleet(self.clock, MANAGER)

    async def decide_all(self, these: Sequence[commands.FleetCommand]) -> list[Any]:
        decisions = await self.sqlite.decide_all(these)
        others = await self.memory.decide_all(these)
        codes = [[one.refusal and one.refusal.code for one in each] for each in (decisions, others)]
        assert codes[0] == codes[1]
        assert self.everything(self.sqlite) == self.everything(self.memory)
        return decisions

    def everything(self, ledger: Any) -> Any:
        return ledger.workers(), ledger.leases(only_open=False), ledger.counts(), ledger.holders()

    async def attested(self) -> list[Any]:
        await self.decide_all([self.peers.open_session(worker_id) for worker_id in WORKERS])
        known = self.sqlite.workers()
        await self.decide_all([self.peers.present(worker, self.clock.now) for worker in known])
        return known

    def lease(self, worker_id: str) -> commands.LeaseWork:
        grant = self.peers.grant(self.clock.now)
        return msgspec.structs.replace(self.peers.lease(worker_id, grant), grant=grant)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    yield made
    made.store.close()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 15, 16, 17, 37])
def test_chunks_have_every_item_once_and_known_sizes(count: int) -> None:
    parts = list(chunks(range(count)))
    assert [one for part in parts for one in part] == list(range(count))
    assert {len(part) for part in parts} <= set(SIZES)


async def test_a_batch_is_what_its_commands_are_one_after_the_other(both: Both) -> None:
    known = await both.attested()
    assert len(known) == len(WORKERS) - 1, "the last one does not fit any more, and the batch says so"
    begun = [both.lease(worker.worker_id) for worker in known for _ in range(3)]
    decisions = await both.decide_all(begun)
    leases = [one.leases[0].lease for one in decisions if one.refusal is None]
    assert len(leases) == 2 * len(known), "two for each: the third finds no room"
    assert [one.fence for one in leases] == sorted({one.fence for one in leases})
    ends = [both.peers.settle(lease, both.clock.now, 1) for lease in leases]
    await both.decide_all([*ends, *ends[:3]])
    assert {one.state for one in both.sqlite.leases(only_open=False)} == {LeaseState.SETTLED}
    kinds = Counter(event.kind for event in both.store.events_since(0, 10_000))
    assert kinds["lease.granted"] == kinds["lease.settled"] == len(leases)


async def test_what_is_begun_in_a_batch_can_end_in_it(both: Both) -> None:
    known = await both.attested()
    begins = both.lease(known[0].worker_id)
    cancels = commands.CancelLease(actor="palyrad", lease_id=begins.lease_id, reason="too late")
    away = commands.QuarantineWorker(actor="operator", worker_id=known[0].worker_id, reason="odd")
    again = both.peers.open_session(known[0].worker_id, named=(begins.lease_id,))
    await both.decide_all([begins, cancels, away, again, both.lease(known[0].worker_id)])
    (lease,) = both.sqlite.leases(only_open=False)
    assert lease.state is LeaseState.FENCED
    assert both.sqlite.worker(known[0].worker_id).written_off == (begins.lease_id,)


@pytest.mark.parametrize("what", ["begins", "ends"])
async def test_a_whole_batch_takes_a_few_statements(both: Both, what: str) -> None:
    known = (await both.attested())[:16]
    these: list[Any] = [both.lease(worker.worker_id) for worker in known]
    if what == "ends":
        leases = [one.leases[0].lease for one in await both.decide_all(these)]
        these = [both.peers.settle(lease, both.clock.now, 1) for lease in leases]
    said: list[str] = []

    def work(tx: Any) -> None:
        execute = tx.execute
        tx.execute = lambda sql, values=(): said.append(sql) or execute(sql, values)
        assert all(one.refusal is None for one in SqliteBatch(tx, MANAGER).decide(these))

    await both.store.transact(work)
    first_write = next(number for number, sql in enumerate(said) if "fleet_fence" not in sql and sql[0] in "IU")
    assert len(said) <= 7 and not any(sql.startswith("SELECT") for sql in said[first_write:]), said


async def test_heartbeats_of_many_are_told_apart(both: Both) -> None:
    known = await both.attested()
    both.clock.now += 1_000
    beats = [Beat(worker_id=one.worker_id, session=1 + (number == 5)) for number, one in enumerate(known)]
    beats += [Beat(worker_id="nobody", session=1), Beat(worker_id=known[0].worker_id, session=0)]
    beats[7] = msgspec.structs.replace(beats[7], workspaces=1)
    answers = [await ledger.beat(beats) for ledger in (both.sqlite, both.memory)]
    assert answers[0] == answers[1] and len(answers[0].stale) == 3 and answers[0].suspect == (beats[7],)
    assert both.everything(both.sqlite) == both.everything(both.memory)


async def test_a_rival_is_noticed_and_nothing_is_written(both: Both) -> None:
    """Nobody can get between a read and a write of one transaction; should it happen all the same, it shows."""
    known = await both.attested()
    before = both.everything(both.sqlite)

    def work(tx: Any) -> None:
        batch = SqliteBatch(tx, MANAGER)
        execute = tx.execute

        def interfering(sql: str, values: Any = ()) -> Any:
            if sql.startswith("UPDATE fleet_workers"):
                execute("UPDATE fleet_workers SET revision = revision + 1 WHERE worker_id = ?", (known[3].worker_id,))
            return execute(sql, values)

        tx.execute = interfering
        batch.decide([both.lease(worker.worker_id) for worker in known])

    with pytest.raises(ChangedMeanwhile):
        await both.store.transact(work)
    assert both.everything(both.sqlite) == before
