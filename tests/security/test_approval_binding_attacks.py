"""Class *Approvals and budgets*: after the yes something else is put in the place of what the person saw."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from fakes.console_user import console_user
from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.raw_http import ask, operator
from fakes.wasm_guests import wasm
from palyra.executors.inspection import CallInspector
from palyra.pipeline.domain.approval import Approval, ApprovalScope
from palyra.pipeline.domain.call import CallRecord, CallState, ExecutionPlan
from palyra.pipeline.domain.spec import ToolTier
from palyra.pipeline.store.approval_tables import read_approval
from palyra.server.http.app import create_app

pytestmark = pytest.mark.promise("P-approval-exact")

SETTINGS: dict[str, Any] = {
    "sandbox": {"tier": "b", "allow_interpreters": True},
    "tools": {"allowed": ["*"], "preapproved": ["fs.*"]},
}
LEASES = '@id("lease") permit (principal, action == Action::"worker.lease", resource);'
GOOD, EVIL = "echo good\n", "echo evil\n"


def run(command: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"command": command, "args": list(args), **more}


def program(path: Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o755)


async def approved(harness: GatewayHarness, arguments: dict[str, Any], **scope: Any) -> Approval:
    asked = await harness.call("process.run", arguments)
    assert asked.state is CallState.NEEDS_APPROVAL, asked.error
    return await harness.approve(asked.approval_id, **scope)


async def asks_again(harness: GatewayHarness, arguments: dict[str, Any], approval: Approval, **more: Any) -> CallRecord:
    again = await harness.call("process.run", arguments, **more)
    assert again.state is CallState.NEEDS_APPROVAL and again.approval_id != approval.id, again.result
    assert "call.started" not in harness.kinds(call=again.call_id)
    return again


async def test_a_yes_for_here_does_not_send_the_workspace_to_a_worker(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.cedar").write_text(LEASES)
    async with open_harness(tmp_path, SETTINGS) as harness:
        (harness.workspace / "secret.txt").write_text("12345")
        for scope in ({}, {"scope": ApprovalScope.TIMEBOXED}):
            arguments = run("echo", str(len(scope)))
            approval = await approved(harness, arguments, **scope)
            assert approval.runs == "here, in tier b" and "worker" not in approval.in_words()
            again = await asks_again(harness, arguments, approval, tier=ToolTier.WORKER)
            app, token = create_app(harness.gateway.service), await operator(harness)
            answer = await ask(app, "GET", f"/v1/approvals/{again.approval_id}", token=token)
            shown = answer.data
            assert shown["place"] == "worker" and shown["sends"]["files"] == 1 and shown["sends"]["bytes"] == 5
            assert shown["runs"] == "on a worker, in tier b: sends the whole workspace there (1 file, 5 bytes)"
            assert "on a worker" in shown["meaning"]


async def test_a_policy_that_sends_the_call_elsewhere_makes_it_another_call(tmp_path: Path) -> None:
    """By the channel, so that the policies stay the same."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a.cedar").write_text(
        LEASES + '@id("away") @obligation_tier("worker") permit (principal, action == Action::"tool.execute", resource)'
        ' when { context.channel == Channel::"api" };'
    )
    async with open_harness(tmp_path, SETTINGS) as harness:
        approval = await approved(harness, run("echo", "x"))
        again = await asks_again(harness, run("echo", "x"), approval, channel="api")
        assert "on a worker" in read_approval(harness.gateway.store, again.approval_id or "").runs


