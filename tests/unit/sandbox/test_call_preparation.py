"""What a call holds: taken by one look, checked before anything of it is in a sandbox, given back however it ends."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.processes import descendants
from palyra.sandbox import preparation
from palyra.sandbox.domain.process_run import InterpreterDenied, ProcessCommand, WorkspaceScopeDenied
from palyra.sandbox.domain.profile import SandboxProfile, SandboxTier
from palyra.sandbox.launch.built_sandbox import WaitingSandbox
from palyra.sandbox.preparation import Call, CallPreparation, Prepared
from palyra.sandbox.runner import ProcessRunner, RunnerSettings


class Harness:
    def __init__(self, base: Path) -> None:
        self.workspace, self.scratch = base / "workspace", base / "scratch"
        self.workspace.mkdir()
        self.scratch.mkdir()
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch), warm=False))
        self.profile = SandboxProfile(workspace_root=str(self.workspace), protected_names=(".env",))

    async def run(self, command: str, *args: str, tier: SandboxTier = SandboxTier.C) -> int | None:
        profile = SandboxProfile(workspace_root=str(self.workspace), tier=tier, protected_names=(".env",))
        wanted = ProcessCommand(command=command, args=args)
        return (await self.runner.run_constrained_process(profile, wanted)).exit_code


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(tmp_path)
    # The first call of a workspace is looked at by a thread; from then on it is known to be quick.
    await harness.run("true")
    yield harness
    await harness.runner.close()
    assert os.listdir(harness.scratch) == []


def builders() -> list[int]:
    def is_builder(pid: int) -> bool:
        try:
            return b"bwrap" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return [pid for pid in descendants(os.getpid()) if is_builder(pid)]


@pytest.mark.parametrize(
    ("command", "args", "refusal"),
    [("sh", ("-c", "touch planted"), InterpreterDenied), ("cat", ("../../etc/shadow",), WorkspaceScopeDenied)],
)
async def test_a_call_that_is_refused_while_its_sandbox_is_built_leaves_neither(
    harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    args: tuple[str, ...],
    refusal: type[Exception],
) -> None:
    started: list[object] = []
    monkeypatch.setattr(WaitingSandbox, "start", lambda *given: started.append(given))
    for _ in range(3):
        with pytest.raises(refusal):
            await harness.run(command, *args)
    assert started == []
    await eventually(lambda: not builders())
    assert os.listdir(harness.workspace) == []


async def test_the_command_is_checked_once_and_before_the_sandbox_gets_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def told(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def telling(*given: Any, **more: Any) -> Any:
            order.append(name)
            return do(*given, **more)

        return telling

    monkeypatch.setattr(preparation, "check_before_spawn", told("check", preparation.check_before_spawn))
    monkeypatch.setattr(preparation, "gather_workspace", told("look", preparation.gather_workspace))
    monkeypatch.setattr(WaitingSandbox, "look", told("read back", WaitingSandbox.look))
    monkeypatch.setattr(WaitingSandbox, "start", told("start", WaitingSandbox.start))
    assert await harness.run("true") == 0
    assert sorted(order) == ["check", "look", "read back", "start"]
    assert order[-1] == "start"


@pytest.mark.parametrize("tier", list(SandboxTier))
async def test_a_quick_call_changes_no_threads(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, tier: SandboxTier
) -> None:
    # Also on a machine that is busy with something else.
    monkeypatch.setattr("palyra.sandbox.limits.QUICK_SECONDS", 600.0)
    await harness.run("true", tier=tier)
    elsewhere: list[object] = []
    real = asyncio.to_thread

    async def told(do: Callable[..., Any], *given: Any) -> Any:
        if getattr(do, "__self__", None) is harness.runner._calls:
            elsewhere.append(do)
        return await real(do, *given)

    monkeypatch.setattr(asyncio, "to_thread", told)
    assert await harness.run("true", tier=tier) == 0
    assert elsewhere == []


async def test_a_workspace_that_grew_is_looked_through_by_a_thread(harness: Harness) -> None:
    for number in range(3000):
        (harness.workspace / f"file-{number}").touch()
    assert await harness.run("true") == 0
    (harness.workspace / ".env").touch()
    assert await harness.run("true") == 0


async def test_what_is_prepared_can_be_given_back_unused(harness: Harness) -> None:
    calls: CallPreparation = harness.runner._calls
    host, network = harness.runner._guard_host(harness.profile), preparation.SandboxNetwork(None, None)  # type: ignore[arg-type]
    call = Call(profile=harness.profile, command=ProcessCommand(command="true"), host=host, network=network)
    prepared: Prepared = await calls.prepare(call)
    assert prepared.group not in harness.runner._cgroups._free
    assert calls.checked(prepared) is calls.checked(prepared)
    await calls.finish(prepared, None)
    assert prepared.group.empty()
