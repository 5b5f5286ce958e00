"""What allowed hosts cost: Tier C with a door against the same without, started alternately in one run."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import bars
from fakes.egress_proxy import FakeNetworkProxy
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.runner import ProcessRunner, RunnerSettings

SAMPLES = 200
WARM_UP = 20


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder).resolve()))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    workspace, scratch = folder / "workspace", folder / "scratch"
    workspace.mkdir()
    scratch.mkdir()
    runner = ProcessRunner(RunnerSettings(scratch=str(scratch)))
    shut = SandboxProfile(workspace_root=str(workspace))
    opened = SandboxProfile(workspace_root=str(workspace), allowed_egress_hosts=("a.example:443",))
    proxy = FakeNetworkProxy({("a.example", 443): ("127.0.0.1", 1)})
    command = ProcessCommand(command="true")
    mine: list[float] = []
    theirs: list[float] = []
    try:
        for number in range(SAMPLES + WARM_UP):
            since = time.perf_counter()
            await runner.run_constrained_process(opened, command, listener=proxy)
            between = time.perf_counter()
            await asyncio.sleep(0.008)
            later = time.perf_counter()
            await runner.run_constrained_process(shut, command)
            until = time.perf_counter()
            if number >= WARM_UP:
                mine.append((between - since) * 1000)
                theirs.append((until - later) * 1000)
            # Ready processes are made between calls, as they are in a daemon that is not flooded.
            await asyncio.sleep(0.008)
    finally:
        await runner.close()
    ours, peer = statistics.quantiles(mine, n=100), statistics.quantiles(theirs, n=100)
    return [
        {
            "name": "Tier C, strict, one allowed host, /bin/true",
            "ours_p50": ours[49],
            "ours_p99": ours[98],
            "peer": "Tier C without hosts",
            "peer_p50": peer[49],
            "peer_p99": peer[98],
            "ratio": ours[49] / peer[49],
            "samples": SAMPLES,
            "bar": bars.TIER_C_HOST,
            "unit": "ms",
        }
    ]
