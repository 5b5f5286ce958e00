"""Clocks that are set back, authorities that change in the middle, disks that fill up: what is left is in order."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.identity_house import DAY_SECONDS, IdentityHouse
from fakes.node_house import NodeHouse, node_record
from fakes.pairing_scene import OPERATOR, Device, PairingScene
from palyra.devicelink.pairing.proof import WrongServer
from palyra.errors import PalyraError
from palyra.nodes.store.file import DurableFolder, StateFileUnusable
from palyra.nodes.store.port import NodeUnit

pytestmark = pytest.mark.promise("P-device-recovers")

HOURS = 3_600


async def test_a_server_whose_clock_is_set_back_shows_a_certificate_that_is_valid_then(tmp_path: Path) -> None:
    house = IdentityHouse(tmp_path)
    manager = house.manager()
    house.clock.forward(10 * DAY_SECONDS)
    await manager.open()
    house.clock.forward(DAY_SECONDS)
    shown = manager.server_certificate()
    house.clock.forward(-5 * HOURS)
    again = manager.server_certificate()
    assert again.fingerprint != shown.fingerprint
    assert again.not_before_ms <= house.clock.now_ms() < again.not_after_ms
    house.close()


@pytest.mark.parametrize("method", ["pin", "qr"])
@pytest.mark.parametrize("moment", ["before begin", "between begin and finish", "before the answer"])
async def test_an_authority_that_is_replaced_in_the_middle_of_a_pairing(
    tmp_path: Path, method: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no device yet the old authority is over at once. Who proved a code to it is not led to another without a new
    proof: the device says that this is another server, proves a code again, and finds its own request."""
    async with PairingScene(tmp_path / "daemon").running() as scene:
        _, code = await scene.code(method)
        device = Device(scene.address)
        if moment == "before begin":
            await scene.identity.rotate_authority(actor=OPERATOR)
        if moment == "between begin and finish":
            finish = scene.door.finish

            async def late(*given: Any) -> Any:
                await scene.identity.rotate_authority(actor=OPERATOR)
                monkeypatch.setattr(scene.door, "finish", finish)
                return await finish(*given)

            monkeypatch.setattr(scene.door, "finish", late)
        if (method, moment) == ("qr", "before begin"):
            with pytest.raises(WrongServer):
                await device.prove(code)
            _, code = await scene.code(method)
        proved = await device.prove(code)
        if moment == "before the answer":
            await scene.identity.rotate_authority(actor=OPERATOR)
        if moment != "before begin":
            with pytest.raises(WrongServer):
                await device.ask(proved)
            if method == "qr":
                # The authority is in the code itself.
                _, code = await scene.code(method)
            again = await device.prove(code)
            assert (again.pairing_id == proved.pairing_id) is (method == "pin")
            proved = again
        await scene.desk.approve(proved.pairing_id, actor=OPERATOR)
        answer = await device.ask(proved)
        assert answer.state == "completed" and answer.ca_bundle_pem == scene.identity.ca_bundle_pem()


async def test_a_change_that_is_committed_is_no_failure_though_the_file_could_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full between the commit and the last step: the change counts, here and for whoever comes next."""
    house = NodeHouse(tmp_path)
    state = await house.state()
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
    other = await house.state(house.store())
    assert names(other) == {"before", "committed"}
    assert house.events("nodes.state_recovered") == []
    house.close()


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
    async with PairingScene(small_disk / "daemon", backend=backend).running() as scene:
        _, code = await scene.code("pin")
        device = Device(scene.address)
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
        scene.clock.forward(60)
        proved = await device.prove(code)
        (request,) = await scene.desk.pairings()
        assert request.id == proved.pairing_id, "one device, one request"
        _fill(filler)
        try:
            await scene.desk.approve(proved.pairing_id, actor=OPERATOR)
        except PalyraError:
            os.unlink(filler)
            await scene.desk.approve(proved.pairing_id, actor=OPERATOR)
        filler.unlink(missing_ok=True)
        assert (await device.ask(proved)).state == "completed"
        assert len(scene.events("pairing.completed")) == 1


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
