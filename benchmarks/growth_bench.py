"""Whether a call costs the same when there is more of everything: policies, events of the past, calls at once.

Each row is the dearest step of a series against its first, measured in turn with it. The series itself is in the row,
and drawn as a curve.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import bars
from benchmarks.bar import Bar, Row
from benchmarks.policy_bench import engine_of, request_of
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway, running_gateway
from palyra.daemon.settings import Settings
from palyra.ids import Principal, RunId
from palyra.limits import MAX_CALL_TIMEOUT_MS
from palyra.pipeline.domain.call import CallRequest
from palyra.store.event import NewEvent
from palyra.store.port import Transaction

POLICIES = (10, 100, 1_000, 10_000)
EVENTS = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE = (1, 8, 32, 64, 128, 200)
DECISIONS = 400
CALLS = 200
SANDBOXES = 200
# In one transaction while the past is written.
GROUP = 5_000
_PAST = NewEvent(kind="call.finished", actor="agent:past", principal="agent:past", payload={"state": "succeeded"})


def run() -> list[Row]:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, tempfile.TemporaryDirectory() as folder:
        return [_by_policies(), *runner.run(_by_events(Path(folder))), runner.run(_by_crowd(Path(folder)))]


def _by_policies() -> Row:
    engines = [engine_of(count) for count in POLICIES]
    times: list[list[float]] = [[] for _ in engines]
    for number in range(DECISIONS):
        request = request_of(number % 5, f"t{number % 5}", number, -number)
        for engine, found in zip(engines, times, strict=True):
            since = time.perf_counter()
            engine.decide(request)
            found.append((time.perf_counter() - since) * 1e6)
    return _row(
        "a decision by number of policies", "us", POLICIES, times, [times[0]] * len(times), bars.GROWTH_POLICIES
    )


@asynccontextmanager
async def _gateway(place: Path) -> AsyncIterator[Gateway]:
    unlimited = {"calls": 1_000_000, "wall_ms": 10**12}
    settings = msgspec.convert({"budget": unlimited, "tools": {"preapproved": ["process.run"]}}, Settings)
    async with running_gateway(settings, StateDir.open(place / "state"), place / "policies") as gateway:
        yield gateway


async def _by_events(folder: Path) -> list[Row]:
    """Measure a growing journal, in turn with one that has only the first step's events."""
    times: list[list[float]] = []
    small: list[list[float]] = []
    request = _call("echo", {"text": "x"})
    async with _gateway(folder / "grows") as grows, _gateway(folder / "stays") as stays:
        await _fill(stays, EVENTS[0])
        for events in EVENTS:
            await _fill(grows, events)
            times.append([])
            small.append([])
            for _ in range(CALLS):
                for gateway, found in ((grows, times[-1]), (stays, small[-1])):
                    since = time.perf_counter()
                    await gateway.broker.call(request)
                    found.append((time.perf_counter() - since) * 1e6)
    seconds, count = await asyncio.to_thread(_verified, folder / "grows" / "state")
    return [
        _row("echo by events in the journal", "us", EVENTS, times, small, bars.GROWTH_EVENTS),
        {
            "name": f"journal verify, {count:,} events",
            "unit": "s",
            "ours_p50": seconds,
            "ours_p99": None,
            "peer": "-",
            "peer_p50": None,
            "peer_p99": None,
            "ratio": None,
            "samples": 1,
            "bar": bars.JOURNAL_VERIFY,
        },
    ]


async def _fill(gateway: Gateway, events: int) -> None:
    while (missing := events - gateway.store.head()[0]) > 0:
        count = min(missing, GROUP)

        def append(transaction: Transaction, count: int = count) -> None:
            for _ in range(count):
                transaction.append(_PAST)

        await gateway.store.transact(append)


def _verified(state: Path) -> tuple[float, int]:
    """Seconds of the command that people run, and for how many events."""
    words = [sys.executable, "-m", "palyra.cli.main", "--state-dir", str(state), "journal", "verify", "--json"]
    since = time.perf_counter()
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - since, json.loads(done.stdout)["data"]["events"]


async def _by_crowd(folder: Path) -> Row:
    rates: list[float] = []
    request = _call("process.run", {"command": "true"})
    async with _gateway(folder / "crowd") as gateway:
        await gateway.broker.call(request)
        for crowd in AT_ONCE:
            gate = asyncio.Semaphore(crowd)

            async def one(gate: asyncio.Semaphore = gate) -> None:
                async with gate:
                    record = await gateway.broker.call(request)
                if record.error is not None:
                    raise RuntimeError(f"the benchmark measures calls that succeed: {record.error}")

            since = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(SANDBOXES)))
            rates.append(SANDBOXES / (time.perf_counter() - since))
    return {
        "name": "sandboxed calls by calls at once",
        "unit": "calls/s",
        "ours_p50": rates[-1],
        "ours_p99": None,
        "peer": "the best of the series",
        "peer_p50": max(rates),
        "peer_p99": None,
        "ratio": rates[-1] / max(rates),
        "samples": SANDBOXES,
        "bar": bars.GROWTH_SANDBOXES,
        "series": list(zip(AT_ONCE, rates, strict=True)),
    }


def _call(tool: str, arguments: dict[str, Any]) -> CallRequest:
    agent = Principal.parse("agent:bench")
    return CallRequest(
        tool=tool,
        arguments=arguments,
        principal=agent,
        actor=str(agent),
        channel="cli",
        run_id=RunId.new(),
        # A queue on a busy machine may take its time: what is measured is how long, not whether.
        timeout_ms=MAX_CALL_TIMEOUT_MS,
    )


def _row(
    name: str, unit: str, steps: Sequence[int], times: list[list[float]], first: list[list[float]], bar: Bar
) -> Row:
    """``first`` are the first step's times, as they were while each step was measured."""
    ratios = [statistics.median(mine) / statistics.median(base) for mine, base in zip(times, first, strict=True)]
    worst = max(range(1, len(steps)), key=lambda number: ratios[number])
    ours, peer = (statistics.quantiles(each[worst], n=100) for each in (times, first))
    return {
        "name": name,
        "unit": unit,
        "ours_p50": ours[49],
        "ours_p99": ours[98],
        "peer": f"with {steps[0]:,} (worst: {steps[worst]:,})",
        "peer_p50": peer[49],
        "peer_p99": peer[98],
        "ratio": ratios[worst],
        "samples": len(times[worst]),
        "bar": bar,
        "series": list(zip(steps, map(statistics.median, times), strict=True)),
    }
