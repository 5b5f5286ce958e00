"""Class *Approvals and budgets* of the threats: every trick is played on a running gateway, and the record shows it."""

import asyncio
import json
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.pondering import SETTINGS, TOOL, give_tool
from fakes.raw_http import ask, operator
from palyra.errors import PalyraError
from palyra.executors.files.executor import FilesExecutor
from palyra.pipeline.domain.approval import AlreadyDecided, ApprovalExpired, ApprovalScope, ApprovalState, SelfApproval
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallState, ExecutionPlan, ExecutorOutcome
from palyra.pipeline.store.approval_tables import list_approvals
from palyra.pipeline.store.call_tables import list_recent_calls
from palyra.server.http.app import create_app

WRITE = {"path": "a.txt", "content": "hello"}


async def approved_write(harness: GatewayHarness) -> str:
    asked = await harness.call("fs.write", WRITE)
    await harness.approve(asked.approval_id)
    assert asked.approval_id is not None
    return asked.approval_id


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize(
    "changed",
    [
        {"path": "b.txt", "content": "hello"},
        {"path": "a.txt", "content": "hello "},
        {"path": "a.txt", "content": "hello", "mode": "overwrite"},
        {"path": "./a.txt", "content": "hello"},
        {"path": "a.txt", "content": "he\u006clo\u200b"},
    ],
)
async def test_a_changed_argument_is_not_covered(tmp_path: Path, changed: dict[str, str]) -> None:
    async with open_harness(tmp_path) as harness:
        approval_id = await approved_write(harness)
        record = await harness.call("fs.write", changed)
        assert record.state is CallState.NEEDS_APPROVAL
        assert record.approval_id != approval_id
        assert not list(harness.workspace.iterdir())


@pytest.mark.promise("P-approval-exact")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ('{"path":"a.txt","content":"evil","content":"hello"}', "json.duplicate_key"),
        ('{"path":"a.txt","content":"hello","content":"hello"}', "json.duplicate_key"),
        ('{"path":"a.txt","content":"hello","p\\u0061th":"a.txt"}', "json.duplicate_key"),
    ],
)
async def test_a_duplicate_key_never_reaches_an_approval(tmp_path: Path, raw: str, code: str) -> None:
    async with open_harness(tmp_path) as harness:
        await approved_write(harness)
        record = await harness.call("fs.write", raw)
        assert record.error is not None and record.error["code"] == code
        assert not list(harness.workspace.iterdir())


@pytest.mark.promise("P-approval-exact")
async def test_one_and_one_point_zero_are_not_one_call(tmp_path: Path) -> None:
    """`fs.read` with a numeric argument, approved as 1 and tried as 1.0, 1e0, 10e-1."""
    async with open_harness(tmp_path) as harness:
        (harness.workspace / "a.txt").write_text("hello")
        asked = await harness.call("fs.read", '{"path":"a.txt","limit":1}')
        assert asked.state is CallState.NEEDS_APPROVAL
        await harness.approve(asked.approval_id)
        for spelling in ("1.0", "1e0", "10e-1", "true"):
            record = await harness.call("fs.read", f'{{"path":"a.txt","limit":{spelling}}}')
            assert record.state is CallState.REFUSED
        assert harness.kinds().count("call.started") == 0
        assert (await harness.call("fs.read", '{"limit":1,"path":"a.txt"}')).state is CallState.SUCCEEDED


@pytest.mark.promise("P-approval-person")
async def test_the_requester_cannot_approve_itself(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.write", WRITE)
        with pytest.raises(SelfApproval):
            await harness.approve(asked.approval_id, by="agent:bot")
        assert (await harness.call("fs.write", WRITE)).state is CallState.NEEDS_APPROVAL


@pytest.mark.promise("P-approval-ends")
async def test_an_approval_is_decided_once_and_never_after_its_time(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"approvals": {"ttl_seconds": 1}}) as harness:
        asked = await harness.call("fs.write", WRITE)
        await harness.approve(asked.approval_id)
        with pytest.raises(AlreadyDecided):
            await harness.approve(asked.approval_id, by="user:bob")
        late = await harness.call("fs.write", {**WRITE, "path": "late.txt"})
        await eventually(lambda: harness.kinds().count("approval.expired") >= 2)
        with pytest.raises((ApprovalExpired, AlreadyDecided)):
            await harness.approve(late.approval_id)
        # The approved one has run out as well: nothing is covered any more.
        assert (await harness.call("fs.write", WRITE)).state is CallState.NEEDS_APPROVAL


