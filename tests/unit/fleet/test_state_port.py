from pathlib import Path

from fakes.fleet_peers import POLICY
from fakes.journal_harness import JournalHarness, StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.fleet.domain.manager import WorkerFleetManager
from palyra.fleet.store.fleet_tables import SqliteFleet
from palyra.fleet.store.port import FleetLedger
from palyra.fleet.store.schema import SCHEMA
from palyra.store.port import Store


def test_both_ledgers_are_ledgers_and_the_journals_store_is_a_store(tmp_path: Path) -> None:
    manager = WorkerFleetManager(POLICY)
    opened = JournalHarness(tmp_path).open(schema=SCHEMA)
    store: Store = opened
    ledgers: list[FleetLedger] = [SqliteFleet(store, manager), MemoryFleet(StillClock(), manager)]
    assert [ledger.workers() for ledger in ledgers] == [[], []]
    opened.close()
