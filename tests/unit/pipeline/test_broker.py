"""The one path of a call, with real policy, store and signature."""

import asyncio
import base64
import gc
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from palyra.canonical import digest_of
from palyra.ids import CallId, RunId
from palyra.pipeline import attest
from palyra.pipeline.attest import attest_result
from palyra.pipeline.domain.approval import ApprovalEvent
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallState
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.signing.tool_attestation import verify_attestation
from palyra.store.port import JournalClosed

WRITE = {"path": "a.txt", "content": "hello"}


@pytest.mark.promise("P-recorded")
async def test_an_allowed_call_leaves_its_whole_trace(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        record = await harness.call("echo", '{"text":"hi"}')
        assert record.state is CallState.SUCCEEDED and record.result == {"text": "hi"}
        assert record.decision is not None and record.decision["policies"] == ["baseline.allowed-tools"]
        assert harness.kinds(call=record.call_id) == ["call.requested", "call.decided", "call.started", "call.finished"]
        import msgspec

        verifier = Ed25519Verifier.from_pem_file(harness.gateway.state.path("signing.pub"))
        attested = verify_attestation(msgspec.json.encode(record.attestation), (verifier,))
        assert attested.output_digest == digest_of({"text": "hi"})
        finished = harness.events(call=record.call_id, kind="call.finished")[0][1]
        assert finished["output_digest"] == attested.output_digest
        account = harness.run(record.run_id).budget[BudgetKind.CALLS]
        assert (account.reserved, account.used) == (0, 1)


@pytest.mark.promise("P-budget-charged")
async def test_unknown_tools_and_bad_arguments_are_refused_on_record_and_cost_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run_id = await harness.open_run()
        for tool, raw, code in [
            ("no.such", "{}", "tool.unknown"),
            ("echo", '{"text":"a","text":"b"}', "json.duplicate_key"),
            ("echo", "{}", "arguments.schema_mismatch"),
            ("fs.read", '{"path":"../x"}', "workspace.bad_path"),
        ]:
            record = await harness.call(tool, raw, run_id=run_id)
            assert record.state is CallState.REFUSED and record.error is not None
            assert record.error["code"] == code
            assert harness.kinds(call=record.call_id) == ["call.refused"]
        assert harness.run(run_id).budget[BudgetKind.CALLS].used == 0


@pytest.mark.promise("P-default-deny", "P-budget-charged")
async def test_a_denial_names_the_smallest_grant(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"tools": {"allowed": ["sleep"]}}) as harness:
        record = await harness.call("echo", '{"text":"hi"}')
        assert record.state is CallState.DENIED and record.error is not None and record.decision is not None
        assert record.error["code"] == "call.denied"
        assert "tools.allowed" in record.error["hint"]
        assert record.decision["missing_grant"]["setting"] == "tools.allowed"
        assert harness.kinds(call=record.call_id) == ["call.requested", "call.decided"]
        assert harness.run(record.run_id).budget[BudgetKind.CALLS].used == 0


async def test_an_approval_lets_the_same_call_run_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.write", WRITE)
        assert asked.state is CallState.NEEDS_APPROVAL and asked.error is not None
        assert asked.error["details"]["approval_id"] == asked.approval_id
        again = await harness.call("fs.write", WRITE)
        assert again.approval_id == asked.approval_id, "the same call asks once"
        assert not (harness.workspace / "a.txt").exists()
        await harness.approve(asked.approval_id)
        ran = await harness.call("fs.write", WRITE)
        assert ran.state is CallState.SUCCEEDED and ran.approval_id == asked.approval_id
        assert (harness.workspace / "a.txt").read_text() == "hello"
        assert "approval.consumed" in harness.kinds(call=ran.call_id)
        third = await harness.call("fs.write", WRITE)
        assert third.state is CallState.NEEDS_APPROVAL and third.approval_id != asked.approval_id


