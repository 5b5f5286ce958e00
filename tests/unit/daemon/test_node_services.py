import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.gateway_devices import GatewayDevices
from fakes.gateway_harness import open_harness
from fakes.identity_harness import ACTOR
from fakes.node_server_harness import PATIENCE
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.node_wiring import advertised_names
from palyra.daemon.settings import Settings
from palyra.errors import PalyraError
from palyra.nodes.settings import NodeSettings


@pytest.mark.promise("P-api-local")
def test_nothing_of_grpc_is_loaded_and_no_port_opened_before_a_device_is_wanted(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from palyra.daemon.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import running_gateway

async def main():
    root = Path({str(tmp_path)!r})
    async with running_gateway(Settings(), StateDir.open(root / "state"), root / "policies") as gateway:
        await asyncio.sleep(0.1)
        assert gateway.status()["nodes"] == {{"enabled": True, "online": 0, "port": None}}
    assert not [name for name in sys.modules if name.partition(".")[0] in ("grpc", "google", "spake2")]

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert not (tmp_path / "state" / "nodes.ports.json").exists()


@pytest.mark.parametrize("store", ["file", "sql"])
async def test_a_code_opens_the_listeners_and_their_ports_are_kept(tmp_path: Path, store: str) -> None:
    settings = {"nodes": {"store": store}}
    async with open_harness(tmp_path, settings) as harness:
        devices = GatewayDevices(harness)
        device = await devices.pair()
        await device.online()
        port = devices.port
        await device.close()
    kept = json.loads((tmp_path / "state" / "nodes.ports.json").read_bytes())
    assert kept["port"] == port and kept["pairing_port"] not in (0, port)
    # A device is paired: the daemon listens from its start, where it did before.
    async with open_harness(tmp_path, settings) as harness:
        again = GatewayDevices(harness)
        await eventually(lambda: again.port)
        assert again.port == port
        device.harness = again  # type: ignore[assignment]
        await (await device.online()).beat()
        assert harness.gateway.status()["nodes"]["online"] == 1
        await device.close()


async def test_a_port_that_is_taken_stops_nothing_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"nodes": {"pairing_port": taken.getsockname()[1]}}
        async with open_harness(tmp_path, settings) as harness:
            with pytest.raises(PalyraError) as refused:
                await GatewayDevices(harness).listening()
            assert refused.value.code == "nodes.listener_port_taken"
            assert (await harness.call("echo", {"text": "x"})).result == {"text": "x"}
        settings = {"nodes": {"port": taken.getsockname()[1]}}
        async with open_harness(tmp_path / "b", settings) as harness:
            opened = await harness.gateway.nodes.opened()
            harness.gateway.nodes._wanted.set()
            await asyncio.sleep(0.3)
            assert harness.gateway.status()["nodes"]["port"] is None and opened.nodes() == []
            assert (await harness.call("echo", {"text": "x"})).result == {"text": "x"}


async def test_switched_off_there_are_no_devices(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"nodes": {"enabled": False}}) as harness:
        record = await harness.call("node.invoke", {"capability": "echo"})
        assert record.error is not None and record.error["code"] == "nodes.disabled"
        with pytest.raises(PalyraError) as refused:
            await GatewayDevices(harness).listening()
        assert refused.value.code == "pairing.not_listening"


def test_without_a_daemon_there_is_nobody_to_use_devices(tmp_path: Path) -> None:
    gateway = Gateway(Settings(), StateDir.open(tmp_path / "state"), tmp_path / "policies", channel="cli")
    try:
        with pytest.raises(PalyraError) as refused:
            gateway.nodes.devices()
        assert refused.value.code == "nodes.needs_daemon"
    finally:
        gateway.close()


async def test_a_revocation_that_was_cut_off_is_finished_at_the_next_start(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        device, other = [await GatewayDevices(harness).pair(name) for name in ("one", "other")]
    # Killed between identity and the record.
    gateway = Gateway(Settings(), StateDir.open(tmp_path / "state"), tmp_path / "policies", channel="cli")
    await gateway.identity.revoke(device.device_id, reason="lost", actor=ACTOR)
    gateway.close()
    async with open_harness(tmp_path) as harness:
        service = (await harness.gateway.nodes.opened()).node_service
        assert service.find(other.device_id).revoked_ms is None
        await eventually(lambda: service.find(device.device_id).revoked_ms is not None)


async def test_a_device_that_another_process_revoked_is_revoked_in_the_record_too(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        device = await GatewayDevices(harness).pair()
        stream = await device.online()
        elsewhere = Gateway(Settings(), StateDir.open(tmp_path / "state"), tmp_path / "policies", channel="cli")
        await elsewhere.identity.revoke(device.device_id, reason="stolen", actor=ACTOR)
        elsewhere.close()
        await stream.ended()
        service = (await harness.gateway.nodes.opened()).node_service
        await eventually(lambda: service.find(device.device_id).revoked_ms is not None)
        assert service.find(device.device_id).revoked_reason == "stolen"
        await device.close()


async def test_devices_are_told_of_a_new_authority(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * PATIENCE), open_harness(tmp_path) as harness:
        device = await GatewayDevices(harness).pair()
        stream = await device.online()
        await harness.gateway.identity.rotate_authority(actor=ACTOR)
        assert (await stream.receive("certificate_news")).renew_now
        await device.close()


async def test_a_stopping_daemon_says_goodbye(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        device = await GatewayDevices(harness).pair()
        stream = await device.online()
    assert (await stream.receive("goodbye")).code == "daemon.stopping"
    await device.close()


def test_the_certificate_vouches_for_what_devices_are_told() -> None:
    assert advertised_names(NodeSettings(host="10.0.0.1", advertise=("a.example", "10.0.0.1"))) == (
        "a.example",
        "10.0.0.1",
    )
    assert advertised_names(NodeSettings(host="0.0.0.0", advertise=("a.example",))) == ("a.example",)
