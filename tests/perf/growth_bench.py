"""Whether a call costs the same when there is more of everything: policies, events of the past, calls at once.

Each row is the dearest step of a series against its first. The series itself is written as curves beside the table.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemons.gateway import Gateway, running_gateway
from palyra.identity.principal import Principal
from palyra.ids import RunId
from palyra.journal.event import NewEvent
from palyra.journal.transaction import Transaction
from palyra.tools.broker import CallRequest
from perf.curves import curves
from perf.policy_bench import _engine, _request

# More would be beyond what one bundle may hold.
POLICIES = (10, 100, 1_000, 5_000)
EVENTS = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE = (1, 8, 64, 200)
DECISIONS = 400
CALLS = 150
# In one transaction while the past is written.
GROUP = 5_000
FLAT = "flat: within 1.3x of the first"
NO_COLLAPSE = "no collapse: at least 0.5x of the best"
RESULTS = Path("bench-results")
_PAST = NewEvent(kind="call.finished", actor="agent:past", principal="agent:past", payload={"state": "succeeded"})


def run() -> list[dict[str, Any]]:
    import uvloop

    policies = {count: _decision_us(count) for count in POLICIES}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        past = runner.run(_in_house(_with_a_past))
        crowd = runner.run(_in_house(_crowded))
    RESULTS.mkdir(exist_ok=True)
    drawn = {
        "a decision by number of policies (us)": policies,
        "echo by events in the journal (us)": past,
        "sandboxed calls a second by calls at once": crowd,
    }
    (RESULTS / "growth.svg").write_text(curves(drawn))
    return [
        _row("a decision, 10 to 5,000 policies", "us", policies, FLAT),
        _row("echo, 1,000 to 1,000,000 events before it", "us", past, FLAT),
        {**_row("sandboxed calls, 1 to 200 at once", "calls/s", crowd, NO_COLLAPSE), **_best_against_last(crowd)},
    ]


def _decision_us(count: int) -> float:
    engine = _engine(count)
    times = []
    for number in range(DECISIONS):
        # No two agree in what policies look at: no answer comes from memory.
        request = _request(number % 5, f"t{number % 5}", number, -number)
        since = time.perf_counter()
        engine.decide(request)
        times.append((time.perf_counter() - since) * 1e6)
    return statistics.median(times)


async def _in_house(measure: Callable[[Gateway], Awaitable[dict[int, float]]]) -> dict[int, float]:
    unlimited = {"calls": 1_000_000, "wall_ms": 10**12}
    settings = msgspec.convert({"budget": unlimited, "tools": {"preapproved": ["process.run"]}}, Settings)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        async with running_gateway(settings, StateDir.open(place / "state"), place / "policies") as gateway:
            return await measure(gateway)


async def _with_a_past(gateway: Gateway) -> dict[int, float]:
    found: dict[int, float] = {}
    request = _call("echo", {"text": "x"})
    for events in EVENTS:
        while (missing := events - gateway.store.head()[0]) > 0:
            count = min(missing, GROUP)
            await gateway.store.transact(lambda tx, count=count: _append(tx, count))
        times = []
        for _ in range(CALLS):
            since = time.perf_counter()
            await gateway.broker.call(request)
            times.append((time.perf_counter() - since) * 1e6)
        found[events] = statistics.median(times)
    return found


def _append(tx: Transaction, count: int) -> None:
    for _ in range(count):
        tx.append(_PAST)


async def _crowded(gateway: Gateway) -> dict[int, float]:
    found: dict[int, float] = {}
    request = _call("process.run", {"command": "true"})
    await gateway.broker.call(request)
    for crowd in AT_ONCE:
        since = time.perf_counter()
        ended = await asyncio.gather(*(gateway.broker.call(request) for _ in range(max(crowd, 32))))
        if any(record.error is not None for record in ended):
            raise RuntimeError("the benchmark measures calls that succeed")
        found[crowd] = len(ended) / (time.perf_counter() - since)
    return found


def _call(tool: str, arguments: dict[str, Any]) -> CallRequest:
    agent = Principal.parse("agent:bench")
    return CallRequest(
        tool=tool, arguments=arguments, principal=agent, actor=str(agent), channel="cli", run_id=RunId.new()
    )


def _row(name: str, unit: str, series: dict[int, float], bar: str) -> dict[str, Any]:
    steps = list(series.values())
    worst = max(steps)
    return {
        "name": name,
        "unit": unit,
        "ours_p50": worst,
        "ours_p99": None,
        "peer": f"with {next(iter(series)):,}",
        "peer_p50": steps[0],
        "peer_p99": None,
        "ratio": worst / steps[0],
        "samples": len(steps),
        "bar": bar,
    }


def _best_against_last(series: dict[int, float]) -> dict[str, Any]:
    best, last = max(series.values()), list(series.values())[-1]
    return {"ours_p50": last, "peer": "the best of the series", "peer_p50": best, "ratio": last / best}
