"""How long the console's pages take with 10,000 calls and 1,000 approvals in history."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import bars
from fakes.console_user import ConsoleUser, console_user
from fakes.gateway_harness import GatewayHarness, open_harness

CALLS = 10_000
APPROVALS = 1_000
PENDING = 40
AT_ONCE = 50
ROUNDS = 15


async def fill(harness: GatewayHarness) -> tuple[str, str, str]:
    """History of several agents: most calls succeed, some wait, were decided or refused."""

    async def one(number: int) -> str:
        agent = f"agent:bot{number % 7}"
        if number % 40 == 0:
            record = await harness.call("nonsense", {}, principal=agent)
        else:
            record = await harness.call("echo", {"text": f"number {number} " + "x" * 300}, principal=agent)
        return record.call_id

    async def decided(number: int) -> str:
        record = await harness.call(
            "fs.list", {"path": f"folder{number}"}, principal=f"agent:bot{number % 29}", session=f"s{number}"
        )
        if number < APPROVALS - PENDING:
            await harness.approve(record.approval_id)
        return str(record.approval_id)

    last = ""
    for start in range(0, CALLS, AT_ONCE):
        last = (await asyncio.gather(*(one(number) for number in range(start, start + AT_ONCE))))[-1]
    approval = ""
    for start in range(0, APPROVALS, AT_ONCE):
        approval = (await asyncio.gather(*(decided(number) for number in range(start, start + AT_ONCE))))[-1]
    run = harness.gateway.store.read("SELECT run_id FROM calls WHERE call_id = ?", (last,))[0][0]
    return last, run, approval


async def measure(known: ConsoleUser, path: str) -> list[float]:
    taken: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        got = await known.get(path)
        taken.append((time.perf_counter() - begun) * 1000)
        assert got.status == 200, (path, got.status)
    return taken


async def figures() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with open_harness(Path(folder)) as harness:
            call, run, approval = await fill(harness)
            known = await console_user(harness)
            paths = [
                *("/", "/approvals", "/approvals?state=approved", "/calls", "/runs", "/journal", "/policy", "/skills"),
                *("/devices", "/vault", "/egress", "/doctor", "/calls?state=refused", "/calls?text=number+17"),
                *("/calls?tool=fs.list", "/calls?principal=agent:bot3", "/calls?text=nowhere-to-be-found"),
                *("/journal?kind=approval.", "/journal?text=nowhere-to-be-found", "/journal?kind=call.finished"),
                *("/policy?principal=agent:a&tool=fs.write", "/policy/replay", "/journal/17"),
                *(f"/calls/{call}", f"/runs/{run}", f"/approvals/{approval}"),
            ]
            return {
                path.replace(call, "ID").replace(run, "ID").replace(approval, "ID"): await measure(known, path)
                for path in paths
            }


def run() -> list[dict[str, Any]]:
    return [
        {
            "name": f"console {path}",
            "ours_p50": statistics.median(taken),
            "ours_p99": max(taken),
            "unit": "ms",
            "peer": "-",
            "peer_p50": None,
            "peer_p99": None,
            "ratio": None,
            "samples": len(taken),
            "bar": bars.CONSOLE_PAGE,
        }
        for path, taken in asyncio.run(figures()).items()
    ]
