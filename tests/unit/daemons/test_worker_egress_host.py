"""The process joined: its one worker is kept, its status is told, and it ends rather than half work."""

import asyncio
from pathlib import Path

import pytest

from fakes.egress_fleet import egress_fleet
from palyra.config.state_dir import StateDir
from palyra.daemons.worker_egress_host import EgressHost, EgressHostOptions, WorkerPin, open_folder, status_of
from palyra.nodes.device.errors import HostRunning, NotPaired
from palyra.workers.egress.policy import WorkerEgressPolicy


def options(folder: Path) -> EgressHostOptions:
    return EgressHostOptions(socket=folder / "s", policy=WorkerEgressPolicy(), worker_uids=frozenset((0,)))


def test_the_first_worker_is_the_one_for_good(tmp_path: Path) -> None:
    folder = open_folder(StateDir.open(tmp_path / "state"))
    pin = WorkerPin(folder)
    assert not pin("") and pin.worker_id == ""
    assert pin("w1") and pin("w1") and not pin("w2") and not pin("")
    again = WorkerPin(folder)
    assert again.worker_id == "w1" and not again("w2")
    # What the operator says counts for more than what was seen first.
    assert WorkerPin(folder, "w3")("w3") and not WorkerPin(folder, "w3")("w1")


async def test_it_does_not_run_unpaired(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    assert status_of(state) == {"paired": False, "running": False}
    with pytest.raises(NotPaired):
        await EgressHost(state, lambda _: None).serve(options(tmp_path), asyncio.Event())


async def test_it_says_what_it_is_and_stops_when_told(tmp_path: Path) -> None:
    async with egress_fleet(tmp_path, WorkerEgressPolicy()) as fleet:
        device = await fleet.pair()
        state = StateDir.open(fleet.install(device))
        told: list[str] = []
        stopping = asyncio.Event()

        def say(text: str) -> None:
            told.append(text)
            stopping.set()

        await asyncio.wait_for(EgressHost(state, say).serve(options(tmp_path), stopping), 60)
        assert str(device.device_id) in told[0] and WorkerEgressPolicy().digest() in told[0]
        status = status_of(state)
        assert status["egress_id"] == device.device_id and not status["running"] and status["worker_id"] == ""
        folder = open_folder(state)
        folder.lock()
        assert status_of(state)["running"]
        with pytest.raises(HostRunning):
            await EgressHost(state, say).run(options(tmp_path))
        folder.unlock()
        assert (state.root / "egress").stat().st_mode & 0o777 == 0o700
        for file in (state.root / "egress").iterdir():
            assert file.stat().st_mode & 0o077 == 0, file
