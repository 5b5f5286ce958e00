"""What a sandbox costs: each tier against the least that does the same, started alternately in one run."""

import asyncio
import fcntl
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import bars
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Facts, HostHold
from palyra.sandbox.domain.plan import BLOCK_FD, INFO_FD, BubblewrapPlan, plan_isolated
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import SandboxProfile, SandboxTier
from palyra.sandbox.layers.bubblewrap import gather_host
from palyra.sandbox.layers.protected_mounts import gather_workspace
from palyra.sandbox.layers.seccomp import build_tier_c_filter
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from perf.peers import from_npm

SAMPLES = 150
# Each takes half a second.
SRT_SAMPLES = 20
SRT = "@anthropic-ai/sandbox-runtime"
AT_ONCE = (1, 8, 32, 200)
CALLERS = 16
LAUNCHES_PER_CALLER = 10
RATE_ROUNDS = 5
PROTECTED = (".git/hooks", ".git/config", ".env*", ".vscode", ".github/workflows")
# A program that does nothing, without the time a dynamic linker takes.
NOTHING = """
.globl _start
_start:
#if defined(__x86_64__)
    mov $231, %eax
    xor %edi, %edi
    syscall
#else
    mov x8, #94
    mov x0, #0
    svc #0
#endif
"""


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(Path(folder).resolve()))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    workspace, scratch = folder / "workspace", folder / "scratch"
    workspace.mkdir()
    scratch.mkdir()
    program = workspace / "nothing"
    await asyncio.to_thread(_assemble, program)
    runner = ProcessRunner(RunnerSettings(scratch=str(scratch)))
    cold = ProcessRunner(RunnerSettings(scratch=str(scratch), prewarm=False))

    def ours(tier: SandboxTier, command: str, by: ProcessRunner = runner) -> Callable[[], Awaitable[object]]:
        profile = SandboxProfile(workspace_root=str(workspace), tier=tier, protected_names=PROTECTED)
        wanted = ProcessCommand(command=command)
        return lambda: by.run_constrained_process(profile, wanted)

    async def settled() -> None:
        """As it is when calls come slower than processes are made: neither side runs beside what the other left."""
        while not (runner.ready and cold.ready):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.008)

    async def all_wait() -> None:
        """The same for sandboxes that are built ahead."""
        while len(runner.prewarm.waiting) < limits.WARM_PER_PROFILE:
            await asyncio.sleep(0.002)
        await settled()

    by_hand = _by_hand(workspace, "/usr/bin/true")
    try:
        for each in (runner, cold):
            await ours(SandboxTier.B, str(program), each)()
        isolated = await _alternately(ours(SandboxTier.C, "true", cold), by_hand, settled)
        await ours(SandboxTier.C, "true")()
        warm = await _alternately(ours(SandboxTier.C, "true"), by_hand, all_wait)
        rate = await _rates(ours(SandboxTier.C, "true", cold), by_hand, settled)
        peer_product = _srt(workspace)
        product: tuple[list[float], list[float]] = ([], [])
        if peer_product is not None:
            product = await _alternately(ours(SandboxTier.C, "true", cold), peer_product, settled, samples=SRT_SAMPLES)
        limited = await _alternately(ours(SandboxTier.B, str(program)), _spawned(str(program)), settled)
        growth = [await _growth(ours(tier, "true"), tier) for tier in SandboxTier]
    finally:
        await cold.close()
        await runner.close()
    return [
        _row("Tier C, cold, /bin/true", *isolated, peer="bwrap by hand, same arguments", bar=bars.TIER_C_COLD),
        _row("Tier C, warm, /bin/true", *warm, peer="bwrap by hand, same arguments", bar=bars.TIER_C_WARM),
        _rate_row(*rate),
        _row("Tier C, cold, true", *product, peer=SRT, bar=bars.TIER_C_SRT),
        _row("Tier B, static program, the whole runner", *limited, peer="posix_spawn and wait", bar=None),
        *growth,
    ]


