"""The runner with real sandboxes. What it promises whatever the program does is in tests/security."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.processes import descendants, own_descriptors
from fakes.sandboxed import SHOW_ARGUMENTS
from palyra.errors import PalyraError
from palyra.sandbox import limits, runner
from palyra.sandbox.domain.process_run import (
    InterpreterDenied,
    ProcessCommand,
    ProcessOutcome,
    ProcessTimedOut,
    QuotaExceeded,
    RuntimeFailure,
    SandboxDisabled,
    SpawnFailed,
    encode_word,
)
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    Layer,
    NewProtectedPolicy,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
    UnsupportedPlatform,
)
from palyra.sandbox.launch.gated_sandbox import GatedReadback
from palyra.sandbox.runner import ProcessRunner, RunnerSettings, TooManyWaiting
from palyra.sandbox.running_process import StreamName
from palyra.sandbox.verify.protected_changes import ProtectedAppeared

TIERS = list(SandboxTier)
# The first is enough for a program to begin, but for a machine that is busy with others.
DEADLINES_MS = (400, 2_000, 10_000)


class Bench:
    """A runner with its workspace and its scratch folder."""

    def __init__(self, base: Path, **settings: Any) -> None:
        self.workspace = base / "workspace"
        self.scratch = base / "scratch"
        self.workspace.mkdir()
        self.scratch.mkdir()
        self.runner = ProcessRunner(RunnerSettings(scratch=str(self.scratch), **settings))

    def profile(self, tier: SandboxTier = SandboxTier.C, **changes: Any) -> SandboxProfile:
        changes.setdefault("allow_interpreters", True)
        return SandboxProfile(workspace_root=str(self.workspace), tier=tier, **changes)

    async def run(self, profile: SandboxProfile, command: str, *args: str, **more: Any) -> ProcessOutcome:
        return await self.runner.run_constrained_process(profile, ProcessCommand(command=command, args=args, **more))

    async def shell(self, profile: SandboxProfile, script: str, **more: Any) -> ProcessOutcome:
        return await self.run(profile, "sh", "-c", script, **more)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.runner.close()
    assert os.listdir(bench.scratch) == []


# Split at blanks these would be several words; read by a shell or by bubblewrap they would be something else.
ODD = (
    "",
    " ",
    "a b",
    "line\nbreak\ttab\r",
    "'single' \"double\" `back`",
    "$HOME ${x} $(id) \\ ! * ? [a-z] {a,b} ~ ; | & > < #",
    "-",
    "--",
    "-rf",
    "--help",
    "--version",
    "--args",
    "--ro-bind",
    "--=",
    "-x=y",
    "ünïcödé ☃ 𝄞",
    "\x01\x7f\x1b[31m",
    "not \udcff\udc80 text",
    "%s%n%d",
    "x" * 4096,
)


@pytest.mark.parametrize("tier", TIERS)
async def test_a_program_gets_exactly_the_arguments_that_were_given(bench: Bench, tier: SandboxTier) -> None:
    program = bench.workspace / "git"
    await asyncio.to_thread(_compile, program, SHOW_ARGUMENTS)
    for name in ("tar", "cc", "--", "-c", "name with blanks"):
        os.link(program, bench.workspace / name)
    lines = [
        ("./git", "status"),
        ("./tar", "-xzf", "a.tgz"),
        ("./cc", "-o", "x", "x.c"),
        ("./git", *ODD),
        ("./git", "--", *reversed(ODD)),
        ("./git", *(str(number) for number in range(128))),
        ("./--", "--", "--"),
        ("./-c", "a"),
        ("./name with blanks", "a"),
        (str(program), "a"),
    ]
    for line in lines:
        outcome = await bench.run(bench.profile(tier), *line)
        got = [bytes.fromhex(word) for word in json.loads(outcome.stdout)]
        assert got == [encode_word(word) for word in line]


@pytest.mark.parametrize("tier", TIERS)
async def test_how_a_program_ended(bench: Bench, tier: SandboxTier) -> None:
    profile = bench.profile(tier)
    outcome = await bench.shell(profile, "echo out; echo err >&2; exit 3")
    assert (outcome.exit_code, outcome.signal, outcome.stdout, outcome.stderr) == (3, None, b"out\n", b"err\n")
    assert outcome.tier is tier and outcome.killed_by is None and outcome.duration_ms >= 0
    assert outcome.backend == ("bubblewrap" if tier is SandboxTier.C else "limited_process")
    died = await bench.shell(profile, "kill -SEGV $$")
    # bubblewrap stands between: it tells of a signal as shells do.
    expected = (None, signal.SIGSEGV) if tier is SandboxTier.B else (128 + signal.SIGSEGV, None)
    assert (died.exit_code, died.signal) == expected


@pytest.mark.parametrize("tier", TIERS)
async def test_input_and_environment_and_folder(bench: Bench, tier: SandboxTier) -> None:
    (bench.workspace / "sub").mkdir()
    profile = bench.profile(tier, env=(("FROM", "operator"), ("BOTH", "operator")))
    outcome = await bench.shell(
        profile, 'cat; echo "$FROM $BOTH"; pwd', stdin=b"in\0put\n", env=(("BOTH", "caller"),), cwd="sub"
    )
    assert outcome.stdout == b"in\0put\noperator caller\n" + os.fsencode(bench.workspace / "sub") + b"\n"
    big = await bench.run(bench.profile(tier), "wc", "-c", stdin=b"x" * 60_000)
    assert big.stdout.strip() == b"60000"


@pytest.mark.parametrize("tier", TIERS)
async def test_the_receipt_tells_of_the_limits_in_force(bench: Bench, tier: SandboxTier) -> None:
    limits = SandboxLimits(pids=77, memory_bytes=300 << 20, timeout_ms=4321, max_output_bytes=5678)
    outcome = await bench.run(bench.profile(tier, limits=limits), "true")
    lines = {line.layer: line for line in outcome.receipt.lines}
    assert "5678" in lines[Layer.OUTPUT_QUOTA].asked and "4321" in lines[Layer.DEADLINE].asked
    assert str(300 << 20) in lines[Layer.CGROUP_MEMORY].asked + lines[Layer.RLIMITS].asked
    assert "77" in lines[Layer.CGROUP_PIDS].asked
    assert all(lines[layer].held for layer in bench.profile(tier).required_layers)


async def test_a_receipt_of_one_of_the_tiers_has_a_line_for_every_layer(bench: Bench) -> None:
    """A layer without a line is claimed by nothing and looked at by nobody."""
    receipts = [(await bench.run(bench.profile(tier), "true")).receipt for tier in TIERS]
    assert {line.layer for receipt in receipts for line in receipt.lines} == set(Layer)


async def test_a_layer_that_cannot_be_had_refuses_the_call_and_nothing_runs(bench: Bench) -> None:
    # Tier C does not use Landlock, and a limited process has no namespace.
    cannot = ((SandboxTier.C, Layer.LANDLOCK), (SandboxTier.B, Layer.PID_NAMESPACE))
    for tier, layer in cannot:
        with pytest.raises(UnsupportedPlatform) as refused:
            await bench.run(bench.profile(tier, require=frozenset({layer})), "touch", "made")
        assert refused.value.details["layers"] == [layer]
    assert os.listdir(bench.workspace) == []


@pytest.mark.parametrize("tier", TIERS)
async def test_what_cannot_be_started(bench: Bench, tier: SandboxTier) -> None:
    (bench.workspace / "script").write_text("#!/nonexistent/x\n")
    (bench.workspace / "script").chmod(0o755)
    for command in ("nonexistent", "./nonexistent", "./script", "./"):
        with pytest.raises(SpawnFailed):
            await bench.run(bench.profile(tier), command)
    with pytest.raises(InterpreterDenied):
        await bench.shell(bench.profile(tier, allow_interpreters=False), "true")


@pytest.mark.parametrize("tier", TIERS)
async def test_a_text_without_an_interpreters_name_needs_leave_for_a_shell(bench: Bench, tier: SandboxTier) -> None:
    (bench.workspace / "text").write_text("echo run by a shell\n")
    (bench.workspace / "text").chmod(0o755)
    with pytest.raises(InterpreterDenied):
        await bench.run(bench.profile(tier, allow_interpreters=False), "./text")


async def test_a_program_that_only_prints_what_bubblewrap_would_is_not_hidden(bench: Bench) -> None:
    outcome = await bench.shell(bench.profile(), "echo 'bwrap: execvp x: fake' >&2; exit 2")
    assert outcome.exit_code == 2


async def test_switched_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path, enabled=False)
    with pytest.raises(SandboxDisabled):
        await bench.run(bench.profile(), "true")
    await bench.runner.close()


@pytest.mark.parametrize("tier", TIERS)
async def test_the_deadline_brings_what_there_is(bench: Bench, tier: SandboxTier) -> None:
    for timeout_ms in DEADLINES_MS:
        with pytest.raises(ProcessTimedOut) as late:
            limits = SandboxLimits(timeout_ms=timeout_ms)
            await bench.shell(bench.profile(tier, limits=limits), "echo early; touch printed; sleep 600")
        outcome = late.value.outcome
        assert outcome is not None and outcome.killed_by == "timeout_ms" and outcome.receipt.lines
        if (bench.workspace / "printed").exists():
            assert outcome.stdout == b"early\n"
            return
    raise AssertionError("the program never came to its first line")


@pytest.mark.parametrize("tier", TIERS)
async def test_the_quota_brings_what_there_is(bench: Bench, tier: SandboxTier) -> None:
    limits = SandboxLimits(max_output_bytes=10)
    with pytest.raises(QuotaExceeded) as flood:
        await bench.shell(bench.profile(tier, limits=limits), "echo 123 >&2; sleep 0.05; yes")
    partial = flood.value.outcome
    assert partial is not None and partial.stderr == b"123\n" and partial.stdout == b"y\ny\ny\n"
    assert partial.stdout_truncated and not partial.stderr_truncated
    # Whether the program is still there when its last bytes are read makes no difference.
    with pytest.raises(QuotaExceeded):
        await bench.run(bench.profile(tier, limits=limits), "echo", "12345678901")
    whole = await bench.run(bench.profile(tier, limits=limits), "printf", "1234567890")
    assert whole.stdout == b"1234567890" and not whole.stdout_truncated


async def test_the_caller_may_ask_for_less_time_and_not_for_more(bench: Bench) -> None:
    profile = bench.profile(SandboxTier.B, limits=SandboxLimits(timeout_ms=300))
    with pytest.raises(ProcessTimedOut, match="within 100 ms"):
        await bench.run(profile, "sleep", "60", timeout_ms=100)
    with pytest.raises(ProcessTimedOut, match="within 300 ms"):
        await bench.run(profile, "sleep", "60", timeout_ms=100_000)


@pytest.mark.parametrize("tier", TIERS)
async def test_cancelling_leaves_nothing(bench: Bench, tier: SandboxTier) -> None:
    await bench.run(bench.profile(tier), "true")
    before = descendants(os.getpid())
    seen: list[bytes] = []
    running = asyncio.create_task(
        bench.runner.run_constrained_process(
            bench.profile(tier),
            ProcessCommand(command="sh", args=("-c", "echo here; setsid sleep 60 & sleep 60")),
            sink=lambda _, chunk: seen.append(chunk),
        )
    )
    await eventually(lambda: seen)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not {pid for pid in descendants(os.getpid()) - before if b"sleep" in _words(pid)}


async def test_cancelling_at_any_moment_leaves_nothing(bench: Bench) -> None:
    await bench.run(bench.profile(), "true")
    open_files = own_descriptors()
    for tier in TIERS:
        for step in range(16):
            running = asyncio.create_task(bench.run(bench.profile(tier), "sleep", "61.75"))
            await asyncio.sleep(step * 0.001)
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
    await eventually(lambda: not [pid for pid in descendants(os.getpid()) if b"61.75" in _words(pid)])
    await bench.run(bench.profile(), "true")
    # Keepers that wait for work have two descriptors each, sandboxes that wait have five and, used, two for a moment.
    ahead = 5 * limits.WARM_PER_PROFILE + 6
    await eventually(lambda: own_descriptors() <= open_files + 8 + ahead)


async def test_a_killed_keeper_is_a_failure_and_not_a_hang(bench: Bench) -> None:
    async with bench.runner.started(bench.profile(), ProcessCommand(command="sleep", args=("60",))) as running:
        supervisor = _parent(running.child.pid)
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(RuntimeFailure, match="supervisor"):
            await running.wait(30)
    assert (await bench.run(bench.profile(), "echo", "again")).stdout == b"again\n"


async def test_hooks_planted_before_a_cancelled_end_are_moved_aside_all_the_same(bench: Bench) -> None:
    profile = bench.profile(
        protected_names=(".git/hooks",), appearing_protected=NewProtectedPolicy.MOVE_ASIDE, env=(("A", "b"),)
    )
    script = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo planted; sleep 60"
    seen: list[bytes] = []
    running = asyncio.create_task(
        bench.runner.run_constrained_process(
            profile, ProcessCommand(command="sh", args=("-c", script)), sink=lambda _, chunk: seen.append(chunk)
        )
    )
    await eventually(lambda: seen)
    running.cancel()
    await asyncio.wait([running])
    assert not (bench.workspace / ".git" / "hooks").exists()
    (aside,) = os.listdir(bench.scratch)
    moved = [name for _, _, names in os.walk(bench.scratch / aside) for name in names]
    assert "pre-commit" in moved
    await asyncio.to_thread(subprocess.run, ["rm", "-rf", bench.scratch / aside], check=True)


async def test_hooks_planted_while_the_filter_is_looked_for_are_moved_aside(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is cancelled between the release of its program and the end of the look at it."""
    profile = bench.profile(protected_names=(".git/hooks",), appearing_protected=NewProtectedPolicy.MOVE_ASIDE)
    planted = bench.workspace / ".git" / "hooks" / "pre-commit"
    looked = threading.Event()

    def look_for_long(_: GatedReadback) -> str:
        looked.wait(30)
        return "2"

    monkeypatch.setattr(GatedReadback, "filter_mode", look_for_long)
    running = asyncio.create_task(bench.shell(profile, f"mkdir -p .git/hooks; echo evil > {planted}; sleep 60"))
    await eventually(planted.exists)
    running.cancel()
    await asyncio.sleep(0)
    looked.set()
    await asyncio.wait([running])
    assert running.cancelled()
    assert not planted.exists()
    (aside,) = os.listdir(bench.scratch)
    await asyncio.to_thread(shutil.rmtree, bench.scratch / aside)


