"""What the protocol's door gets of the daemon."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import make_token
from palyra.daemon.mcp_wiring import McpServices
from palyra.identity.api_tokens import ScopeMissing, Unauthenticated
from palyra.ids import CallId, RunId
from palyra.pipeline.domain.approval import ApprovalState, UnknownApproval
from palyra.pipeline.domain.call import CallState, UnknownCall
from palyra.server.mcp.backend import McpBackend, McpCaller, ToolCall
from palyra.server.mcp.client_view import UserAnswer

BOT = McpCaller(principal="agent:bot", actor="agent:bot", token_id="T")
OTHER = McpCaller(principal="agent:other", actor="agent:other", token_id="U")


def backend_of(harness: GatewayHarness, **deciders: str) -> McpBackend:
    return McpBackend(harness.gateway.service, {f"agent:{name}": person for name, person in deciders.items()})


def a_call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(call_id=CallId.new(), tool=tool, arguments=arguments, run_id=RunId.new(), session="mcp:s")


async def test_who_holds_a_token_is_looked_up_each_time(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        backend = backend_of(harness)
        token = await make_token(harness, "agent:bot")
        assert backend.admit(token, None).principal == "agent:bot"
        assert backend.admit(token, "agent:bot").principal == "agent:bot"
        with pytest.raises(ScopeMissing):
            backend.admit(token, "user:operator")
        with pytest.raises(Unauthenticated):
            backend.admit("plr_x", None)


async def test_calls_come_through_the_channel_mcp_and_are_ones_own(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        backend = backend_of(harness)
        call = a_call("echo", text="hi")
        record = await backend.call(BOT, call)
        assert (record.channel, record.call_id, record.result) == ("mcp", call.call_id, {"text": "hi"})
        assert [each.call_id for each in await backend.calls_of_run(BOT, call.run_id, 5)] == [call.call_id]
        assert await backend.calls_of_run(OTHER, call.run_id, 5) == []
        with pytest.raises(UnknownCall):
            await backend.call_record(OTHER, call.call_id)
        stolen = await backend.call(OTHER, ToolCall(**{**as_fields(a_call("echo", text="x")), "run_id": call.run_id}))
        assert stolen.error is not None and stolen.error["code"] == "run.unknown"


def as_fields(call: ToolCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in call.__struct_fields__}


async def test_cancelling_the_wait_cancels_the_call(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        backend = backend_of(harness)
        call = a_call("sleep", seconds=300)
        waiting = asyncio.create_task(backend.call(BOT, call))
        await eventually(lambda: harness.gateway.broker.running())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await backend.call_record(BOT, call.call_id)).state is CallState.CANCELLED


@pytest.mark.promise("P-approval-person")
async def test_only_the_person_named_for_a_client_is_asked_there_and_policy_decides(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        waiting = await backend_of(harness).call(BOT, a_call("fs.write", path="x", content="y"))
        assert waiting.approval_id is not None
        approval = await backend_of(harness).approval(BOT, waiting.approval_id)
        assert backend_of(harness).decider(BOT, approval) is None
        # Alice is no operator, and nobody decides for themselves.
        assert backend_of(harness, bot="user:alice").decider(BOT, approval) is None
        assert backend_of(harness, bot="agent:bot").decider(BOT, approval) is None
        backend = backend_of(harness, bot="user:operator")
        assert backend.decider(BOT, approval) == "user:operator"
        with pytest.raises(UnknownApproval):
            await backend.approval(OTHER, waiting.approval_id)
        await backend.decide(BOT, approval, UserAnswer.APPROVED)
        decided = await backend.approval(BOT, waiting.approval_id)
        assert decided.state is ApprovalState.APPROVED and decided.decided_by == "user:operator"
        # Too late, and no harm.
        await backend.decide(BOT, approval, UserAnswer.DENIED)
        assert (await backend.approval(BOT, waiting.approval_id)).state is ApprovalState.APPROVED


async def test_a_yes_in_the_client_after_a_change_of_policy_is_no_yes(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    async with open_harness(tmp_path) as harness:
        backend = backend_of(harness, bot="user:operator")
        call = await backend.call(BOT, a_call("fs.write", path="x", content="y"))
        approval = await backend.approval(BOT, call.approval_id or "")
        forbid = '@id("more") forbid (principal == Agent::"other", action, resource == Tool::"echo");\n'
        (tmp_path / "policies" / "more.cedar").write_text(forbid)
        await harness.gateway.policy.reload()
        await backend.decide(BOT, approval, UserAnswer.APPROVED)
        assert (await backend.approval(BOT, approval.id)).state is ApprovalState.PENDING
        again = await backend.call(BOT, a_call("fs.write", path="x", content="y"))
        assert again.state is CallState.NEEDS_APPROVAL and again.approval_id != approval.id


async def test_the_library_is_loaded_ahead_only_where_agents_have_been(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        parts: McpServices = harness.gateway.mcp
        await parts.prepare()
        assert "_door" not in parts.__dict__
        parts.transport()
        await parts.prepare()
        await parts.close()
