"""A prepared call: checked before its sandbox gets a word of it, and given back however it ends."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.processes import descendants
from palyra.sandbox import runner
from palyra.sandbox.domain.process_run import InterpreterDenied, ProcessCommand, WorkspaceScopeDenied
from palyra.sandbox.domain.profile import EgressEnforcementMode, SandboxProfile, SandboxTier
from palyra.sandbox.guards.checks import build_guard_host, check_before_spawn
from palyra.sandbox.launch.built_sandbox import PrewarmedSandbox
from palyra.sandbox.layers.seccomp import build_tier_b_filter, build_tier_c_filter
from palyra.sandbox.runner import ProcessRunner, RunnerSettings, filter_of, program_inside


class Harness:
    def __init__(self, base: Path) -> None:
        self.workspace, self.scratch = base / "workspace", base / "scratch"
        self.workspace.mkdir()
        self.scratch.mkdir()
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch), prewarm=False))
        self.profile = SandboxProfile(workspace_root=str(self.workspace), protected_names=(".env",))

    async def run(self, command: str, *args: str, tier: SandboxTier = SandboxTier.C) -> int | None:
        profile = SandboxProfile(workspace_root=str(self.workspace), tier=tier, protected_names=(".env",))
        wanted = ProcessCommand(command=command, args=args)
        return (await self.runner.run_constrained_process(profile, wanted)).exit_code


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(tmp_path)
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
async def test_a_refused_call_starts_nothing(
    harness: Harness,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    args: tuple[str, ...],
    refusal: type[Exception],
) -> None:
    started: list[object] = []
    monkeypatch.setattr(PrewarmedSandbox, "start", lambda *given: started.append(given))
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

    def note(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **more: Any) -> Any:
            order.append(name)
            return do(*given, **more)

        return noted

    monkeypatch.setattr(runner, "check_before_spawn", note("check", runner.check_before_spawn))
    monkeypatch.setattr(runner, "gather_workspace", note("look", runner.gather_workspace))
    monkeypatch.setattr(PrewarmedSandbox, "complete", note("read back", PrewarmedSandbox.complete))
    monkeypatch.setattr(PrewarmedSandbox, "start", note("start", PrewarmedSandbox.start))
    assert await harness.run("true") == 0
    assert order == ["check", "look", "read back", "start"]


async def test_a_workspace_with_many_files_and_a_new_protected_name(harness: Harness) -> None:
    for number in range(3000):
        (harness.workspace / f"file-{number}").touch()
    assert await harness.run("true") == 0
    (harness.workspace / ".env").touch()
    assert await harness.run("true") == 0


async def test_a_prepared_call_can_be_given_back_unused(harness: Harness) -> None:
    subject = harness.runner
    host, network = subject._guard_host(harness.profile), runner.SandboxNetwork(None, None)  # type: ignore[arg-type]
    call = await subject._prepare(harness.profile, ProcessCommand(command="true"), host, network)
    assert call.group not in subject._cgroups._free
    await subject._finish(call, None)
    assert call.group.empty()


def test_a_shared_network_has_the_filter_that_keeps_its_sockets_apart() -> None:
    strict = SandboxProfile(workspace_root="/srv/space")
    shared = SandboxProfile(workspace_root="/srv/space", egress=EgressEnforcementMode.PREFLIGHT)
    assert filter_of(strict) == build_tier_c_filter("x86_64") != build_tier_b_filter("x86_64") == filter_of(shared)


def test_the_program_is_the_file_that_was_judged_with_the_words_that_were_given(tmp_path: Path) -> None:
    profile = SandboxProfile(workspace_root=str(tmp_path), env=(("A", "b"),))
    checked = check_before_spawn(profile, ProcessCommand(command="true", args=("x y", "")), build_guard_host(profile))
    program = program_inside(profile, checked)
    assert program.argv == (b"true", b"x y", b"") and program.program == b"/usr/bin/true"
    assert dict(program.env)[b"A"] == b"b" and dict(program.env)[b"PWD"] == program.cwd == str(tmp_path).encode()
    # All that is in force already, for the process that becomes it.
    assert (program.seccomp, program.rlimits, program.new_session, program.no_new_privs) == (None, (), False, False)
