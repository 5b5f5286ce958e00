"""Devices, daemons and strangers that go on and on: each is slowed down, told so, and seen by an operator."""

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.eventually import eventually
from fakes.node_agent_harness import running_host
from fakes.node_server_harness import (
    ECHO,
    PATIENCE,
    PRINT,
    ByHand,
    NodeServerHarness,
    code_of,
    ended_while_writing,
    open_harness,
)
from palyra.devicelink import limits
from palyra.devicelink.agent.identity import Credentials
from palyra.devicelink.server.connections import CONTESTED
from palyra.errors import PalyraError
from palyra.nodes import limits as host_limits
from palyra.nodes.agent.link import GrpcLink
from palyra.nodes.agent.messages import Outcome
from palyra.nodes.domain import rate_limits
from palyra.nodes.domain.records import DeviceCapabilityView
from palyra.nodes.server.dispatcher import CertificateNews, Dispatch
from palyra.secret import Secret
from palyra.wire.node.v1 import node_pb2 as wire

pytestmark = pytest.mark.promise("P-floods")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[NodeServerHarness]:
    async with asyncio.timeout(6 * PATIENCE), open_harness(tmp_path) as opened:
        yield opened


@pytest.fixture
async def device(harness: NodeServerHarness) -> AsyncIterator[ByHand]:
    paired = await harness.pair()
    yield paired
    await paired.close()


