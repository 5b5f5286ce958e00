import pytest

from fakes.fleet_scene import FleetScene
from fakes.journal_house import StillClock
from fakes.memory_fleet import MemoryFleet
from palyra.fleet.domain.manager import WorkerFleetManager


@pytest.fixture
def scene() -> FleetScene:
    return FleetScene()


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def ledger(clock: StillClock, scene: FleetScene) -> MemoryFleet:
    return MemoryFleet(clock, WorkerFleetManager(scene.policy))
