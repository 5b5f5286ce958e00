"""The real agent and the daemon's real side, with a line between them that loses the offer of a lease on its way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.lossy_relay import LossyRelay, lossy_relay
from fakes.worker_house import PATIENCE, WorkerHouse, open_house
from fakes.worker_scene import WorkerScene
from palyra.daemon.settings import Settings
from palyra.devicelink import limits as device_limits
from palyra.fleet.domain.lease import LeaseState
from palyra.fleet.domain.lease_request import LeaseLost
from palyra.identity.device import DeviceKind


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[WorkerHouse]:
    (tmp_path / "daemon").mkdir(mode=0o700)
    async with asyncio.timeout(4 * PATIENCE), open_house(tmp_path / "daemon") as opened:
        yield opened


@pytest.fixture
async def relay(house: WorkerHouse) -> AsyncIterator[LossyRelay]:
    async with lossy_relay(house.port) as opened:
        yield opened


@pytest.fixture
async def machine(
    house: WorkerHouse, relay: LossyRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WorkerScene]:
    monkeypatch.setattr(device_limits, "FIRST_DELAY_MS", 50)
    device = await house.nodes.pair("a worker", DeviceKind.WORKER)
    daemon: Any = SimpleNamespace(port=relay.port, scene=house.nodes)
    scene = WorkerScene(daemon, tmp_path / "machine", device, Settings())
    async with scene.running():
        await available(house, scene)
        yield scene


async def available(house: WorkerHouse, machine: WorkerScene) -> None:
    def is_it() -> bool:
        known = {one.worker_id: one for one in house.parts.ledger.workers()}
        worker = known.get(machine.worker_id)
        return worker is not None and worker.state.value == "available" and not worker.owes

    await eventually(is_it)


async def lost_offer(house: WorkerHouse, relay: LossyRelay, machine: WorkerScene) -> "tuple[str, asyncio.Task[Any]]":
    """The ledger has the lease, its offer has left the daemon, and the line is cut before it arrived."""
    relay.losing = True
    call = house.call(idempotent=False, call_id="01LOST")
    await eventually(lambda: house.parts.ledger.worker(machine.worker_id).open_leases)
    (lease_id,) = house.parts.ledger.worker(machine.worker_id).open_leases
    await eventually(lambda: relay.lost_bytes)
    relay.cut()
    await eventually(lambda: house.parts.desk.session(machine.worker_id) is None)
    return lease_id, call


@pytest.mark.promise("P-worker-quarantine")
async def test_a_worker_whose_lease_was_lost_on_the_way_and_fenced_comes_back_and_works(
    house: WorkerHouse, relay: LossyRelay, machine: WorkerScene
) -> None:
    lease_id, call = await lost_offer(house, relay, machine)
    house.clock.ahead_ms += house.settings.policy().heartbeat_timeout_ms + 1_000
    with pytest.raises(LeaseLost):
        await call
    assert house.parts.ledger.worker(machine.worker_id).owes == (lease_id,)
    relay.mend()
    await available(house, machine)
    assert [one["lease_id"] for one in house.events("lease.disclaimed")] == [lease_id]
    assert not house.events("worker.quarantined")
    report = await house.call(call_id="01NEXT")
    assert report.settled.result == {"text": "hi"} and report.lease.worker_id == machine.worker_id
    # What was lost stays lost: nothing of it was begun, here or elsewhere.
    assert house.parts.ledger.lease(lease_id).state is LeaseState.FENCED
    assert len(house.events("lease.granted")) == 2 and len(house.events("lease.settled")) == 1


async def test_it_comes_back_to_another_life_of_the_daemon_as_well(
    house: WorkerHouse, relay: LossyRelay, machine: WorkerScene
) -> None:
    lease_id, call = await lost_offer(house, relay, machine)
    await house.close()
    call.cancel()
    house.clock.ahead_ms += house.settings.policy().heartbeat_timeout_ms + 1_000
    await house.open()
    await eventually(lambda: house.parts.ledger.lease(lease_id).state is LeaseState.FENCED)
    relay.daemon_port = house.port
    relay.mend()
    await available(house, machine)
    assert [one["lease_id"] for one in house.events("lease.disclaimed")] == [lease_id]
    assert not house.events("worker.quarantined")


async def test_a_worker_that_restarted_meanwhile_is_quarantined(
    house: WorkerHouse, relay: LossyRelay, machine: WorkerScene
) -> None:
    lease_id, call = await lost_offer(house, relay, machine)
    house.clock.ahead_ms += house.settings.policy().heartbeat_timeout_ms + 1_000
    with pytest.raises(LeaseLost):
        await call
    machine.agent.stop()
    await machine.life
    relay.mend()
    async with machine.running():
        await eventually(lambda: house.parts.ledger.worker(machine.worker_id).reason == "worker.crashed")
    assert not house.events("lease.disclaimed") and not house.parts.ledger.lease(lease_id).disclaimed_ms
