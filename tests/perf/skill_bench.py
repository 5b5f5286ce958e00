"""What a skill's call costs through the whole pipeline: decisions, durable records, worker process and signature,
against the same module called bare in this process, and against a tool of our own that does nothing."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import wasmtime

from fakes.house import open_house
from fakes.wasm_guests import wasm
from fakes.wasm_skills import ECHO_SKILL, TOOL, put_in_use

SAMPLES = 500
WARM = 50
ARGUMENTS = {"text": "a plain little document", "numbers": [1, 2, 3]}
RAW = b'{"text":"a plain little document","numbers":[1,2,3]}'
MANY: dict[str, Any] = {"budget": {"calls": 1_000_000, "wasm_fuel": 10**15, "wall_ms": 10**12}}


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    async with open_house(folder, MANY) as house:
        await put_in_use(house)
        bare = _bare(wasm(ECHO_SKILL))

        run_id = await house.open_run(**MANY["budget"])

        async def skill() -> None:
            assert (await house.call(TOOL, ARGUMENTS, run_id=run_id)).result == ARGUMENTS

        async def skill_in_new_run() -> None:
            assert (await house.call(TOOL, ARGUMENTS)).result == ARGUMENTS

        async def builtin() -> None:
            assert (await house.call("echo", {"text": "x"})).error is None

        async def nothing_else() -> None:
            bare()

        times = await _in_turn(skill, skill_in_new_run, builtin, nothing_else)
    mine, opening, ours, theirs = times
    return [
        _row("skill call, warm, whole pipeline", mine, theirs, "bare wasmtime, same module", "within 1 ms of it"),
        _row("the same, each call opening a run", opening, theirs, "bare wasmtime, same module", "no bar"),
        _row("skill call, warm, whole pipeline", mine, ours, "the tool echo, whole pipeline", "no bar"),
    ]


def _bare(module: bytes) -> Callable[[], None]:
    config = wasmtime.Config()
    config.consume_fuel = config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    compiled, linker = wasmtime.Module(engine, module), wasmtime.Linker(engine)

    def call() -> None:
        with wasmtime.Store(engine) as store:
            store.set_fuel(10_000_000)
            store.set_epoch_deadline(1)
            exports = linker.instantiate(store, compiled).exports(store)
            memory: Any = exports["memory"]
            alloc: Any = exports["palyra_alloc"]
            entry: Any = exports["run"]
            place = alloc(store, len(RAW))
            memory.write(store, RAW, place)
            packed = entry(store, 0, 0, place, len(RAW))
            assert memory.read(store, packed >> 32, (packed >> 32) + (packed & 0xFFFFFFFF)) == RAW

    return call


async def _in_turn(*calls: Callable[[], Awaitable[None]]) -> list[list[float]]:
    """Milliseconds of each, measured in turn, so that a busy machine is busy for all."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(SAMPLES + WARM):
        for call, found in zip(calls, times, strict=True):
            since = time.perf_counter()
            await call()
            if number >= WARM:
                found.append((time.perf_counter() - since) * 1_000)
    return times


def _row(name: str, ours: list[float], theirs: list[float], peer: str, bar: str) -> dict[str, Any]:
    mine, other = statistics.quantiles(ours, n=100), statistics.quantiles(theirs, n=100)
    return {
        "name": name,
        "unit": "ms",
        "ours_p50": mine[49],
        "ours_p99": mine[98],
        "peer": peer,
        "peer_p50": other[49],
        "peer_p99": other[98],
        "ratio": mine[49] / other[49],
        "samples": len(ours),
        "bar": bar,
    }