async def _alternately(
    ours: Callable[[], Awaitable[object]],
    peer: Callable[[], None],
    ready: Callable[[], Awaitable[None]],
    *,
    samples: int = SAMPLES,
) -> tuple[list[float], list[float]]:
    mine: list[float] = []
    theirs: list[float] = []
    warm_up = min(20, samples // 2)
    for number in range(samples + warm_up):
        await ready()
        since = time.perf_counter()
        await ours()
        took = time.perf_counter() - since
        await ready()
        since = time.perf_counter()
        peer()
        if number >= warm_up:
            mine.append(took)
            theirs.append(time.perf_counter() - since)
    return mine, theirs


async def _rates(
    ours: Callable[[], Awaitable[object]], peer: Callable[[], None], ready: Callable[[], Awaitable[None]]
) -> tuple[list[float], list[float]]:
    """Measure launches a second: ours with 16 callers, the peer's from 16 processes."""
    launches = CALLERS * LAUNCHES_PER_CALLER

    async def caller() -> None:
        for _ in range(LAUNCHES_PER_CALLER):
            await ours()

    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(RATE_ROUNDS):
        await ready()
        since = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        mine.append(launches / (time.perf_counter() - since))
        await ready()
        since = time.perf_counter()
        _launch_from_processes(peer)
        theirs.append(launches / (time.perf_counter() - since))
    return mine, theirs


def _launch_from_processes(start: Callable[[], None]) -> None:
    children = []
    for _ in range(CALLERS):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(LAUNCHES_PER_CALLER):
                    start()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise RuntimeError("bubblewrap failed in one of the processes")


async def _growth(ours: Callable[[], Awaitable[object]], tier: SandboxTier) -> dict[str, Any]:
    """The time of one call of many at once, against one alone: a queue, not a collapse."""
    rates: dict[int, float] = {}
    for many in AT_ONCE:
        since = time.perf_counter()
        await asyncio.gather(*(ours() for _ in range(many)))
        rates[many] = many / (time.perf_counter() - since)
    return {
        "name": f"Tier {tier.value.upper()}, {AT_ONCE[-1]} at once",
        "ours_p50": rates[AT_ONCE[-1]],
        "ours_p99": None,
        "peer": f"{AT_ONCE[1]} at once",
        "peer_p50": rates[AT_ONCE[1]],
        "peer_p99": None,
        "ratio": rates[AT_ONCE[-1]] / rates[AT_ONCE[1]],
        "samples": AT_ONCE[-1],
        "bar": bars.TIER_B_CROWD if tier is SandboxTier.B else bars.TIER_C_CROWD,
        "unit": "calls/s",
    }


def _rate_row(mine: list[float], theirs: list[float]) -> dict[str, Any]:
    ours, peer = statistics.median(mine), statistics.median(theirs)
    return {
        "name": f"Tier C, cold, {CALLERS} callers",
        "ours_p50": ours,
        "ours_p99": None,
        "peer": f"bwrap by hand from {CALLERS} processes",
        "peer_p50": peer,
        "peer_p99": None,
        "ratio": ours / peer,
        "samples": RATE_ROUNDS,
        "bar": bars.TIER_C_RATE,
        "unit": "calls/s",
    }


def _by_hand(workspace: Path, program: str) -> Callable[[], None]:
    """bubblewrap with the options of the plan, on the same descriptors; it need not wait to be looked at."""
    profile = SandboxProfile(workspace_root=str(workspace), tier=SandboxTier.C, protected_names=PROTECTED)
    found, _ = gather_workspace(profile)
    # All of it built by bubblewrap alone, as a person would have it: nothing is made for it beforehand.
    host = msgspec.structs.replace(gather_host(), hold=HostHold.MISSING)
    facts = Facts(host=host, workspace=found, seccomp=build_tier_c_filter(os.uname().machine))
    plan = plan_isolated(profile, (os.fsencode(program),), facts, memory_is_counted=True)
    contents = {number: _without_gate(plan) if number == _args_fd(plan) else data for number, data in plan.data_fds}

    def start() -> None:
        actions: list[tuple[Any, ...]] = []
        opened = []
        for number, data in contents.items():
            memory = os.memfd_create("data", os.MFD_CLOEXEC)
            os.write(memory, data)
            os.lseek(memory, 0, os.SEEK_SET)
            # Above the numbers that the plan uses, and free.
            high = fcntl.fcntl(memory, fcntl.F_DUPFD_CLOEXEC, 100)
            os.close(memory)
            opened.append(high)
            actions.append((os.POSIX_SPAWN_DUP2, high, number))
        child = os.posix_spawn(plan.argv[0], list(plan.argv), {}, file_actions=actions)
        for each in opened:
            os.close(each)
        _, status = os.waitpid(child, 0)
        if status != 0:
            raise RuntimeError(f"bubblewrap ended with {os.waitstatus_to_exitcode(status)}")

    return start


def _srt(workspace: Path) -> Callable[[], None] | None:
    """Another sandbox for agents' commands, from npm; None where it or what it needs cannot be had."""
    program = from_npm("sandbox-runtime", "srt")
    if program is None or not all(map(shutil.which, ("node", "socat", "rg"))):
        return None

    def start() -> None:
        subprocess.run([program, "true"], cwd=workspace, check=True, capture_output=True)

    return start


def _args_fd(plan: BubblewrapPlan) -> int:
    return int(plan.argv[plan.argv.index(b"--args") + 1])


def _without_gate(plan: BubblewrapPlan) -> bytes:
    gate = {(b"--info-fd", b"%d" % INFO_FD), (b"--block-fd", b"%d" % BLOCK_FD)}
    kept = [line.arguments for line in plan.lines if line.arguments not in gate]
    return b"".join(word + b"\0" for words in kept for word in words)


def _spawned(program: str) -> Callable[[], None]:
    def start() -> None:
        _, status = os.waitpid(os.posix_spawn(program, [program], {}), 0)
        if status != 0:
            raise RuntimeError(f"{program} ended with {os.waitstatus_to_exitcode(status)}")

    return start


def _assemble(path: Path) -> None:
    subprocess.run(
        ["gcc", "-x", "assembler-with-cpp", "-nostdlib", "-static", "-o", path, "-"],
        input=NOTHING.encode(),
        check=True,
        capture_output=True,
    )


def _row(name: str, ours: list[float], theirs: list[float], *, peer: str, bar: Any) -> dict[str, Any]:
    mine, other = _quantiles(ours), _quantiles(theirs)
    ratio = mine[0] / other[0] if mine[0] and other[0] else None
    return {
        "name": name,
        "ours_p50": mine[0],
        "ours_p99": mine[1],
        "peer": peer if theirs else f"{peer} (missing)",
        "peer_p50": other[0],
        "peer_p99": other[1],
        "ratio": ratio,
        "samples": len(ours),
        "bar": bar,
        "unit": "ms",
    }


def _quantiles(seconds: list[float]) -> tuple[float | None, float | None]:
    if not seconds:
        return None, None
    cut = statistics.quantiles([each * 1000 for each in seconds], n=100)
    return cut[49], cut[98]