async def test_a_workspace_that_is_gone_at_the_start_fails_the_build(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ``spawn_failed``: the program that was asked for is not what is missing."""
    gather = runner.gather_workspace

    def gather_and_lose(profile: SandboxProfile, **more: Any) -> Any:
        gathered = gather(profile, **more)
        bench.workspace.rename(bench.scratch / "elsewhere")
        return gathered

    monkeypatch.setattr(runner, "gather_workspace", gather_and_lose)
    with pytest.raises(RuntimeFailure, match=r"could not be built.*mounts failed: No such file"):
        await bench.run(bench.profile(), "true")
    (bench.scratch / "elsewhere").rename(bench.workspace)


async def test_planted_hooks_fail_the_call_where_policy_says_so(bench: Bench) -> None:
    profile = bench.profile(protected_names=(".git/hooks",), appearing_protected=NewProtectedPolicy.FAIL)
    with pytest.raises(ProtectedAppeared):
        await bench.shell(profile, "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit")
    kept = bench.profile(protected_names=(".git/hooks", ".env*"))
    outcome = await bench.shell(kept, "echo > .env")
    line = outcome.receipt.line(Layer.PROTECTED_NAMES)
    assert line is not None and ".env" in line.got


async def test_more_than_fits_waits_and_more_than_may_wait_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_running=2, max_waiting=2)
    await bench.run(bench.profile(SandboxTier.B), "true")
    script = "while [ ! -e over ]; do sleep 0.01; done"
    sleepers = [asyncio.create_task(bench.shell(bench.profile(SandboxTier.B), script)) for _ in range(4)]
    await eventually(lambda: bench.runner._waiting >= 2)
    with pytest.raises(TooManyWaiting) as refused:
        await bench.run(bench.profile(SandboxTier.B), "true")
    assert refused.value.code == "sandbox.too_many_waiting"
    (bench.workspace / "over").touch()
    assert [outcome.exit_code for outcome in await asyncio.gather(*sleepers)] == [0] * 4
    await bench.runner.close()


async def test_waiting_counts_as_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_running=1)
    first = asyncio.create_task(bench.run(bench.profile(SandboxTier.B), "sleep", "60"))
    await asyncio.sleep(0.3)
    with pytest.raises(ProcessTimedOut, match="turn"):
        await bench.run(bench.profile(SandboxTier.B), "true", timeout_ms=100)
    first.cancel()
    await asyncio.wait([first])
    assert (await bench.run(bench.profile(SandboxTier.B), "true")).exit_code == 0
    await bench.runner.close()


async def test_the_sink_sees_output_as_it_comes(bench: Bench) -> None:
    seen: list[tuple[StreamName, bytes]] = []
    command = ProcessCommand(command="sh", args=("-c", "echo a; echo b >&2"))
    await bench.runner.run_constrained_process(
        bench.profile(), command, sink=lambda name, chunk: seen.append((name, chunk))
    )
    assert sorted(seen) == [(StreamName.STDERR, b"b\n"), (StreamName.STDOUT, b"a\n")]


async def test_without_a_network_namespace_unix_sockets_of_the_host_stay_out_of_reach(bench: Bench) -> None:
    script = (
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0palyra-' + sys.argv[1])\nprint('bound')\n"
    )
    strict = await bench.run(bench.profile(), "python3", "-c", script, "strict")
    assert strict.stdout == b"bound\n"
    shared = bench.profile(egress=EgressEnforcementMode.NONE)
    assert (await bench.run(shared, "python3", "-c", script, "shared")).exit_code == 1


async def test_a_runner_that_was_closed_refuses(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.runner.close()
    with pytest.raises(PalyraError):
        await bench.run(bench.profile(), "true")


def _compile(path: Path, source: str) -> None:
    subprocess.run(["gcc", "-x", "c", "-o", path, "-"], input=source.encode(), check=True, capture_output=True)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("tier", TIERS)
async def test_a_cancelled_call_takes_nothing_from_the_next(bench: Bench, tier: SandboxTier) -> None:
    """The next call gets the control group of the one before, which must be over by then."""
    profile = bench.profile(tier)
    for milliseconds in range(24):
        cancelled = asyncio.create_task(bench.run(profile, "sleep", "60"))
        await asyncio.sleep(milliseconds / 1000)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        outcome = await bench.run(profile, "true")
        assert (outcome.exit_code, outcome.signal) == (0, None)


async def test_a_private_folder_that_is_nested_too_deep_is_removed(bench: Bench) -> None:
    script = "import os; os.chdir(os.environ['HOME'])\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')"
    outcome = await bench.run(bench.profile(SandboxTier.B), "python3", "-c", script)
    assert outcome.exit_code == 0
    assert os.listdir(bench.scratch) == []
