from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.identity_harness import ACTOR
from fakes.node_server_harness import ECHO, PRINT, NodeServerHarness, node_of, open_harness
from fakes.node_state_harness import node_record
from palyra.identity.device import DeviceId
from palyra.nodes.domain.capability import UnknownDevice
from palyra.nodes.server.paired_devices import Registration


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[NodeServerHarness]:
    async with open_harness(tmp_path) as opened:
        yield opened


def registration(*capabilities: object, platform: str = "linux") -> Registration:
    return Registration(platform=platform, software_version="1", capabilities=capabilities or (ECHO,))  # type: ignore[arg-type]


async def test_a_registration_keeps_the_name_and_writes_only_news(harness: NodeServerHarness) -> None:
    device = await harness.pair("approved name")
    first = await harness.paired.register(device.device_id, registration(ECHO, PRINT))
    assert first.name == "approved name" and first.registered_ms and first.platform == "linux"
    for _ in range(3):
        assert await harness.paired.register(device.device_id, registration(PRINT, ECHO)) == first
    assert len(harness.events("node.registered")) == 1
    await harness.paired.register(device.device_id, registration(platform="x\x1b" * 99))
    node = node_of(harness, device)
    assert len(node.platform) <= 64 and "\x1b" not in node.platform
    with pytest.raises(UnknownDevice):
        await harness.paired.register(DeviceId.new(), registration())


async def test_who_was_paired_or_revoked_a_moment_ago_counts_as_such(harness: NodeServerHarness) -> None:
    device_id = DeviceId.new()
    assert not harness.paired.is_paired(device_id)
    await harness.state.transact(lambda unit: unit.nodes.put(node_record(id=device_id)))
    assert harness.paired.is_paired(device_id)
    await harness.paired.note_revoked(device_id, reason="x", actor=ACTOR)
    assert not harness.paired.is_paired(device_id)


async def test_a_revocation_is_noted_once(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    await harness.paired.revoke(device.device_id, reason="lost\nit", actor=ACTOR)
    await harness.paired.note_revoked(device.device_id, reason="again", actor=ACTOR)
    assert [one["reason"] for one in harness.events("node.revoked")] == ["lost it"]
    assert harness.paired.find(device.device_id).revoked_reason == "lost it"
    with pytest.raises(UnknownDevice):
        harness.paired.find("a laptop")
    with pytest.raises(UnknownDevice):
        await harness.paired.note_revoked(DeviceId.new(), reason="", actor=ACTOR)


async def test_a_view_says_whether_it_is_there(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    assert harness.paired.view(node_of(harness, device))["state"] == "offline"
    await device.online()
    shown = harness.paired.view(node_of(harness, device), requests=True)
    assert (shown["state"], shown["certificate_generation"], shown["requests"]) == ("online", 1, [])
    assert shown["connected_since"] and [one["name"] for one in shown["capabilities"]] == ["echo", "print"]
    assert harness.paired.online() == [device.device_id]
    await device.close()
