"""palyra-workerd joined: its folder tells, it runs on it alone, and leaves it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.worker_agent_harness import worker_agent_harness
from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.daemon.worker_agent import WorkerHost, leave, open_folder, status_of
from palyra.devicelink.agent.device_folder import DaemonUnreachable, HostRunning, NotPaired


async def test_a_machine_that_joined_nothing_says_so(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "machine")
    assert status_of(state) == {"joined": False, "running": False}
    with pytest.raises(NotPaired):
        await WorkerHost(Settings(), state, lambda _: None).run()
    with pytest.raises(NotPaired):
        await leave(state, forget_only=False)


async def test_it_runs_alone_on_its_folder_until_a_signal_and_its_status_is_seen(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        said: list[str] = []
        life = asyncio.create_task(WorkerHost(Settings(), harness.state, said.append).run())
        await harness.fleet.until(lambda: harness.fleet.attestation_answers)
        await eventually(lambda: status_of(harness.state).get("state") == "online")
        shown = status_of(harness.state)
        assert shown["running"] and shown["worker_id"] == harness.worker_id and shown["open_leases"] == []
        with pytest.raises(HostRunning):
            await WorkerHost(Settings(), harness.state, said.append).run()
        os.kill(os.getpid(), signal.SIGTERM)
        end = await asyncio.wait_for(life, 30)
        assert end.code == "" and status_of(harness.state)["state"] == "stopped"
        assert any("no egress proxy" in line for line in said)


async def test_it_leaves_at_the_daemon_and_then_here_or_only_here(tmp_path: Path) -> None:
    async with worker_agent_harness(tmp_path) as harness:
        record = harness.record()
        await harness.fleet.stop_listening()
        with pytest.raises(DaemonUnreachable):
            await leave(harness.state, forget_only=False)
        assert harness.record() == record, "nothing is forgotten before the daemon knows"
        await harness.fleet.listen()
        assert await leave(harness.state, forget_only=False) == {"left": True, "told_daemon": True}
        assert harness.fleet.left == [harness.worker_id] and open_folder(harness.state).load() is None
        harness.pairing.save(record)
        assert await leave(harness.state, forget_only=True) == {"left": True, "told_daemon": False}
        assert open_folder(harness.state).load() is None
