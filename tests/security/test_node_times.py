"""Clocks that are set back, authorities that change in the middle, disks that fill up: what is left is in order."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.identity_harness import DAY_SECONDS, IdentityHarness
from fakes.node_state_harness import NodeStateHarness, node_record
from fakes.pairing_harness import OPERATOR, Device, PairingHarness
from palyra.devicelink.pairing.proof import WrongServer
from palyra.errors import PalyraError
from palyra.nodes.store.file import DurableFolder, StateFileUnusable
from palyra.nodes.store.port import NodeUnit

pytestmark = pytest.mark.promise("P-device-recovers")

HOURS = 3_600


async def test_a_server_whose_clock_is_set_back_shows_a_certificate_that_is_valid_then(tmp_path: Path) -> None:
    harness = IdentityHarness(tmp_path)
    manager = harness.manager()
    harness.clock.forward(10 * DAY_SECONDS)
    await manager.open()
    harness.clock.forward(DAY_SECONDS)
    shown = manager.server_certificate()
    harness.clock.forward(-5 * HOURS)
    again = manager.server_certificate()
    assert again.fingerprint != shown.fingerprint
    assert again.not_before_ms <= harness.clock.now_ms() < again.not_after_ms
    harness.close()


@pytest.mark.parametrize("method", ["pin", "qr"])
@pytest.mark.parametrize("moment", ["before begin", "between begin and finish", "before the answer"])
async def test_an_authority_that_is_replaced_in_the_middle_of_a_pairing(
    tmp_path: Path, method: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no device yet the old authority is over at once. Who proved a code to it is not led to another without a new
    proof: the device says that this is another server, proves a code again, and finds its own request."""
    async with PairingHarness(tmp_path / "daemon").running() as peers:
        _, code = await peers.code(method)
        device = Device(peers.address)
        if moment == "before begin":
            await peers.identity.rotate_authority(actor=OPERATOR)
        if moment == "between begin and finish":
            finish = peers.service.finish

            async def late(*given: Any) -> Any:
                await peers.identity.rotate_authority(actor=OPERATOR)
                monkeypatch.setattr(peers.service, "finish", finish)
                return await finish(*given)

            monkeypatch.setattr(peers.service, "finish", late)
        if (method, moment) == ("qr", "before begin"):
            with pytest.raises(WrongServer):
                await device.prove(code)
            _, code = await peers.code(method)
        proved = await device.prove(code)
        if moment == "before the answer":
            await peers.identity.rotate_authority(actor=OPERATOR)
        if moment != "before begin":
            with pytest.raises(WrongServer):
                await device.ask(proved)
            if method == "qr":
                # The authority is in the code itself.
                _, code = await peers.code(method)
            again = await device.prove(code)
            assert (again.pairing_id == proved.pairing_id) is (method == "pin")
            proved = again
        await peers.pairing.approve(proved.pairing_id, actor=OPERATOR)
        answer = await device.ask(proved)
        assert answer.state == "completed" and answer.ca_bundle_pem == peers.identity.ca_bundle_pem()


async def test_a_change_that_is_committed_is_no_failure_though_the_file_could_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full between the commit and the last step: the change counts, here and for whoever comes next."""
    harness = NodeStateHarness(tmp_path)
    state = await harness.state()
    await state.transact(lambda unit: unit.nodes.put(node_record(name="before")))
    replace = DurableFolder.replace

    def full(folder: DurableFolder, name: str, staged: str, **options: Any) -> None:
        if (folder.path / staged).exists():
            raise StateFileUnusable("cannot replace: No space left on device")
        replace(folder, name, staged, **options)

    with monkeypatch.context() as patched:
        patched.setattr(DurableFolder, "replace", full)
        await state.transact(lambda unit: unit.nodes.put(node_record(name="committed")))
        assert names(state) == {"before", "committed"}
    other = await harness.state(harness.store())
    assert names(other) == {"before", "committed"}
    assert harness.events("nodes.state_recovered") == []
    harness.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("backend", ["file", "sql"])
async def test_pairing_on_a_disk_that_is_full_is_refused_and_goes_on_when_there_is_room(
    small_disk: Path, backend: str
) -> None:
    async with PairingHarness(small_disk / "daemon", backend=backend).running() as peers:
        _, code = await peers.code("pin")
        device = Device(peers.address)
        filler = small_disk / "filler"
        _fill(filler)
        refused = 0
        proved = None
        for _ in range(5):
            try:
                proved = await device.prove(code)
            except PalyraError:
                refused += 1
        assert refused or proved is not None
        os.unlink(filler)
        peers.clock.forward(60)
        proved = await device.prove(code)
        (request,) = await peers.pairing.pairings()
        assert request.id == proved.pairing_id, "one device, one request"
        _fill(filler)
        try:
            await peers.pairing.approve(proved.pairing_id, actor=OPERATOR)
        except PalyraError:
            os.unlink(filler)
            await peers.pairing.approve(proved.pairing_id, actor=OPERATOR)
        filler.unlink(missing_ok=True)
        assert (await device.ask(proved)).state == "completed"
        assert len(peers.events("pairing.completed")) == 1


def _fill(filler: Path) -> None:
    with open(filler, "wb", buffering=0) as file:
        for size in (65_536, 1):
            try:
                while True:
                    file.write(b"\\0" * size)
            except OSError:
                continue


def names(state: Any) -> set[str]:
    def look(unit: NodeUnit) -> set[str]:
        return {node.name for node in unit.nodes.list()}

    found: set[str] = state.read(look)
    return found
