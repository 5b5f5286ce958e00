"""node.invoke through the whole pipeline, to a device over real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes.gateway_devices import GatewayDevices, answer_all
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.node_server_harness import ECHO, PATIENCE, PRINT, ByHand, code_of
from palyra.executors.node.spec import NAME, node_invoke_spec
from palyra.nodes.domain.records import DeviceCapabilityView
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.store.approval_tables import read_approval
from palyra.wire.node.v1 import node_pb2 as wire

FREE = {"tools": {"preapproved": ["node.*"]}}
# By default devices may ask for nothing of each other.
DEVICES_MAY_ASK = """@id("test.devices-may-ask")
permit (principal in Group::"allowed", action == Action::"node.invoke", resource)
when { context.channel == Channel::"node" };
"""
COUNT = DeviceCapabilityView(
    name="count", input_schema_json='{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
)


@asynccontextmanager
async def at_home(tmp_path: Path, settings: dict[str, Any]) -> AsyncIterator[tuple[GatewayHarness, ByHand, Any]]:
    async with asyncio.timeout(3 * PATIENCE), open_harness(tmp_path, settings) as harness:
        device = await GatewayDevices(harness).pair()
        device.connect()
        await device.register(ECHO, PRINT, COUNT)
        stream = device.stream()
        await stream.beat()
        yield harness, device, stream
        await device.close()


async def test_a_call_reaches_the_device_and_its_answer_is_marked_as_a_devices(tmp_path: Path) -> None:
    async with at_home(tmp_path, FREE) as (harness, device, stream):
        answering = asyncio.create_task(answer_all(device, stream))
        record = await harness.call(NAME, {"capability": "echo", "input": {"text": "hi"}})
        answering.cancel()
        assert record.state is CallState.SUCCEEDED
        assert (record.result["device"], record.result["name"]) == (device.device_id, "laptop")
        assert record.result["output"] == {"said": "hi"} and record.result["content_is_untrusted"] is True
        assert record.receipt[0]["layer"] == "device"
        decided = [payload["policy_request"]["action"] for _, payload in harness.events(kind="call.decided")]
        assert decided == ["tool.execute", "node.invoke"]
        ended = harness.events(kind="node.request_ended")[0][1]
        assert ended["state"] == "succeeded" and harness.kinds(call=record.call_id).count("node.request_ended") == 1
        metrics = harness.gateway.metrics.render().decode()
        assert 'palyra_node_requests_total{state="succeeded"} 1.0' in metrics and "palyra_nodes_online 1.0" in metrics


@pytest.mark.promise("P-approval-exact")
async def test_an_approval_is_for_the_device_it_showed(tmp_path: Path) -> None:
    async with at_home(tmp_path, {}) as (harness, device, stream):
        asked = await harness.call(NAME, {"capability": "echo"})
        assert asked.state is CallState.NEEDS_APPROVAL
        approval = read_approval(harness.gateway.store, asked.approval_id or "")
        assert approval.arguments["device"] == device.device_id
        assert approval.touches["devices"] == [f"laptop ({device.device_id})"]
        await harness.approve(asked.approval_id)
        other = await GatewayDevices(harness).pair("other")
        others = await other.online()
        elsewhere = await harness.call(NAME, {"capability": "echo", "device": "other"})
        assert elsewhere.state is CallState.NEEDS_APPROVAL and elsewhere.approval_id != asked.approval_id
        answering = asyncio.create_task(answer_all(device, stream))
        done = await harness.call(NAME, {"capability": "echo"})
        answering.cancel()
        assert done.state is CallState.SUCCEEDED and done.approval_id == asked.approval_id
        await others.beat()
        await other.close()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"capability": "camera"}, "nodes.no_capable_device"),
        ({"capability": "camera", "device": "laptop"}, "nodes.capability_missing"),
        ({"capability": "echo", "device": "nobody"}, "nodes.unknown_device"),
        ({"capability": "count", "input": {"n": "one"}}, "nodes.input_mismatch"),
        ({"capability": "echo", "extra": 1}, "arguments.schema_mismatch"),
    ],
)
async def test_what_cannot_be_is_refused_before_anybody_is_asked(
    tmp_path: Path, arguments: dict[str, Any], code: str
) -> None:
    async with at_home(tmp_path, {}) as (harness, _, _):
        record = await harness.call(NAME, arguments)
        assert record.state is CallState.REFUSED and record.error is not None and record.error["code"] == code
        assert harness.kinds(kind="node.request_queued") == []


async def test_policy_sees_the_device_and_what_it_is_to_do(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "devices.cedar").write_text(
        '@id("no-printing")\nforbid (principal, action == Action::"node.invoke", resource)\n'
        'when { resource.name == "laptop" && context.capability == "print" };\n'
    )
    async with at_home(tmp_path, FREE) as (harness, device, stream):
        denied = await harness.call(NAME, {"capability": "print"})
        assert denied.state is CallState.DENIED and denied.decision is not None
        assert denied.decision["policies"] == ["no-printing"]
        answering = asyncio.create_task(answer_all(device, stream))
        assert (await harness.call(NAME, {"capability": "echo"})).state is CallState.SUCCEEDED
        answering.cancel()


async def test_a_device_that_does_not_answer_and_a_call_that_is_stopped(tmp_path: Path) -> None:
    async with at_home(tmp_path, FREE) as (harness, _, stream):
        record = await harness.call(NAME, {"capability": "print", "timeout_ms": 200})
        assert record.error is not None and record.error["code"] == "nodes.timed_out"
        calling = asyncio.create_task(harness.call(NAME, {"capability": "print", "device": "laptop"}))
        await stream.receive("dispatch")
        dispatch = await stream.receive("dispatch")
        running = harness.events(kind="call.started")[-1]
        assert running[1]["executor"] == "node"
        (call_id,) = harness.gateway.broker._running
        await harness.gateway.broker.cancel(call_id)
        assert (await calling).state is CallState.CANCELLED
        while (await stream.receive("cancel")).request_id != dispatch.request_id:
            continue


async def test_a_device_that_is_revoked_while_it_works_fails_the_call(tmp_path: Path) -> None:
    async with at_home(tmp_path, FREE) as (harness, device, stream):
        calling = asyncio.create_task(harness.call(NAME, {"capability": "print"}))
        await stream.receive("dispatch")
        nodes = (await harness.gateway.nodes.opened()).node_service
        await nodes.revoke("laptop", reason="lost", actor="user:o")
        record = await calling
        assert record.state is CallState.FAILED and record.error is not None
        assert record.error["code"] == "nodes.device_gone" and record.error["details"]["device"] == device.device_id


def let_devices_ask(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "devices.cedar").write_text(DEVICES_MAY_ASK)


async def test_a_device_asks_for_nothing_unless_a_policy_lets_it(tmp_path: Path) -> None:
    async with at_home(tmp_path, FREE) as (_, device, _):
        request = wire.ExecuteCapabilityRequest(device_id=device.device_id, capability="print", input_json=b"{}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await device.stub.ExecuteCapability(request, timeout=PATIENCE)
        assert code_of(refused.value) == "call.denied"


async def test_a_device_asks_through_the_same_pipeline_and_needs_the_same_approval(tmp_path: Path) -> None:
    let_devices_ask(tmp_path)
    async with at_home(tmp_path, {}) as (harness, device, _):
        request = wire.ExecuteCapabilityRequest(device_id=device.device_id, capability="print", input_json=b"{}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await device.stub.ExecuteCapability(request, timeout=PATIENCE)
        assert code_of(refused.value) == "call.needs_approval"
        requested = harness.gateway.store.events_since(0, 1000, kind="call.requested")[-1]
        assert requested.principal == f"agent:node/{device.device_id}"
        assert requested.payload_value()["channel"] == "node"
        assert requested.payload_value()["device"] == device.device_id
        request.input_json = b'{"a":1,"a":2}'
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await device.stub.ExecuteCapability(request, timeout=PATIENCE)
        assert code_of(refused.value) == "json.duplicate_key"


async def test_one_device_has_another_do_something(tmp_path: Path) -> None:
    let_devices_ask(tmp_path)
    async with at_home(tmp_path, FREE) as (harness, device, stream):
        asker = await GatewayDevices(harness).pair("phone")
        asker.connect()
        answering = asyncio.create_task(answer_all(device, stream, b'{"n":1}'))
        request = wire.ExecuteCapabilityRequest(
            device_id=asker.device_id, target_device_id="laptop", capability="echo", timeout_ms=20_000
        )
        answer = await asker.stub.ExecuteCapability(request, timeout=PATIENCE)
        answering.cancel()
        assert answer.output_json == b'{"n":1}' and answer.call_id
        await asker.close()


def test_without_devices_the_spec_describes_the_tool() -> None:
    spec = node_invoke_spec(None)
    assert spec.device is None and spec.metadata.sensitive and not spec.idempotent
    assert spec.complete({"capability": "a"}) == {"capability": "a"} and spec.touches({"capability": "a"}).devices == ()
