"""The four process tools over a real runner."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.egress_proxy import FakeNetworkProxy
from fakes.eventually import eventually
from fakes.processes import marked, new_mark
from palyra.errors import PalyraError
from palyra.executors.process import executor, spec
from palyra.executors.process.executor import ProcessTools, TooManyBackground, UnknownHandle
from palyra.json_schema import SchemaCheck
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.sandbox.domain.process_run import InvalidCommand, ProcessTimedOut, SpawnFailed
from palyra.sandbox.domain.profile import SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.runner import ProcessRunner, RunnerSettings


def plan(run_id: str, tool: str, arguments: dict[str, Any]) -> ExecutionPlan:
    return ExecutionPlan(
        call_id="call",
        run_id=run_id,
        tool=tool,
        arguments=arguments,
        workspace="/",
        timeout_ms=1000,
        max_output_bytes=1000,
    )


class GatewayHarness:
    def __init__(self, base: Path) -> None:
        self.workspace = base / "workspace"
        self.scratch = base / "scratch"
        self.workspace.mkdir()
        self.scratch.mkdir()
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch)))
        self.tools = ProcessTools(self.runner)

    async def call(
        self, tool: str, run: str = "run", limits: SandboxLimits | None = None, **arguments: Any
    ) -> ExecutorOutcome:
        profile = SandboxProfile(
            workspace_root=str(self.workspace),
            tier=SandboxTier.B,
            allow_interpreters=True,
            limits=limits or SandboxLimits(),
        )
        done = await self.tools.perform(plan(run, tool, arguments), profile)
        SchemaCheck(_OUTPUTS[tool]).require(done.result)
        return done

    async def start(self, script: str, **more: Any) -> str:
        done = await self.call("process.start", command="sh", args=["-c", script], **more)
        handle: str = done.result["handle"]
        return handle

    async def ended(self, handle: str) -> dict[str, Any]:
        async def last_look() -> dict[str, Any]:
            looked: dict[str, Any] = (await self.call("process.logs", handle=handle)).result
            return looked if looked["state"] != "running" else {}

        return await eventually(last_look)


_OUTPUTS = {
    "process.run": spec.RUN_OUTPUT,
    "process.start": spec.START_OUTPUT,
    "process.logs": spec.LOGS_OUTPUT,
    "process.stop": spec.STOP_OUTPUT,
}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GatewayHarness]:
    harness = GatewayHarness(tmp_path)
    yield harness
    await harness.tools.close()
    await harness.runner.close()
    assert os.listdir(harness.scratch) == []


async def test_run_returns_what_was_printed(harness: GatewayHarness) -> None:
    done = await harness.call("process.run", command="sh", args=["-c", "echo out; echo err >&2; exit 4"])
    assert done.error is None and done.receipt
    assert (done.result["exit_code"], done.result["stdout"], done.result["stderr"]) == (4, "out\n", "err\n")
    with pytest.raises(InvalidCommand):
        await harness.call("process.run", command="sh", shell=True)


@pytest.mark.parametrize(
    ("script", "shown", "encoding"),
    [
        ("printf '\\377\\376'", "//4=", "base64"),
        ("printf 'text \\303\\274'", "text ü", "utf-8"),
        # The last byte is a fault of the program's, and is kept: nothing was cut.
        ("printf 'abc\\377'", "YWJj/w==", "base64"),
        ("printf 'abc\\303'", "YWJjww==", "base64"),
    ],
)
async def test_bytes_that_are_no_text_come_as_base64(
    harness: GatewayHarness, script: str, shown: str, encoding: str
) -> None:
    result = (await harness.call("process.run", command="sh", args=["-c", script])).result
    assert (result["stdout"], result["stdout_encoding"]) == (shown, encoding)


async def test_a_quota_that_cuts_a_character_leaves_text(harness: GatewayHarness) -> None:
    limits = SandboxLimits(max_output_bytes=4)
    done = await harness.call("process.run", limits=limits, command="printf", args=["abcüü"])
    assert done.error is not None and done.error.code == "sandbox.quota_exceeded"
    assert (done.result["stdout"], done.result["stdout_encoding"]) == ("abc", "utf-8")
    assert done.result["stdout_truncated"]


async def test_a_deadline_keeps_the_partial_result(harness: GatewayHarness) -> None:
    # The first is enough for a program to begin, but for a machine that is busy with others.
    for timeout_ms in (300, 2_000, 10_000):
        words = ["-c", "echo a; touch printed; sleep 600"]
        limits = SandboxLimits(timeout_ms=timeout_ms)
        done = await harness.call("process.run", limits=limits, command="sh", args=words)
        assert isinstance(done.error, ProcessTimedOut) and done.receipt and done.result["killed_by"] == "timeout_ms"
        if (harness.workspace / "printed").exists():
            break
    assert done.result["stdout"] == "a\n"


async def test_start_logs_stop(harness: GatewayHarness) -> None:
    mark = new_mark()
    handle = await harness.start(f"echo one; echo two >&2; sleep 60 & : {mark}; sleep 60")

    async def printed() -> Any:
        looked = (await harness.call("process.logs", handle=handle)).result
        return looked if looked["content"] else None

    looked = await eventually(printed)
    assert looked["state"] == "running" and looked["content"] == "one\n" and looked["next_offset"] == 4
    assert (await harness.call("process.logs", handle=handle, offset=4)).result["content"] == ""
    errors = (await harness.call("process.logs", handle=handle, stream="stderr")).result
    assert errors["content"] == "two\n"
    stopped = await harness.call("process.stop", handle=handle)
    assert stopped.result["state"] == "killed" and stopped.result["killed_by"] == "process.stop" and stopped.receipt
    assert marked(mark) == {}
    again = (await harness.call("process.stop", handle=handle)).result
    assert again["state"] == "killed"
    assert (await harness.call("process.logs", handle=handle)).result["signal"] == 9


async def test_run_in_the_background_is_start(harness: GatewayHarness) -> None:
    done = await harness.call("process.run", command="echo", args=["hi"], background=True)
    ended = await harness.ended(done.result["handle"])
    assert ended["content"] == "hi\n" and ended["state"] == "exited" and ended["exit_code"] == 0


async def test_another_runs_handle_looks_like_a_missing_one(harness: GatewayHarness) -> None:
    handle = await harness.start("sleep 60")
    said = []
    for tool in ("process.logs", "process.stop"):
        for run, used in (("other", handle), ("run", "nonsense")):
            with pytest.raises(UnknownHandle) as refused:
                await harness.call(tool, run=run, handle=used)
            said.append(refused.value.as_dict())
    assert all(each == said[0] for each in said)
    assert (await harness.call("process.logs", handle=handle)).result["state"] == "running"


async def test_a_look_never_cuts_a_character_and_loses_no_byte(harness: GatewayHarness) -> None:
    text = "aü☃𝄞" * 50
    handle = await harness.start("cat", stdin=text)
    await harness.ended(handle)
    for limit in (4, 5, 7, 1000):
        offset, seen = 0, ""
        while True:
            looked = (await harness.call("process.logs", handle=handle, offset=offset, limit=limit)).result
            assert looked["encoding"] == "utf-8" and looked["offset"] == offset
            if not looked["content"]:
                break
            seen += looked["content"]
            offset = looked["next_offset"]
        assert seen == text


async def test_the_deadline_of_a_background_program_may_be_shorter(harness: GatewayHarness) -> None:
    handle = await harness.start("sleep 60", timeout_ms=200)
    assert (await harness.ended(handle))["state"] == "killed"
    assert (await harness.call("process.stop", handle=handle)).result["killed_by"] == "timeout_ms"


async def test_a_flood_in_the_background_is_ended(harness: GatewayHarness) -> None:
    limits = SandboxLimits(max_output_bytes=100)
    handle = (await harness.call("process.start", limits=limits, command="yes")).result["handle"]
    looked = await harness.ended(handle)
    assert looked["state"] == "killed" and looked["truncated"] and len(looked["content"]) == 100


async def test_what_cannot_be_started_is_refused_at_once(harness: GatewayHarness) -> None:
    with pytest.raises(SpawnFailed):
        await harness.call("process.start", command="no-such-program")
    with pytest.raises(PalyraError):
        await harness.call("process.start", command="ls", args=["/etc/shadow"])


async def test_only_so_many_in_one_run(harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MAX_BACKGROUND_PER_RUN", 2)
    monkeypatch.setattr(executor, "MAX_ENDED_PER_RUN", 1)
    handles = [await harness.start("sleep 60") for _ in range(2)]
    with pytest.raises(TooManyBackground):
        await harness.start("sleep 60")
    await harness.start("sleep 60", run="other")
    for handle in handles:
        await harness.call("process.stop", handle=handle)
    await harness.start("true")
    # The oldest of those that ended is forgotten.
    with pytest.raises(UnknownHandle):
        await harness.call("process.logs", handle=handles[0])


async def test_closing_ends_everything(harness: GatewayHarness) -> None:
    mark = new_mark()
    for _ in range(3):
        await harness.start(f"sleep 60; : {mark}")
    await eventually(lambda: marked(mark))
    await harness.tools.close()
    assert marked(mark) == {}


async def test_cancelling_a_start_leaves_nothing(harness: GatewayHarness) -> None:
    await harness.start("true")
    for step in range(8):
        starting = asyncio.create_task(harness.start("sleep 62.25"))
        await asyncio.sleep(step * 0.001)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
    await harness.tools.close()
    await eventually(lambda: not marked("62.25"))


async def test_a_door_is_the_calls_own_in_the_background_too(harness: GatewayHarness) -> None:
    profile = SandboxProfile(
        workspace_root=str(harness.workspace), allow_interpreters=True, allowed_egress_hosts=("a.example:443",)
    )
    proxy = FakeNetworkProxy({("a.example", 443): ("127.0.0.1", 1)})
    for tool in ("process.run", "process.start"):
        arguments = {"command": "sleep", "args": ["0" if tool == "process.run" else "60"]}
        done = await harness.tools.perform(plan("run", tool, arguments), profile, proxy)
        assert any(line["layer"] == "egress" and line["held"] for line in done.receipt)
    ran, started = proxy.handles
    assert ran.closed and not started.closed
    stopped = await harness.call("process.stop", handle=done.result["handle"])
    assert started.closed
    assert "0 connections" in next(line["got"] for line in stopped.receipt if line["layer"] == "egress")
