"""The real agent and the daemon's real side, with a line between them that loses the offer of a lease on its way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.fleet_server_harness import BUILD, PATIENCE, FleetServerHarness, open_harness
from fakes.lossy_relay import LossyRelay, lossy_relay
from fakes.worker_agent_harness import WorkerAgentHarness
from palyra.daemon.settings import Settings
from palyra.devicelink import limits as device_limits
from palyra.fleet.domain.lease import LeaseLost, LeaseState
from palyra.identity.device import DeviceKind


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[FleetServerHarness]:
    (tmp_path / "daemon").mkdir(mode=0o700)
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path / "daemon") as opened:
        yield opened


@pytest.fixture
async def relay(harness: FleetServerHarness) -> AsyncIterator[LossyRelay]:
    async with lossy_relay(harness.port) as opened:
        yield opened


@pytest.fixture
async def machine(
    harness: FleetServerHarness, relay: LossyRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WorkerAgentHarness]:
    monkeypatch.setattr(device_limits, "FIRST_DELAY_MS", 50)
    device = await harness.nodes.pair("a worker", DeviceKind.WORKER)
    daemon: Any = SimpleNamespace(port=relay.port, harness=harness.nodes)
    peers = WorkerAgentHarness(daemon, tmp_path / "machine", device, Settings())
    async with peers.running():
        await available(harness, peers)
        yield peers


async def available(harness: FleetServerHarness, machine: WorkerAgentHarness) -> None:
    def is_it() -> bool:
        known = {one.worker_id: one for one in harness.parts.ledger.workers()}
        worker = known.get(machine.worker_id)
        return worker is not None and worker.state.value == "available" and not worker.owes

    await eventually(is_it)


async def lost_offer(
    harness: FleetServerHarness, relay: LossyRelay, machine: WorkerAgentHarness
) -> "tuple[str, asyncio.Task[Any]]":
    """The ledger has the lease, its offer has left the daemon, and the line is cut before it arrived."""
    relay.losing = True
    call = harness.call(idempotent=False, call_id="01LOST")
    await eventually(lambda: harness.parts.ledger.worker(machine.worker_id).open_leases)
    (lease_id,) = harness.parts.ledger.worker(machine.worker_id).open_leases
    await eventually(lambda: relay.lost_bytes)
    relay.cut()
    await eventually(lambda: harness.parts.sessions.session(machine.worker_id) is None)
    return lease_id, call


@pytest.mark.promise("P-worker-quarantine")
async def test_a_worker_whose_lease_was_lost_on_the_way_and_fenced_comes_back_and_works(
    harness: FleetServerHarness, relay: LossyRelay, machine: WorkerAgentHarness
) -> None:
    lease_id, call = await lost_offer(harness, relay, machine)
    harness.clock.ahead_ms += harness.settings.policy(BUILD).heartbeat_timeout_ms + 1_000
    with pytest.raises(LeaseLost):
        await call
    assert harness.parts.ledger.worker(machine.worker_id).owes == (lease_id,)
    relay.mend()
    await available(harness, machine)
    assert [one["lease_id"] for one in harness.events("lease.disclaimed")] == [lease_id]
    assert not harness.events("worker.quarantined")
    report = await harness.call(call_id="01NEXT")
    assert report.settled.result == {"text": "hi"} and report.lease.worker_id == machine.worker_id
    # What was lost stays lost: nothing of it was begun, here or elsewhere.
    assert harness.parts.ledger.lease(lease_id).state is LeaseState.FENCED
    assert len(harness.events("lease.granted")) == 2 and len(harness.events("lease.settled")) == 1


async def test_it_comes_back_to_another_life_of_the_daemon_as_well(
    harness: FleetServerHarness, relay: LossyRelay, machine: WorkerAgentHarness
) -> None:
    lease_id, call = await lost_offer(harness, relay, machine)
    await harness.close()
    call.cancel()
    harness.clock.ahead_ms += harness.settings.policy(BUILD).heartbeat_timeout_ms + 1_000
    await harness.open()
    await eventually(lambda: harness.parts.ledger.lease(lease_id).state is LeaseState.FENCED)
    relay.daemon_port = harness.port
    relay.mend()
    await available(harness, machine)
    assert [one["lease_id"] for one in harness.events("lease.disclaimed")] == [lease_id]
    assert not harness.events("worker.quarantined")


async def test_a_worker_that_restarted_meanwhile_is_quarantined(
    harness: FleetServerHarness, relay: LossyRelay, machine: WorkerAgentHarness
) -> None:
    lease_id, call = await lost_offer(harness, relay, machine)
    harness.clock.ahead_ms += harness.settings.policy(BUILD).heartbeat_timeout_ms + 1_000
    with pytest.raises(LeaseLost):
        await call
    machine.agent.stop()
    await machine.life
    relay.mend()
    async with machine.running():
        await eventually(lambda: harness.parts.ledger.worker(machine.worker_id).reason == "worker.crashed")
    assert not harness.events("lease.disclaimed") and not harness.parts.ledger.lease(lease_id).disclaimed_ms
