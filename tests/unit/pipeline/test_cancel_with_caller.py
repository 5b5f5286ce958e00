"""A call that is made for somebody ends with them, wherever it is by then, and nothing is left on record as running."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from fakes.pondering import SETTINGS, TOOL, give_tool
from palyra.executors.node import executor as node_tool
from palyra.executors.node.executor import DeviceCalls
from palyra.identity.device import DeviceId
from palyra.ids import CallId, Principal
from palyra.pipeline.domain.call import CallRequest, CallState, ExecutionPlan
from palyra.pipeline.execute import cancel_with_caller
from palyra.pipeline.store.call_tables import read_call


def request(tool: str, arguments: dict[str, Any], **more: Any) -> CallRequest:
    who = {"principal": Principal.parse("agent:bot"), "actor": "agent:bot", "channel": "cli"}
    return CallRequest(call_id=CallId.new(), tool=tool, arguments=arguments, **who, **more)


async def for_ever(_plan: ExecutionPlan) -> None:
    await asyncio.Event().wait()


async def test_whoever_leaves_takes_a_running_call_along(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        executor, asked = give_tool(harness, for_ever), request(TOOL, {})
        caller = asyncio.create_task(cancel_with_caller(harness.gateway.broker, asked))
        await eventually(lambda: bool(executor.plans))
        for _ in range(3):
            caller.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert read_call(harness.gateway.store, str(asked.call_id), None).state is CallState.CANCELLED


async def test_a_scope_that_cancels_without_end_is_no_reason_to_leave_sooner(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        executor, asked = give_tool(harness, for_ever), request(TOOL, {})
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_with_caller, harness.gateway.broker, asked)
            await eventually(lambda: bool(executor.plans))
            group.cancel_scope.cancel()
        assert read_call(harness.gateway.store, str(asked.call_id), None).state is CallState.CANCELLED


async def test_cut_off_at_its_start_a_call_does_not_stay_on_record_as_running(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        go_on, asked = threading.Event(), request("sleep", {"seconds": 60}, run_id=await harness.open_run())
        # The disk is slow: the start is on its way when the caller leaves.
        slow = harness.gateway.store.submit(lambda _tx: go_on.wait(60))
        caller = asyncio.create_task(cancel_with_caller(harness.gateway.broker, asked))
        await eventually(lambda: bool(harness.gateway.broker._running._holders))
        caller.cancel()
        await asyncio.sleep(0.05)
        go_on.set()
        await slow
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert read_call(harness.gateway.store, str(asked.call_id), None).state is CallState.CANCELLED


async def test_whoever_leaves_waits_for_nobody_any_more(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = request("fs.write", {"path": "a.txt", "content": "x"}, wait_ms=600_000)
        caller = asyncio.create_task(cancel_with_caller(harness.gateway.broker, asked))
        await eventually(lambda: bool(harness.gateway.broker._approvals.waiting))
        caller.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await caller
        record = read_call(harness.gateway.store, str(asked.call_id), None)
        assert record.state is CallState.NEEDS_APPROVAL
        await harness.approve(record.approval_id)
        assert not list(harness.workspace.iterdir()), "the yes came too late to run anything"


async def test_what_is_done_for_a_device_that_is_sent_away_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        executor, broker = give_tool(harness, for_ever), harness.gateway.broker
        monkeypatch.setattr(node_tool, "NAME", TOOL)
        device = DeviceId.new()
        caller = asyncio.ensure_future(DeviceCalls(lambda: broker)(device, "", "camera.snap", b"{}", 60_000))
        await eventually(lambda: bool(executor.plans))
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        record = read_call(harness.gateway.store, executor.plans[0].call_id, None)
        assert record.state is CallState.CANCELLED and broker.running() == 0
