import pytest

from fakes.fleet_peers import FleetPeers
from fakes.journal_harness import StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.fleet.domain.manager import WorkerFleetManager


@pytest.fixture
def peers() -> FleetPeers:
    return FleetPeers()


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def ledger(clock: StillClock, peers: FleetPeers) -> MemoryFleet:
    return MemoryFleet(clock, WorkerFleetManager(peers.policy))
