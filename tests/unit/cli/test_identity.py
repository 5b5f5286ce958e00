import asyncio
from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in
from fakes.identity_harness import DeviceKey
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.settings import Settings
from palyra.identity.device import DeviceId, DeviceKind


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


def test_before_the_first_use_it_says_so_and_makes_nothing(cli: CommandLine) -> None:
    shown = cli("identity", "show")
    assert shown.status == 0 and "there is no authority yet" in shown.err
    assert cli("identity", "show", "--json").document["data"]["authorities"] == []
    refused = cli("identity", "rotate", "--json")
    assert (refused.status, refused.document["error"]["code"]) == (2, "identity.no_authority")


def test_devices_are_listed_and_the_authority_replaced(cli: CommandLine, tmp_path: Path) -> None:
    gateway = Gateway(Settings(), StateDir.open(cli.state_dir), tmp_path / "policies", channel="cli")
    try:
        device_id = DeviceId.new()
        asyncio.run(gateway.identity.issue(DeviceKind.WORKER, device_id, DeviceKey().csr(), actor="user:operator"))
        asyncio.run(gateway.identity.revoke(device_id, reason="left\x1b[2J behind", actor="user:operator"))
        asyncio.run(gateway.identity.issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor="user:operator"))
    finally:
        gateway.close()
    shown = cli("identity", "show")
    assert str(device_id) in shown.out and "revoked: left" in shown.out
    assert "\x1b[2J" not in shown.out, "a reason is somebody's text"
    rotated = cli("identity", "rotate")
    assert "signs from now on; the one before is trusted until 20" in rotated.out
    states = [one["state"] for one in cli("identity", "show", "--json").document["data"]["authorities"]]
    assert states == ["current", "outgoing"]
    assert cli("identity", "rotate").status == 3