@pytest.mark.parametrize(
    "arguments",
    [
        run("bash", "build.sh"),
        run("bash", "./build.sh"),
        run("bash", "-c", "./build.sh && true"),
        run("bash", "-c", "cat</dev/null;bash 'build.sh'"),
        run("bash", "-eubuild.sh", "build.sh"),
        run("bash", "--rcfile=build.sh", "-c", "true"),
        run("bash", "build.sh", cwd="sub/.."),
        run("bash", "../build.sh", cwd="sub"),
        run("bash", "-c", './bu"il"d.sh'),
        run("bash", "-c", ". ./bui\\ld.sh"),
        run("bash", "-c", '. "$PWD/build.sh"; true'),
        run("bash", "-c", ". ${PWD}/build.sh"),
        run("bash", "-c", ". /proc/self/cwd/build.sh"),
        run("bash", "-c", "echo 'not closed; ./build.sh"),
        run("env", "bash", "build.sh"),
        run("bash", "-c", '. "$SCRIPT"', env={"SCRIPT": "build.sh"}),
        run("bash", stdin=". ./build.sh"),
        run("./build.sh"),
        run("bash", "-c", "cd .. && ./build.sh", cwd="sub"),
        run("env", "-C", "..", "bash", "build.sh", cwd="sub"),
        run("bash", "-c", "build.sh", env={"PATH": "..:/usr/bin:/bin"}, cwd="sub"),
        run("bash", "-c", 'bash bu""ild.sh'),
        run("bash", "-c", "bash -c 'bash b\\uild.sh'"),
        run("bash", "-c", 'bash "$PWD/build.sh"'),
        run("bash", "-c", "bash ~+/build.sh"),
        run("bash", "-c", "bash /proc/self/cwd/build.sh"),
        run("git", "-c", "alias.x=!./build.sh", "x"),
    ],
    ids=lambda each: " ".join([each["command"], *each["args"]]),
)
async def test_a_script_that_the_agent_changes_after_the_yes_asks_again(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        (harness.workspace / "sub").mkdir()
        program(harness.workspace / "build.sh", "#!/bin/sh\n" + GOOD)
        for scope in (ApprovalScope.ONCE, ApprovalScope.SESSION):
            asked = await harness.call("process.run", arguments, session="s")
            approval = await harness.approve(asked.approval_id, scope=scope)
            bound = [file for file in approval.binding.files if file.real == "build.sh"]
            assert bound and all(len(file.sha256) == 64 for file in bound)
            written = await harness.call(
                "fs.write", {"path": "build.sh", "content": f"#!/bin/sh\n# {scope.value}\n{EVIL}", "mode": "overwrite"}
            )
            assert written.state is CallState.SUCCEEDED
            await asks_again(harness, arguments, approval, session="s")


@pytest.mark.parametrize(
    "arguments",
    [
        run("bash", "-c", "cd sub && cd deep && bash './my build.sh'"),
        run("bash", "-c", "# don't\nbash 'sub/deep/my build.sh'"),
        run("bash", "-c", "cd sub/deep; bash my\\ build.sh"),
        run("bash", "-c", 'bash "$D/my build.sh"', env={"D": "sub/deep"}),
        run("env", "--chdir=sub/deep", "bash", "my build.sh"),
        run("bash", stdin="cd sub/deep\n. './my build.sh'\n"),
    ],
    ids=lambda each: " ".join([each["command"], *each["args"]]),
)
async def test_a_script_in_a_directory_that_another_word_names_is_bound(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        script = harness.workspace / "sub" / "deep" / "my build.sh"
        script.parent.mkdir(parents=True)
        program(script, GOOD)
        await approved(harness, arguments)
        assert (await harness.call("process.run", arguments)).result["stdout"] == "good\n"
        approval = await approved(harness, arguments)
        script.write_text(EVIL)
        await asks_again(harness, arguments, approval)


@pytest.mark.parametrize("problem", ["too many names", "no right to list"])
async def test_a_script_in_a_directory_that_cannot_be_listed_is_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    if problem == "too many names":
        monkeypatch.setattr("palyra.executors.inspection.MAX_LISTED_NAMES", 1)
    else:
        # The rights alone would not do: root lists every directory.
        monkeypatch.setattr("palyra.executors.inspection.os.scandir", _refuse_to_list)
    async with open_harness(tmp_path, SETTINGS) as harness:
        script = harness.workspace / "sub" / "build.sh"
        script.parent.mkdir()
        (script.parent / "other").touch()
        program(script, GOOD)
        for arguments in (run("bash", "-c", "cd sub && ./build.sh"), run("env", "-C", "./sub", "bash", "build.sh")):
            approval = await approved(harness, arguments)
            script.write_text(script.read_text() + EVIL)
            await asks_again(harness, arguments, approval)


def _refuse_to_list(directory: str) -> Any:
    raise PermissionError(directory)


async def test_an_unchanged_script_runs_and_the_record_names_its_digest(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        program(harness.workspace / "build.sh", GOOD)
        approval = await approved(harness, run("bash", "build.sh"))
        ran = await harness.call("process.run", run("bash", "build.sh"))
        assert ran.state is CallState.SUCCEEDED and ran.result["stdout"] == "good\n", ran.error
        (noted,) = [payload for kind, payload in harness.events() if kind == "approval.approved"]
        assert [file["sha256"] for file in noted["files"]] == [file.sha256 for file in approval.binding.files]
        assert approval.binding.programs[0].real.startswith("/")


async def test_a_link_that_is_turned_to_another_script_asks_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        good, evil, link = (harness.workspace / name for name in ("good.sh", "evil.sh", "build.sh"))
        for path in (good, evil):
            path.write_text(GOOD)
        for target in ("good.sh", str(good)):
            arguments = run("bash", "build.sh", target)
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            approval = await approved(harness, arguments)
            link.unlink()
            link.symlink_to("evil.sh")
            await asks_again(harness, arguments, approval)


async def test_a_folder_on_the_way_that_is_exchanged_asks_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        for name, content in (("a", GOOD), ("b", EVIL)):
            (harness.workspace / name).mkdir()
            (harness.workspace / name / "build.sh").write_text(content)
        approval = await approved(harness, run("bash", "a/build.sh"))
        (harness.workspace / "a").rename(harness.workspace / "c")
        (harness.workspace / "a").symlink_to("b")
        await asks_again(harness, run("bash", "a/build.sh"), approval)


async def test_a_script_that_was_not_there_at_the_yes_asks_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        approval = await approved(harness, run("bash", "later.sh"))
        (harness.workspace / "later.sh").write_text(EVIL)
        await asks_again(harness, run("bash", "later.sh"), approval)


async def test_an_interpreter_of_the_workspace_in_a_first_line_is_bound_too(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        program(harness.workspace / "interpreter", "#!/bin/sh\n" + GOOD)
        program(harness.workspace / "build.sh", f"#!{harness.workspace}/interpreter\n")
        approval = await approved(harness, run("./build.sh"))
        program(harness.workspace / "interpreter", "#!/bin/sh\n" + EVIL)
        await asks_again(harness, run("./build.sh"), approval)


@pytest.mark.parametrize("scope", ["once", "timeboxed", "pattern"])
async def test_a_program_of_the_workspace_that_is_replaced_asks_again(tmp_path: Path, scope: str) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        tool = harness.workspace / "tool"
        shutil.copy("/usr/bin/true", tool)
        pattern = {"pattern": {"command": "./tool"}} if scope == "pattern" else {}
        approval = await approved(harness, run("./tool"), scope=ApprovalScope(scope), **pattern)
        tool.unlink()
        program(tool, "#!/bin/sh\n" + EVIL)
        await asks_again(harness, run("./tool"), approval)


async def test_a_program_that_shadows_the_approved_one_asks_again(tmp_path: Path) -> None:
    """A folder on PATH that an agent can write: an operator's mistake, which a yes must not make worse."""
    tools = tmp_path / "tools"
    tools.mkdir()
    settings = {
        **SETTINGS,
        "sandbox": {**SETTINGS["sandbox"], "tool_roots": [str(tools)], "env": {"PATH": f"{tools}:/usr/bin"}},
    }
    async with open_harness(tmp_path, settings) as harness:
        for scope in (ApprovalScope.ONCE, ApprovalScope.TIMEBOXED):
            approval = await approved(harness, run("id", "-u"), scope=scope)
            assert approval.binding.programs[0].real == "/usr/bin/id"
            program(tools / "id", "#!/bin/sh\n" + EVIL)
            await asks_again(harness, run("id", "-u"), approval)
            (tools / "id").unlink()
            assert (await harness.call("process.run", run("id", "-u"))).state is CallState.SUCCEEDED


@pytest.mark.parametrize("scope", ["timeboxed", "pattern"])
async def test_a_wider_yes_covers_no_other_program_and_says_what_it_leaves_free(tmp_path: Path, scope: str) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        (harness.workspace / "build.sh").write_text(GOOD)
        pattern = {"pattern": {"command": "*"}} if scope == "pattern" else {}
        approval = await approved(harness, run("bash", "build.sh"), scope=ApprovalScope(scope), **pattern)
        assert "whatever the files hold" in approval.in_words() and "/bash as it is now" in approval.in_words()
        (harness.workspace / "build.sh").write_text("echo better\n")
        assert (await harness.call("process.run", run("bash", "build.sh"))).result["stdout"] == "better\n"
        await asks_again(harness, run("python3", "-c", "1"), approval)


async def test_a_script_swapped_between_the_decision_and_the_start_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call waits for its turn after its approval was used up. The attacker has all that time."""
    async with open_harness(tmp_path, SETTINGS) as harness:
        (harness.workspace / "build.sh").write_text(GOOD)
        processes = harness.gateway.processes
        verify = processes._verify

        def swap_first(plan: ExecutionPlan) -> None:
            (harness.workspace / "build.sh").write_text(EVIL)
            verify(plan)

        for tool in ("process.run", "process.start"):
            (harness.workspace / "build.sh").write_text(GOOD)
            asked = await harness.call(tool, run("bash", "build.sh"))
            await harness.approve(asked.approval_id)
            with monkeypatch.context() as patched:
                patched.setattr(processes, "_verify", swap_first)
                ran = await harness.call(tool, run("bash", "build.sh"))
            assert ran.error is not None and ran.error["code"] == "approval.changed_file", ran.result
            again = await harness.call(tool, run("bash", "build.sh"))
            assert again.state is CallState.NEEDS_APPROVAL


async def test_a_script_that_changes_while_the_person_decides_asks_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        (harness.workspace / "build.sh").write_text(GOOD)
        asked = await harness.call("process.run", run("bash", "build.sh"))
        waiting = asyncio.create_task(harness.call("process.run", run("bash", "build.sh"), wait_ms=3000))
        await eventually(lambda: bool(harness.gateway.broker._approvals.waiting))
        (harness.workspace / "build.sh").write_text(EVIL)
        await harness.approve(asked.approval_id)
        ended = await waiting
        assert ended.state is CallState.NEEDS_APPROVAL and ended.approval_id != asked.approval_id


async def test_a_module_that_is_exchanged_after_the_yes_does_not_run(tmp_path: Path) -> None:
    settings = {
        "wasm": {"workspace_modules": True},
        "access": {"principals": ["*"], "operators": ["agent:bot", "user:alice"]},
        "tools": {"allowed": ["*"]},
    }
    async with open_harness(tmp_path, settings) as harness:
        module = harness.workspace / "m.wasm"
        module.write_bytes(wasm("(module)"))
        asked = await harness.call("plugin.run", {"path": "m.wasm"})
        approval = await harness.approve(asked.approval_id)
        assert approval.binding.programs[0].real == "m.wasm"
        module.write_bytes(wasm("(module (memory 1))"))
        again = await harness.call("plugin.run", {"path": "m.wasm"})
        assert again.state is CallState.NEEDS_APPROVAL and again.approval_id != asked.approval_id


async def test_the_console_does_not_call_a_changed_script_what_was_approved_before(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        known, script = await console_user(harness), harness.workspace / "build.sh"
        script.write_text(GOOD)
        approval = await approved(harness, run("bash", "build.sh"))
        script.write_text(EVIL)
        again = await asks_again(harness, run("bash", "build.sh"), approval)
        page = await known.page(f"/approvals/{again.approval_id}")
        assert "The same arguments were approved" in page
        assert "Not as it was then: its program and the files that it names." in page
        script.write_text(GOOD)
        await harness.call("process.run", run("bash", "build.sh"))
        same = await harness.call("process.run", run("bash", "build.sh"))
        page = await known.page(f"/approvals/{same.approval_id}")
        assert "The same arguments were approved" in page and "Not as it was then" not in page


async def test_a_call_without_a_question_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a preapproved call was inspected")

    settings = {**SETTINGS, "tools": {"allowed": ["*"], "preapproved": ["*"]}}
    async with open_harness(tmp_path, settings) as harness:
        (harness.workspace / "build.sh").write_text(GOOD)
        monkeypatch.setattr(CallInspector, "_list_files", refuse)
        assert (await harness.call("process.run", run("bash", "build.sh"))).result["stdout"] == "good\n"


async def test_more_files_than_a_person_can_look_through_are_refused(tmp_path: Path) -> None:
    async with open_harness(tmp_path, SETTINGS) as harness:
        (harness.workspace / "d").mkdir()
        for number in range(300):
            (harness.workspace / "d" / str(number)).write_text(GOOD)
        words = " ".join(f"d/{number}" for number in range(300))
        refused = await harness.call("process.run", run("bash", "-c", f"cat {words}"))
        assert refused.error is not None and refused.error["code"] == "approval.too_many_files"


async def test_a_file_too_large_to_read_is_bound_to_its_time_of_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palyra.executors.inspection.MAX_BOUND_BYTES", 4)
    async with open_harness(tmp_path, SETTINGS) as harness:
        script = harness.workspace / "build.sh"
        script.write_text(GOOD)
        approval = await approved(harness, run("bash", "build.sh"))
        assert all(file.stamp and not file.sha256 for file in approval.binding.files)
        assert (await harness.call("process.run", run("bash", "build.sh"))).state is CallState.SUCCEEDED
        approval = await approved(harness, run("bash", "build.sh"))
        script.write_text(EVIL)
        await asks_again(harness, run("bash", "build.sh"), approval)