async def refused(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return code_of(caught.value)


@pytest.mark.promise("P-device-known")
async def test_a_copied_certificate_and_its_device_are_slowed_down_and_an_operator_sees_two(
    harness: NodeServerHarness, device: ByHand
) -> None:
    """Each takes the other's place as soon as it lost its own."""
    thief = ByHand(harness, device.key, device.issued)
    await device.online()
    await thief.online()
    burst = int(rate_limits.CONNECTIONS.burst)
    turned_away = 0
    for turn in range(2 * burst):
        taker = (device, thief)[turn % 2]
        await taker.register()
        try:
            await taker.stream().beat()
        except grpc.aio.AioRpcError as error:
            assert ended_while_writing(error) or code_of(error) == "nodes.too_often"
            turned_away += 1
    assert turned_away >= burst // 2
    assert len(harness.events("node.connected")) <= 2 * burst - turned_away + 2, "the journal is not filled"
    (contested,) = harness.events("node.contested")
    assert contested["device_id"] == device.device_id and contested["takeovers"] == CONTESTED
    assert harness.paired.view(harness.paired.find(device.device_id))["contested"] is True
    (refused,) = [one for one in harness.events("node.peer_refused") if one["code"] == "nodes.too_often"]
    assert refused["device_id"] == device.device_id, "and once, however often it was"
    await thief.close()


async def test_an_inventory_that_changes_without_end_does_not_fill_the_journal(
    harness: NodeServerHarness, device: ByHand
) -> None:
    stream = await device.online()
    other = [wire.Capability(name="echo")], [wire.Capability(name="echo"), wire.Capability(name="print")]
    burst = int(rate_limits.NEWS.burst)
    assert await _until_refused(stream, other) <= burst + 2
    assert await stream.ended() is grpc.StatusCode.RESOURCE_EXHAUSTED
    device.connect()
    assert await refused(device.register(ECHO)) == "nodes.too_often"
    assert len(harness.events("node.registered")) <= burst + 1
    # Who says what it said before is not kept out.
    known = harness.paired.find(device.device_id).capabilities
    await device.register(*known)


async def _until_refused(stream: Any, inventories: tuple[list[Any], ...]) -> int:
    for turn in range(200):
        try:
            await stream.say(capabilities_changed=wire.CapabilitiesChanged(capabilities=inventories[turn % 2]))
            await stream.beat()
        except (grpc.aio.AioRpcError, AssertionError, asyncio.InvalidStateError):
            return turn
    raise AssertionError("every change was taken")


async def test_ten_thousand_capabilities_and_schemas_that_explode_are_refused_at_once(
    harness: NodeServerHarness, device: ByHand
) -> None:
    device.connect()
    many = [DeviceCapabilityView(name=f"c{number}") for number in range(10_000)]
    assert await refused(device.register(*many)) == "nodes.too_much_told"
    steps = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    bomb = json.dumps({"$defs": {**steps, "d60": {}}, "$ref": "#/$defs/d0"})
    assert await refused(device.register(DeviceCapabilityView(name="b", input_schema_json=bomb))) == (
        "nodes.bad_inventory"
    )
    assert harness.events("node.registered") == []


async def test_words_of_a_device_cannot_steer_a_terminal(harness: NodeServerHarness, device: ByHand) -> None:
    device.connect()
    request = wire.RegisterNodeRequest(
        device_id=device.device_id,
        protocol_version=limits.PROTOCOL_VERSION,
        platform="\x1b]0;x\x07linux\u202e\u2066\U000e0041\xad" + "z" * 100_000,
        software_version="1\r\n2\u2028",
        capabilities=[wire.Capability(name="echo", description="\u202egnp.exe\ufff9\x9b2J" + "y" * 100_000)],
    )
    await device.stub.RegisterNode(request, timeout=PATIENCE)
    view = harness.paired.view(harness.paired.find(device.device_id))
    (event,) = harness.events("node.registered")
    texts = (view["platform"], view["software_version"], view["capabilities"][0]["description"], event["platform"])
    assert all(text.isprintable() and len(text) <= limits.MAX_DESCRIPTION_CHARS for text in texts)


async def test_a_device_that_asks_without_end_is_stopped(harness: NodeServerHarness, device: ByHand) -> None:
    device.connect()
    ask = wire.ExecuteCapabilityRequest(device_id=device.device_id, capability="echo")
    for _ in range(int(rate_limits.EXECUTIONS.burst)):
        await device.stub.ExecuteCapability(ask, timeout=PATIENCE)
    codes = [await _code(device.stub.ExecuteCapability(ask, timeout=PATIENCE)) for _ in range(10)]
    assert "nodes.too_often" in codes
    assert len(harness.executed) < rate_limits.EXECUTIONS.burst + 10


async def _code(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return code_of(error)
    return ""


@pytest.mark.promise("P-limits")
async def test_what_runs_for_a_device_ends_with_it_and_it_hears_nothing_of_the_result(
    harness: NodeServerHarness, device: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device asks for another's capability and is revoked before a person has said yes."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def execute(*_: Any) -> tuple[str, bytes]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "", b""

    monkeypatch.setattr(harness.service, "execute", execute)
    device.connect()
    ask = wire.ExecuteCapabilityRequest(device_id=device.device_id, capability="print")
    most = limits.MAX_EXECUTIONS_PER_DEVICE
    codes = asyncio.gather(*(_code(device.stub.ExecuteCapability(ask, timeout=PATIENCE)) for _ in range(most + 1)))
    await asyncio.wait_for(begun.wait(), PATIENCE)
    await eventually(lambda: "nodes.too_many_requests" in harness.refused)
    await harness.paired.revoke(device.device_id, reason="stolen", actor="user:operator")
    await asyncio.wait_for(stopped.wait(), PATIENCE)
    assert sorted(await codes) == [*["nodes.device_gone"] * most, "nodes.too_many_requests"]
    assert await _code(device.stub.ExecuteCapability(ask, timeout=PATIENCE)) == "" and not harness.executed


async def test_a_daemon_that_floods_its_device_fills_its_own_line(harness: NodeServerHarness, tmp_path: Path) -> None:
    """Ten thousand dispatches and as much news: the device takes what it can act on, and goes on living."""
    device = await harness.pair()
    async with running_host(harness, tmp_path / "node", device) as host:
        opened = harness.dispatcher._lines[device.device_id]
        waited: list[int] = []
        bundle = harness.identities.ca_bundle_pem()
        for number in range(10_000):
            if harness.dispatcher._lines.get(device.device_id) is not opened:
                break
            if len(opened.line._waiting) < limits.MAX_WAITING_COMMANDS // 2:
                opened.line.send(Dispatch(f"01FLOOD{number:019}", "nothing.here", b"{}", 60_000, 1024))
                if number % 100 == 0:
                    opened.line.send(CertificateNews(bundle, renew_now=False))
            waited.append(host.driver._events.qsize())
            await asyncio.sleep(0)
        assert max(waited) <= host_limits.MAX_UNHEARD + 2 * host_limits.MAX_OPEN
        await eventually(lambda: host.driver._events.empty(), 3 * PATIENCE)
        assert len(host.notes()) <= host_limits.MAX_REMEMBERED + host_limits.MAX_OPEN


async def test_a_result_that_no_message_can_carry_is_told_in_its_place(harness: NodeServerHarness) -> None:
    device = await harness.pair()
    credentials = Credentials(
        key_pem=Secret(device.key.pem().decode()),
        certificate_pem=device.issued.certificate_pem.decode(),
        ca_bundle_pem=harness.identities.ca_bundle_pem().decode(),
    )
    stream = await device.online()
    link = GrpcLink(f"127.0.0.1:{harness.port}", credentials)
    link._device_id = device.device_id
    call = harness.invoke(device, PRINT)
    request_id = (await stream.receive("dispatch")).request_id
    await link.report(request_id, Outcome.succeeded(b'"' + b"x" * 2 * limits.MAX_MESSAGE_BYTES + b'"'))
    with pytest.raises(PalyraError, match="larger than a message") as caught:
        await call
    assert caught.value.code == "nodes.device_failed"
    assert caught.value.details["device_code"] == "nodes.output_too_large"
    await link.close()
    await device.close()


async def test_strangers_who_only_connect_leave_the_daemon_its_descriptors(
    harness: NodeServerHarness, device: ByHand
) -> None:
    """Four times as many silent connections as the listener may hold: the rest is closed, and who is in stays in."""
    most = 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most * limits.DESCRIPTOR_SHARE, hard))
    try:
        await harness.listener.stop(0)
        port = await harness.listener.start(harness.services, [0])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    device.connect(port)
    await device.register()
    stream = device.stream()
    await stream.beat()
    before = len(os.listdir("/proc/self/fd"))
    flood = await asyncio.to_thread(_flood, port, 4 * most)
    try:
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + most)
        await stream.beat()
    finally:
        flood.kill()
        flood.communicate()
    other = await harness.pair("another")
    other.connect(port)

    async def is_registered() -> bool:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await other.register()
            return True
        return False

    await eventually(is_registered, every=0.2)
    await other.close()


_FLOOD = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("there", flush=True)
sys.stdin.read()
"""


def _flood(port: int, count: int) -> "subprocess.Popen[str]":
    """In a process of its own, so that only one side's descriptors are counted here."""
    process = subprocess.Popen(
        [sys.executable, "-c", _FLOOD, str(port), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    return process
