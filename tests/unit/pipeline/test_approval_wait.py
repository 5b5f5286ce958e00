"""Policies that come while somebody waits for a person."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.pipeline.domain.approval import ApprovalEvent, Verdict
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.pipeline.store.approval_tables import decide
from palyra.pipeline.store.call_tables import read_call

ASK = (
    '@id("ask") forbid (principal, action == Action::"tool.execute", resource == Tool::"echo")'
    " unless { context.approved };\n"
)
ASK_STILL = ASK.replace('"ask"', '"ask-still"')
FORBID = '@id("no-echo") forbid (principal, action == Action::"tool.execute", resource == Tool::"echo");\n'


async def put_in_force(harness: GatewayHarness, policies: str) -> None:
    folder = harness.gateway.policy.folder
    folder.mkdir(exist_ok=True)
    (folder / "changing.cedar").write_text(policies)
    await harness.gateway.policy.reload()


async def requested(harness: GatewayHarness, requests: int) -> str:
    """The last one, when there are so many."""
    await eventually(lambda: len(harness.events(kind="approval.requested")) >= requests)
    return str(harness.events(kind="approval.requested")[-1][1]["approval_id"])


@asynccontextmanager
async def waiting(tmp_path: Path) -> AsyncIterator[tuple[GatewayHarness, asyncio.Task[CallRecord]]]:
    async with open_harness(tmp_path) as harness:
        await put_in_force(harness, ASK)
        task = asyncio.create_task(harness.call("echo", {"text": "hi"}, wait_ms=60_000))
        await requested(harness, 1)
        yield harness, task
        broker = harness.gateway.broker
        assert not broker._approvals.waiting and not broker._running._holders


async def test_who_waits_is_denied_by_a_policy_that_comes_meanwhile(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (harness, caller):
        await put_in_force(harness, FORBID)
        record = await caller
        assert record.state is CallState.DENIED and record.decision is not None
        assert record.decision["policies"] == ["no-echo"]
        kinds = harness.kinds(call=record.call_id)
        assert kinds == ["call.requested", "call.decided", "approval.requested", "call.decided"]
        ((_, withdrawn),) = harness.events(kind="approval.withdrawn")
        assert withdrawn["reason"] == "other policies came into force"


async def test_who_waits_goes_on_where_policies_come_that_allow_it(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (harness, caller):
        await put_in_force(harness, "")
        record = await caller
        assert record.state is CallState.SUCCEEDED and record.approval_id is None
        kinds = harness.kinds(call=record.call_id)
        assert kinds.count("call.requested") == 1 and kinds.count("call.decided") == 2
        assert kinds[-2:] == ["call.started", "call.finished"]


async def test_who_waits_asks_anew_where_the_new_policies_ask_too(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (harness, caller):
        await put_in_force(harness, ASK_STILL)
        anew = await requested(harness, 2)
        assert not caller.done()
        await harness.approve(anew)
        record = await caller
        assert record.state is CallState.SUCCEEDED and record.approval_id == anew


async def test_a_yes_to_what_other_policies_asked_lets_nothing_run(tmp_path: Path) -> None:
    """Both at once: it is approved in the same moment in which the policies change."""
    async with waiting(tmp_path) as (harness, caller):
        old = await requested(harness, 1)
        verdict = Verdict(event=ApprovalEvent.APPROVE, by="user:alice")
        await harness.gateway.store.transact(lambda tx: decide(tx, old, verdict, actor="user:alice"))
        await put_in_force(harness, FORBID)
        assert (await caller).state is CallState.DENIED
        assert harness.kinds(kind="approval.withdrawn") == []


async def test_policies_that_change_and_change_back_leave_the_request(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (harness, caller):
        harness.gateway.broker.policy_changed()
        await asyncio.sleep(0.05)
        assert not caller.done() and harness.kinds(kind="approval.withdrawn") == []
        await harness.approve(await requested(harness, 1))
        record = await caller
        assert record.state is CallState.SUCCEEDED
        assert harness.kinds(call=record.call_id).count("call.decided") == 1


async def test_who_looks_on_sees_no_end_while_a_call_is_judged_again(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (harness, caller):
        ((_, _, call_id),) = [
            (event.kind, event.seq, event.call)
            for event in harness.gateway.store.events_since(0, 1000, kind="call.requested")
        ]
        seen = [harness.gateway.broker.is_unfinished(read_call(harness.gateway.store, call_id, None))]
        await put_in_force(harness, ASK_STILL)
        while len(harness.events(kind="approval.requested")) < 2:
            seen.append(harness.gateway.broker.is_unfinished(read_call(harness.gateway.store, call_id, None)))
            await asyncio.sleep(0)
        assert all(seen) and harness.gateway.broker.is_unfinished(read_call(harness.gateway.store, call_id, None))
        await harness.gateway.broker.cancel(call_id)
        assert (await caller).state is CallState.NEEDS_APPROVAL


async def test_many_who_wait_are_all_judged_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"tools": {"max_concurrent_calls": 4}}) as harness:
        await put_in_force(harness, ASK)
        callers = [asyncio.create_task(harness.call("echo", {"text": str(n)}, wait_ms=60_000)) for n in range(4)]
        await requested(harness, 4)
        await put_in_force(harness, "")
        assert {record.state for record in await asyncio.gather(*callers)} == {CallState.SUCCEEDED}
        assert not harness.gateway.broker._approvals.waiting