@pytest.mark.promise("P-approval-once")
async def test_one_approval_is_spent_once_by_many_at_the_same_moment(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        approval_id = await approved_write(harness)
        records = await asyncio.gather(*(harness.call("fs.write", WRITE) for _ in range(40)))
        ran = [record for record in records if record.state is CallState.SUCCEEDED]
        assert len(ran) == 1 and ran[0].approval_id == approval_id
        assert all(record.state is CallState.NEEDS_APPROVAL for record in records if record is not ran[0])
        assert harness.kinds().count("approval.consumed") == 1


@pytest.mark.promise("P-approval-ends")
async def test_an_approval_does_not_survive_a_change_of_policy(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    async with open_harness(tmp_path) as harness:
        await approved_write(harness)
        (policies / "more.cedar").write_text(
            '@id("more") permit (principal == Agent::"other", action, resource == Tool::"echo");\n'
        )
        await harness.gateway.policy.reload()
        assert (await harness.call("fs.write", WRITE)).state is CallState.NEEDS_APPROVAL


@pytest.mark.promise("P-approval-ends")
async def test_a_call_that_waits_does_not_outlive_the_policies_that_let_it_ask(tmp_path: Path) -> None:
    """It asks and waits. Then it is forbidden. A person who says yes all the same lets nothing run: not the call that
    waits with its old verdict, and not the one that is made anew."""
    policies = tmp_path / "policies"
    policies.mkdir()
    async with open_harness(tmp_path) as harness:
        app, boss = create_app(harness.gateway.service), await operator(harness)
        left = (await harness.call("fs.write", {**WRITE, "content": "of who did not wait"})).approval_id
        waiting = asyncio.create_task(harness.call("fs.write", WRITE, wait_ms=60_000))
        await eventually(lambda: len(list_approvals(harness.gateway.store, ApprovalState.PENDING)) == 2)
        found = list_approvals(harness.gateway.store, ApprovalState.PENDING)
        (asked,) = [each.id for each in found if each.id != left]
        (policies / "no.cedar").write_text(
            '@id("no") forbid (principal, action == Action::"tool.execute", resource == Tool::"fs.write");\n'
        )
        await harness.gateway.policy.reload()
        # Judged anew at once, and its request withdrawn.
        assert (await waiting).state is CallState.DENIED
        for approval_id, code in ((asked, "approval.already_decided"), (left, "approval.outdated")):
            decision = f"/v1/approvals/{approval_id}/decision"
            got = await ask(app, "POST", decision, token=boss, body={"decision": "approve"})
            assert (got.status, got.code) == (409, code)
        assert (await ask(app, "POST", decision, token=boss, body={"decision": "deny"})).status == 200
        assert (await harness.call("fs.write", WRITE)).state is CallState.DENIED
        assert not (harness.workspace / WRITE["path"]).exists()
        assert "approval.approved" not in harness.kinds()


async def test_an_approval_covers_one_principal_only(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await approved_write(harness)
        assert (await harness.call("fs.write", WRITE, principal="agent:other")).state is CallState.NEEDS_APPROVAL
        assert (await harness.call("fs.write", WRITE, principal="user:bot")).state is CallState.NEEDS_APPROVAL


@pytest.mark.promise("P-approval-exact")
async def test_a_pattern_cannot_be_walked_out_of(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.write", {"path": "docs/a.md", "content": "x", "create_parents": True})
        await harness.approve(asked.approval_id, scope=ApprovalScope.PATTERN, pattern={"path": "docs/**"})
        good = await harness.call("fs.write", {"path": "docs/b/c.md", "content": "y", "create_parents": True})
        assert good.state is CallState.SUCCEEDED
        for path in ("docs", "docs2/a.md", "src/docs/a.md", "DOCS/a.md", "docs\\..\\x"):
            assert (await harness.call("fs.write", {"path": path, "content": "z"})).state is not CallState.SUCCEEDED
        (harness.workspace / "docs" / "out").symlink_to("/")
        record = await harness.call("fs.write", {"path": "docs/out/tmp/planted", "content": "z"})
        assert record.state is CallState.NEEDS_APPROVAL
        # Nor does one for exactly this call lead out of the workspace.
        await harness.approve(record.approval_id)
        record = await harness.call("fs.write", {"path": "docs/out/tmp/planted", "content": "z"})
        assert record.state is CallState.FAILED and not Path("/tmp/planted").exists()


@pytest.mark.promise("P-approval-once")
async def test_approvals_survive_a_restart(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.write", WRITE)
    async with open_harness(tmp_path) as harness:
        await harness.approve(asked.approval_id)
    async with open_harness(tmp_path) as harness:
        assert (await harness.call("fs.write", WRITE)).state is CallState.SUCCEEDED


@pytest.mark.promise("P-budget-exact")
async def test_parallel_calls_at_the_cap_never_overspend(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run_id = await harness.open_run(calls=10)
        records = await asyncio.gather(*(harness.call("echo", '{"text":"x"}', run_id=run_id) for _ in range(64)))
        assert sum(record.state is CallState.SUCCEEDED for record in records) == 10
        refused = [record for record in records if record.state is CallState.REFUSED]
        assert len(refused) == 54
        assert {record.error["code"] for record in refused if record.error} == {"budget.exhausted"}
        account = harness.run(run_id).budget[BudgetKind.CALLS]
        assert (account.reserved, account.used) == (0, 10)
        assert harness.kinds(run=str(run_id)).count("call.finished") == 10
        assert harness.kinds(run=str(run_id)).count("call.refused") == 54


@pytest.mark.promise("P-approval-once")
async def test_a_refusal_for_lack_of_budget_does_not_spend_the_approval(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run_id = await harness.open_run(calls=0)
        await approved_write(harness)
        refused = await harness.call("fs.write", WRITE, run_id=run_id)
        assert refused.error is not None and refused.error["code"] == "budget.exhausted"
        assert "approval.consumed" not in harness.kinds()
        assert (await harness.call("fs.write", WRITE)).state is CallState.SUCCEEDED


@pytest.mark.promise("P-approval-shown")
async def test_what_a_person_approves_is_what_the_record_shows(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.write", json.dumps(WRITE))
        kind, payload = harness.events(kind="approval.requested")[0]
        assert kind and payload["argument_digest"] == asked.argument_digest
        with pytest.raises(PalyraError) as refused:
            await harness.approve(asked.approval_id, argument_digest="0" * 64)
        assert refused.value.code == "approval.changed_call"


@pytest.mark.parametrize(
    ("scope", "exact"),
    [(ApprovalScope.ONCE, True), (ApprovalScope.SESSION, True), (ApprovalScope.TIMEBOXED, False)],
)
async def test_a_yes_to_many_calls_is_no_yes_to_what_one_of_them_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: ApprovalScope, exact: bool
) -> None:
    """Secrets and hosts that need approval are opened by a person who was shown them, and by nothing wider."""
    seen: list[bool] = []
    execute = FilesExecutor.execute

    async def watched(self: FilesExecutor, plan: ExecutionPlan) -> ExecutorOutcome:
        seen.append(plan.approved)
        return await execute(self, plan)

    monkeypatch.setattr(FilesExecutor, "execute", watched)
    async with open_harness(tmp_path) as harness:
        asked = await harness.call("fs.list", {"path": "."}, session="s")
        await harness.approve(asked.approval_id, scope=scope, expires_ms=harness.gateway.clock.now_ms() + 60_000)
        done = await harness.call("fs.list", {"path": "."}, session="s")
        assert done.state is CallState.SUCCEEDED
    assert seen == [exact]


@pytest.mark.promise("P-budget-own")
async def test_no_refused_call_gets_into_somebody_elses_run(tmp_path: Path) -> None:
    """One that is wrong in itself is refused before anybody asks whose run it names: enough of them would push the
    owner's own calls out of the timeline."""
    async with open_harness(tmp_path) as harness:
        run_id = await harness.open_run("agent:victim")
        own = await harness.call("echo", {"text": "mine"}, principal="agent:victim", run_id=run_id)
        before = harness.kinds(run=str(run_id))
        wrong: tuple[tuple[str, str], ...] = (
            ("no.such.tool", "{}"),
            ("echo", '{"text":1}'),
            ("echo", "{"),
            ("sleep", "{}"),
        )
        for tool, arguments in wrong:
            forged = await harness.call(tool, arguments, principal="agent:thief", run_id=run_id)
            assert forged.state is CallState.REFUSED and forged.run_id == ""
        assert harness.kinds(run=str(run_id)) == before
        assert list_recent_calls(harness.gateway.store, str(run_id), None, 10) == [own]
        assert list_recent_calls(harness.gateway.store, str(run_id), "agent:victim", 1) == [own]


@pytest.mark.promise("P-budget-exact")
async def test_calls_that_start_at_the_same_moment_do_not_pass_the_bound_together(tmp_path: Path) -> None:
    settings = {"tools": {**SETTINGS["tools"], "max_concurrent_calls": 2}}
    async with open_harness(tmp_path, settings) as harness, asyncio.TaskGroup() as group:
        go_on = asyncio.Event()

        async def think(_plan: ExecutionPlan) -> str:
            await go_on.wait()
            return "done"

        executor = give_tool(harness, think)
        # Of a run that is open already nothing is foretold: each call is written down before it starts.
        run_id = await harness.open_run()
        calling = [group.create_task(harness.call(TOOL, {}, run_id=run_id)) for _ in range(12)]
        await eventually(lambda: len(executor.plans) + sum(each.done() for each in calling) >= len(calling))
        assert len(executor.plans) == 2
        go_on.set()
    states = [each.result().state for each in calling]
    assert states.count(CallState.SUCCEEDED) == 2 and states.count(CallState.REFUSED) == 10
