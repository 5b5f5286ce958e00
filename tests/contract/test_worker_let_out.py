"""The real agent and the daemon's real side: a worker that is let out of quarantine while it still works."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fakes.eventually import eventually
from fakes.fleet_server_harness import PATIENCE, SETTINGS, FleetServerHarness, open_harness
from fakes.lossy_relay import LossyRelay, lossy_relay
from fakes.worker_agent_harness import WorkerAgentHarness
from palyra.canonical import canonical_json, digest_of
from palyra.daemon.settings import Settings
from palyra.devicelink import limits as device_limits
from palyra.fleet.domain import commands
from palyra.fleet.domain.lease import LeaseLost, LeaseState
from palyra.identity.device import DeviceKind

LONG = {"seconds": 600}
SLEEP = {
    "tool": "sleep",
    "arguments_json": canonical_json(LONG),
    "argument_digest": digest_of(LONG),
    "needs": frozenset(("tool.sleep",)),
    "idempotent": False,
}
# It counts its workspaces for the daemon as soon as it is welcome.
OFTEN = msgspec.structs.replace(SETTINGS, heartbeat_seconds=0.2)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[FleetServerHarness]:
    (tmp_path / "daemon").mkdir(mode=0o700)
    async with asyncio.timeout(4 * PATIENCE), open_harness(tmp_path / "daemon", OFTEN) as opened:
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
        await eventually(lambda: is_available(harness, peers))
        yield peers


def is_available(harness: FleetServerHarness, machine: WorkerAgentHarness) -> bool:
    known = {one.worker_id: one for one in harness.parts.ledger.workers()}
    return machine.worker_id in known and known[machine.worker_id].state.value == "available"


async def quarantined_at_work(
    harness: FleetServerHarness, machine: WorkerAgentHarness, leases: int, before: Callable[[], None] = lambda: None
) -> list[str]:
    """The ids of the leases at which the worker works on, whatever the daemon has decided."""
    calls = [harness.call(**SLEEP, call_id=f"01CALL{number}") for number in range(leases)]
    await eventually(lambda: len(machine.scratch_names()) == leases)
    before()
    odd = commands.QuarantineWorker(actor="operator", worker_id=machine.worker_id, reason="looks odd")
    await harness.parts.decide(odd)
    for call in calls:
        with pytest.raises(LeaseLost):
            await call
    return machine.scratch_names()


async def comes_back_clean(harness: FleetServerHarness, machine: WorkerAgentHarness, leases: list[str]) -> None:
    await eventually(lambda: is_available(harness, machine))
    await eventually(lambda: not harness.parts.ledger.worker(machine.worker_id).written_off)
    assert machine.scratch_names() == []
    refused = [one["lease_id"] for one in harness.events("lease.result_refused") if one["code"] == "lease.fenced"]
    assert sorted(refused) == leases
    report = await harness.call(call_id="01NEXT")
    assert report.settled.result == {"text": "hi"} and report.lease.worker_id == machine.worker_id
    assert [one["reason"] for one in harness.events("worker.quarantined")] == ["looks odd"]
    assert {harness.parts.ledger.lease(one).state for one in leases} == {LeaseState.FENCED}


def release(machine: WorkerAgentHarness) -> commands.ReleaseWorker:
    return commands.ReleaseWorker(actor="operator", worker_id=machine.worker_id)


@pytest.mark.promise("P-worker-quarantine")
async def test_a_worker_that_is_let_out_before_it_heard_of_its_quarantine_cleans_up_and_works_on(
    harness: FleetServerHarness, machine: WorkerAgentHarness
) -> None:
    leases = await quarantined_at_work(harness, machine, 2)
    await harness.parts.decide(release(machine))
    await comes_back_clean(harness, machine, leases)


async def test_one_whose_line_was_broken_meanwhile_does_too_in_another_life_of_the_daemon(
    harness: FleetServerHarness, relay: LossyRelay, machine: WorkerAgentHarness
) -> None:
    leases = await quarantined_at_work(harness, machine, 1, before=relay.cut)
    await harness.parts.decide(release(machine))
    await harness.restart()
    relay.daemon_port = harness.port
    relay.mend()
    await comes_back_clean(harness, machine, leases)