@pytest.mark.promise("P-approval-answer")
async def test_a_waiting_caller_is_woken_by_the_decision(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness, asyncio.TaskGroup() as group:
        waiting = group.create_task(harness.call("fs.write", WRITE, wait_ms=60_000))
        await eventually(lambda: harness.events(kind="approval.requested"))
        approval_id = harness.events(kind="approval.requested")[0][1]["approval_id"]
        await harness.approve(approval_id)
        record = await waiting
        assert record.state is CallState.SUCCEEDED
        kinds = harness.kinds(call=record.call_id)
        assert kinds.count("call.requested") == 1 and kinds[-1] == "call.finished"


@pytest.mark.promise("P-approval-answer")
async def test_a_waiting_caller_is_told_of_a_no(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness, asyncio.TaskGroup() as group:
        waiting = group.create_task(harness.call("fs.write", WRITE, wait_ms=60_000))
        await eventually(lambda: harness.events(kind="approval.requested"))
        approval_id = harness.events(kind="approval.requested")[0][1]["approval_id"]
        await harness.decide(approval_id, ApprovalEvent.DENY, "user:alice", reason="not today")
        record = await waiting
        assert record.state is CallState.DENIED and record.error is not None
        assert "not today" in record.error["message"]


@pytest.mark.promise("P-call-ends")
async def test_a_timeout_and_a_cancellation_are_recorded_as_such(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        late = await harness.call("sleep", '{"seconds":60}', timeout_ms=20)
        assert late.state is CallState.TIMED_OUT and late.error is not None
        assert late.error["code"] == "call.timed_out"
        async with asyncio.TaskGroup() as group:
            running = group.create_task(harness.call("sleep", '{"seconds":60}'))
            await eventually(lambda: len(harness.events(kind="call.started")) >= 2)
            call_id = harness.gateway.store.events_since(0, 1000, kind="call.started")[1].call
            await harness.gateway.broker.cancel(call_id)
            record = await running
        assert record.state is CallState.CANCELLED
        account = harness.run(record.run_id).budget[BudgetKind.WALL_MS]
        assert account.reserved == 0 and account.used < 30_000


@pytest.mark.promise("P-limits")
async def test_the_output_limit_and_a_policy_obligation_hold(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "short.cedar").write_text(
        '@id("short-sleeps") @obligation_timeout_ms("30")\n'
        'permit (principal == Agent::"bot", action == Action::"tool.execute", resource == Tool::"sleep");\n'
        '@id("small-echo") @obligation_max_output_bytes("20")\n'
        'permit (principal == Agent::"bot", action == Action::"tool.execute", resource == Tool::"echo");\n'
    )
    async with open_harness(tmp_path) as harness:
        assert (await harness.call("sleep", '{"seconds":30}')).state is CallState.TIMED_OUT
        big = await harness.call("echo", {"text": "x" * 100})
        assert big.state is CallState.FAILED and big.error is not None
        assert big.error["code"] == "call.output_too_large" and big.result is None
        assert (await harness.call("echo", {"text": "x"})).state is CallState.SUCCEEDED


@pytest.mark.promise("P-obligations")
async def test_what_cannot_be_enforced_is_refused(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "tier.cedar").write_text(
        '@id("echo-in-c") @obligation_tier("c")\n'
        'permit (principal, action == Action::"tool.execute", resource == Tool::"echo");\n'
        '@id("little-memory") @obligation_memory_bytes("1000")\n'
        'permit (principal, action == Action::"tool.execute", resource == Tool::"sleep");\n'
    )
    async with open_harness(tmp_path) as harness:
        for tool, raw in [("echo", '{"text":"x"}'), ("sleep", '{"seconds":0}')]:
            record = await harness.call(tool, raw)
            assert record.error is not None and record.error["code"] == "call.unenforceable"
            assert "call.started" not in harness.kinds(call=record.call_id)


async def test_another_principals_run_looks_missing(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run_id = await harness.open_run("agent:alice")
        record = await harness.call("echo", '{"text":"x"}', run_id=run_id)
        assert record.error is not None and record.error["code"] == "run.unknown"
        assert harness.kinds(run=str(run_id)) == ["run.opened"]
        fresh = RunId.new()
        assert (await harness.call("echo", '{"text":"x"}', run_id=fresh)).run_id == fresh


@pytest.mark.promise("P-limits")
async def test_too_many_calls_at_once_are_told_to_come_back(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"tools": {"max_concurrent_calls": 1}}) as harness, asyncio.TaskGroup() as group:
        running = group.create_task(harness.call("sleep", '{"seconds":60}'))
        await eventually(lambda: harness.gateway.broker.running())
        second = await harness.call("echo", '{"text":"x"}')
        assert second.error is not None and second.error["code"] == "call.too_many_at_once"
        await harness.gateway.broker.cancel(harness.gateway.store.events_since(0, 99, kind="call.started")[0].call)
        await running


@pytest.mark.promise("P-call-ends")
async def test_a_stopping_broker_cancels_what_does_not_end(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness, asyncio.TaskGroup() as group:
        running = group.create_task(harness.call("sleep", '{"seconds":60}'))
        await eventually(lambda: harness.gateway.broker.running())
        await harness.gateway.broker.stop(0.01)
        assert (await running).state is CallState.CANCELLED


@pytest.mark.promise("P-floods")
async def test_a_large_result_is_digested_and_signed_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[bool] = []

    def noted(*given: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return attest_result(*given)

    monkeypatch.setattr(attest, "attest_result", noted)
    async with open_harness(tmp_path) as harness:
        for size in (10, 40_000):
            call = await harness.call("echo", {"text": "x" * size})
            assert call.result == {"text": "x" * size} and call.attestation is not None
            payload = json.loads(base64.b64decode(call.attestation["payload"]))
            assert payload["predicate"]["output_digest"] == digest_of(call.result)
        assert on_loop == [True, False]


async def test_a_call_that_is_stopped_while_its_result_is_digested_has_ended_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return attest_result(*given)

    monkeypatch.setattr(attest, "attest_result", slow)
    async with open_harness(tmp_path) as harness:
        call_id = CallId.new()
        calling = asyncio.create_task(harness.call("echo", {"text": "x" * 40_000}, call_id=call_id))
        assert await asyncio.to_thread(begun.wait, 30)
        stopping = asyncio.create_task(harness.gateway.broker.cancel(str(call_id)))
        await asyncio.sleep(0.01)
        go_on.set()
        await stopping
        assert (await calling).state.value == "succeeded"
        assert harness.kinds(call=str(call_id))[-1] == "call.finished"


async def test_many_at_once_on_a_small_budget_succeed_as_often_as_it_allows(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run_id = await harness.open_run(calls=5)
        records = await asyncio.gather(*(harness.call("echo", {"text": "x"}, run_id=run_id) for _ in range(40)))
        assert sum(record.state is CallState.SUCCEEDED for record in records) == 5
        assert all(record.result is None for record in records if record.state is not CallState.SUCCEEDED)
        account = harness.run(run_id).budget[BudgetKind.CALLS]
        assert (account.used, account.reserved) == (5, 0)


async def test_a_run_of_a_version_with_fewer_budgets_gets_the_new_kind_from_the_settings(tmp_path: Path) -> None:
    wall = BudgetKind.WALL_MS
    async with open_harness(tmp_path, {"budget": {"wall_ms": 7_000}}) as harness:
        for approve in (False, True):
            run_id = await harness.open_run(calls=3)
            if approve:
                asked = await harness.call("fs.write", {"path": "a", "content": "x"}, run_id=run_id)
                await harness.approve(asked.approval_id)
            await harness.gateway.store.transact(
                lambda tx, run=run_id: tx.execute(
                    "DELETE FROM run_budgets WHERE run_id = ? AND kind = ?", (str(run), wall.value)
                )
            )
            tool, arguments = ("fs.write", {"path": "a", "content": "x"}) if approve else ("echo", {"text": "x"})
            assert (await harness.call(tool, arguments, run_id=run_id)).state is CallState.SUCCEEDED
            budget = harness.run(run_id).budget
            assert (budget[wall].cap, budget[wall].reserved) == (7_000, 0)
            assert (budget[BudgetKind.CALLS].cap, budget[BudgetKind.CALLS].used) == (3, 1)


async def test_a_call_whose_end_cannot_be_recorded_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_given: Any, **_how: Any) -> Any:
        raise JournalClosed("the journal is closed")

    async with open_harness(tmp_path) as harness:
        broken: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: broken.append(context))
        with monkeypatch.context() as patch:
            patch.setattr(harness.gateway.store, "submit", closed)
            with pytest.raises(JournalClosed):
                await harness.call("echo", {"text": "x"})
        assert not broken and harness.gateway.broker.running() == 0


async def test_a_call_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    """A reference cycle would stay until the collector runs, which is seldom."""
    async with open_harness(tmp_path) as harness:
        await harness.call("echo", {"text": "x"})
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                assert (await harness.call("echo", {"text": "x"})).error is None
            assert gc.collect() < 20
        finally:
            gc.enable()
