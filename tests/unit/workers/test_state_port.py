from pathlib import Path

from fakes.fleet_scene import POLICY
from fakes.journal_house import JournalHouse, StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.workers.fleet import WorkerFleetManager
from palyra.workers.sqlite_fleet import SqliteFleet
from palyra.workers.sqlite_schema import SCHEMA
from palyra.workers.state_port import FleetLedger, Store


def test_both_ledgers_are_ledgers_and_the_journals_store_is_a_store(tmp_path: Path) -> None:
    manager = WorkerFleetManager(POLICY)
    opened = JournalHouse(tmp_path).open(schema=SCHEMA)
    store: Store = opened
    ledgers: list[FleetLedger] = [SqliteFleet(store, manager), MemoryFleet(StillClock(), manager)]
    assert [ledger.workers() for ledger in ledgers] == [[], []]
    opened.close()
