"""A device pairs: with the daemon's own bootstrap listener, and with kills between the steps."""

import asyncio
from pathlib import Path

import pytest

from fakes.pairing_harness import NODE_PORT, OPERATOR, PairingHarness
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import AlreadyPaired, DeviceRecord, NotPaired
from palyra.devicelink.agent.joining import Joining, PairingNotGranted
from palyra.devicelink.pairing.code import DeviceFacts, PairingCode
from palyra.identity.device import DeviceKind
from palyra.nodes.agent.note_folder import DeviceFolder


class Joiner:
    def __init__(self, root: Path) -> None:
        self.folder = DeviceFolder(StateDir.open(root))
        self.shown: asyncio.Queue[str] = asyncio.Queue()

    def join(self, code: PairingCode | None, harness: PairingHarness) -> "asyncio.Task[DeviceRecord]":
        joining = Joining(
            self.folder,
            kind=DeviceKind.NODE,
            facts=DeviceFacts(name="bench"),
            show_comparison=lambda digits, _: self.shown.put_nowait(digits),
            draw=lambda: 0.0,
        )
        return asyncio.create_task(joining.join(code, [harness.address]))


async def test_a_device_is_paired_once_and_a_kill_before_the_decision_loses_nothing(tmp_path: Path) -> None:
    async with PairingHarness(tmp_path / "daemon").running() as harness:
        _, code = await harness.code()
        first = Joiner(tmp_path / "node")
        killed = first.join(code, harness)
        digits = await asyncio.wait_for(first.shown.get(), 30)
        killed.cancel()
        await asyncio.wait([killed])
        (request,) = await harness.pairing.pairings()
        assert request.comparison_code == digits
        await harness.pairing.approve(request.id, actor=OPERATOR)
        # The next life needs no code; with the code it finds the same request, by its key.
        record = await asyncio.wait_for(Joiner(tmp_path / "node").join(None, harness), 30)
        assert record.paired and record.device_id == request.device_id and record.generation == 1
        assert record.servers == (f"127.0.0.1:{NODE_PORT}",) and record.pairing == {} and not record.pending_key_pem
        again = Joiner(tmp_path / "node")
        assert await again.join(None, harness) == record
        with pytest.raises(AlreadyPaired):
            await again.join(code, harness)


async def test_a_no_leaves_nothing_behind(tmp_path: Path) -> None:
    async with PairingHarness(tmp_path / "daemon").running() as harness:
        _, code = await harness.code("qr")
        joiner = Joiner(tmp_path / "node")
        waiting = joiner.join(code, harness)
        await asyncio.wait_for(joiner.shown.get(), 30)
        (request,) = await harness.pairing.pairings()
        await harness.pairing.reject(request.id, reason="no", actor=OPERATOR)
        with pytest.raises(PairingNotGranted):
            await asyncio.wait_for(waiting, 30)
        assert joiner.folder.load() is None
        with pytest.raises(NotPaired):
            await joiner.join(None, harness)


async def test_without_a_code_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    async with PairingHarness(tmp_path / "daemon").running() as harness:
        with pytest.raises(NotPaired):
            await Joiner(tmp_path / "node").join(None, harness)
