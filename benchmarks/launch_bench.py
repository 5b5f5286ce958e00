"""Tier B: spawn to exit of a static no-op program with all limits through a warm launcher, against posix_spawn.

The two are measured in turn in one run. Warm means that a supervisor is ready, which it is unless launches
come faster than supervisors are made; that rate is the second row.
"""

import asyncio
import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import bars
from benchmarks.bar import Bar
from palyra.sandbox.domain.launch_spec import LandlockRules, LaunchSpec, build_tier_b_rlimits
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.launch.supervisor_pool import READY_SUPERVISORS
from palyra.sandbox.layers import landlock
from palyra.sandbox.layers.seccomp import build_tier_b_filter

SAMPLES = 400
BURST = 200
AT_ONCE = 16
# Between two measurements, so that neither runs while the other's leftovers are cleared away.
PAUSE_SECONDS = 0.004

SYSTEM: tuple[str, ...] = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/passwd", "/etc/group")
SYSTEM += ("/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/localtime", "/etc/ssl", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def _program(place: Path) -> tuple[bytes, str]:
    """Return a static program that does nothing, or /bin/true without a compiler."""
    source, program = place / "noop.c", place / "noop"
    source.write_text("int main(void) { return 0; }\n")
    if (compiler := shutil.which("gcc")) is not None:
        made = subprocess.run([compiler, "-O2", "-static", "-o", program, source], capture_output=True, check=False)
        if made.returncode == 0:
            return os.fsencode(program), "static no-op"
    return b"/bin/true", "/bin/true"


def _spec(program: bytes, place: Path) -> LaunchSpec:
    rules = LandlockRules(read=SYSTEM, devices=DEVICES, write=(str(place),), connect_tcp=(), bind_tcp=())
    return LaunchSpec(
        argv=(program,),
        env=((b"PATH", b"/usr/bin:/bin"), (b"HOME", os.fsencode(place)), (b"LANG", b"C.UTF-8")),
        cwd=os.fsencode(place),
        rlimits=build_tier_b_rlimits(
            cpu_seconds=60, memory_bytes=2 << 30, pids=256, open_files=1024, file_bytes=1 << 30, tasks_of_user=4096
        ),
        landlock=rules if landlock.abi() > 0 else None,
        seccomp=build_tier_b_filter(platform.machine()),
    )


def _spawn(program: bytes, nothing: int) -> float:
    begun = time.perf_counter()
    places = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1, 2)]
    pid = os.posix_spawn(program, [program], {}, file_actions=places)
    os.waitpid(pid, 0)
    return time.perf_counter() - begun


@contextlib.contextmanager
def _nothing() -> Iterator[int]:
    with open(os.devnull, "r+b") as file:
        yield file.fileno()


async def _warm(launcher: Launcher) -> None:
    while launcher.ready < READY_SUPERVISORS:  # noqa: ASYNC110 - the launcher tells nobody, and need not
        await asyncio.sleep(0.001)
    await asyncio.sleep(PAUSE_SECONDS)


async def _measure(program: bytes, place: Path) -> tuple[list[float], list[float], list[float], list[float]]:
    spec = _spec(program, place)
    ours: list[float] = []
    peer: list[float] = []
    ours_burst: list[float] = []
    peer_burst: list[float] = []
    with _nothing() as nothing:

        async def launch() -> None:
            child = await launcher.launch(spec, stdin=nothing, stdout=nothing, stderr=nothing)
            ended = await child.wait()
            assert ended.exit_code == 0

        async with Launcher() as launcher:
            for _ in range(8):
                await _warm(launcher)
                await launch()
            for _ in range(SAMPLES):
                await _warm(launcher)
                begun = time.perf_counter()
                await launch()
                ours.append(time.perf_counter() - begun)
                await _warm(launcher)
                peer.append(_spawn(program, nothing))
            gate = asyncio.Semaphore(AT_ONCE)

            async def in_turn() -> None:
                async with gate:
                    await launch()

            for _ in range(5):
                begun = time.perf_counter()
                await asyncio.gather(*(in_turn() for _ in range(BURST)))
                ours_burst.append((time.perf_counter() - begun) / BURST)
                begun = time.perf_counter()
                for _ in range(BURST):
                    _spawn(program, nothing)
                peer_burst.append((time.perf_counter() - begun) / BURST)
    return ours, peer, ours_burst, peer_burst


def _row(name: str, ours: list[float], peer: list[float], peer_name: str, bar: Bar | None) -> dict[str, Any]:
    def at(samples: list[float], share: float) -> float:
        return sorted(samples)[min(int(len(samples) * share), len(samples) - 1)] * 1e6

    ours_p50, peer_p50 = statistics.median(ours) * 1e6, statistics.median(peer) * 1e6
    return {
        "name": name,
        "ours_p50": round(ours_p50, 1),
        "ours_p99": round(at(ours, 0.99), 1),
        "peer": peer_name,
        "peer_p50": round(peer_p50, 1),
        "peer_p99": round(at(peer, 0.99), 1),
        "ratio": round(ours_p50 / peer_p50, 2),
        "samples": len(ours),
        "bar": bar,
        "unit": "us",
    }


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        program, shown = _program(place)
        ours, peer, ours_burst, peer_burst = uvloop.run(_measure(program, place))
    return [
        _row(f"tier B, warm: {shown}, all limits", ours, peer, f"posix_spawn of {shown}", bars.LAUNCH),
        _row(
            f"tier B, {BURST} launches {AT_ONCE} at once, per launch",
            ours_burst,
            peer_burst,
            f"posix_spawn of {shown}, one after the other",
            None,
        ),
    ]
