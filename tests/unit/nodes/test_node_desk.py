from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.identity_house import ACTOR
from fakes.node_house import node_record
from fakes.node_scene import ECHO, PRINT, NodeScene, node_of, open_scene
from palyra.identity.device import DeviceId
from palyra.nodes.domain.capability import UnknownDevice
from palyra.nodes.server.node_service import Registration


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[NodeScene]:
    async with open_scene(tmp_path) as opened:
        yield opened


def told(*capabilities: object, platform: str = "linux") -> Registration:
    return Registration(platform=platform, software_version="1", capabilities=capabilities or (ECHO,))  # type: ignore[arg-type]


async def test_a_registration_keeps_the_name_and_writes_only_news(scene: NodeScene) -> None:
    device = await scene.pair("approved name")
    first = await scene.desk.register(device.device_id, told(ECHO, PRINT))
    assert first.name == "approved name" and first.registered_ms and first.platform == "linux"
    for _ in range(3):
        assert await scene.desk.register(device.device_id, told(PRINT, ECHO)) == first
    assert len(scene.events("node.registered")) == 1
    await scene.desk.register(device.device_id, told(platform="x\x1b" * 99))
    node = node_of(scene, device)
    assert len(node.platform) <= 64 and "\x1b" not in node.platform
    with pytest.raises(UnknownDevice):
        await scene.desk.register(DeviceId.new(), told())


async def test_who_was_paired_or_revoked_a_moment_ago_counts_as_such(scene: NodeScene) -> None:
    device_id = DeviceId.new()
    assert not scene.desk.is_paired(device_id)
    await scene.state.transact(lambda unit: unit.nodes.put(node_record(id=device_id)))
    assert scene.desk.is_paired(device_id)
    await scene.desk.note_revoked(device_id, reason="x", actor=ACTOR)
    assert not scene.desk.is_paired(device_id)


async def test_a_revocation_is_noted_once(scene: NodeScene) -> None:
    device = await scene.pair()
    await scene.desk.revoke(device.device_id, reason="lost\nit", actor=ACTOR)
    await scene.desk.note_revoked(device.device_id, reason="again", actor=ACTOR)
    assert [one["reason"] for one in scene.events("node.revoked")] == ["lost it"]
    assert scene.desk.find(device.device_id).revoked_reason == "lost it"
    with pytest.raises(UnknownDevice):
        scene.desk.find("a laptop")
    with pytest.raises(UnknownDevice):
        await scene.desk.note_revoked(DeviceId.new(), reason="", actor=ACTOR)


async def test_a_view_says_whether_it_is_there(scene: NodeScene) -> None:
    device = await scene.pair()
    assert scene.desk.view(node_of(scene, device))["state"] == "offline"
    await device.online()
    shown = scene.desk.view(node_of(scene, device), requests=True)
    assert (shown["state"], shown["certificate_generation"], shown["requests"]) == ("online", 1, [])
    assert shown["connected_since"] and [one["name"] for one in shown["capabilities"]] == ["echo", "print"]
    assert scene.desk.online() == [device.device_id]
    await device.close()
