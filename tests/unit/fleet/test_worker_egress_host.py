"""The process joined: its one worker is kept, its status is printed, and it ends rather than half work."""

import asyncio
from pathlib import Path

import pytest
from cryptography import x509

from fakes.egress_fleet import egress_fleet
from fakes.pairing_harness import OPERATOR, PairingHarness
from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import HostRunning, NotPaired
from palyra.devicelink.agent.joining import WrongKind
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.process import EgressHost, EgressHostOptions, open_folder, status_of
from palyra.fleet.egress.proxy import WorkerPin


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
        lines: list[str] = []
        stopping = asyncio.Event()

        def say(text: str) -> None:
            lines.append(text)
            stopping.set()

        await asyncio.wait_for(EgressHost(state, say).serve(options(tmp_path), stopping), 60)
        assert str(device.device_id) in lines[0] and WorkerEgressPolicy().digest() in lines[0]
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


async def test_it_pairs_by_a_code_of_its_own_kind(tmp_path: Path) -> None:
    async with PairingHarness(tmp_path / "daemon").running() as harness:
        state = StateDir.open(tmp_path / "proxy")
        lines: asyncio.Queue[str] = asyncio.Queue()
        host = EgressHost(state, lines.put_nowait)
        _, other = await harness.code("qr", "worker")
        with pytest.raises(WrongKind):
            await host.join(other, [harness.address])
        _, code = await harness.code("pin", "egress")
        joining = asyncio.create_task(host.join(code, [harness.address]))
        shown = await asyncio.wait_for(lines.get(), 60)
        (request,) = await harness.pairing.pairings()
        assert request.comparison_code in shown
        await harness.pairing.approve(request.id, actor=OPERATOR)
        record = await asyncio.wait_for(joining, 60)
        assert record.paired and status_of(state)["egress_id"] == record.device_id
        names = x509.load_pem_x509_certificate(record.certificate_pem.encode()).extensions
        (uri,) = names.get_extension_for_class(x509.SubjectAlternativeName).value
        assert uri.value.endswith(f"/egress/{record.device_id}")
