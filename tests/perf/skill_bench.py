"""What a skill's call costs through the whole pipeline: decisions, durable records, worker process and signature,
against the same module called bare in this process, against extism making and calling an equivalent plug-in, and
against a tool of our own that does nothing."""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import wasmtime

from benchmarks import bars
from fakes.gateway_harness import GatewayHarness, open_harness
from perf.extism_peer import against_extism, extism_peer
from perf.skill_subjects import Subject, as_guests_write, json_csv, smallest

SAMPLES = 500
WARM = 60
# In turn one by one, where each finds the caches as the others left them; and once more so many of each in a row.
IN_A_ROW = 20
ORDER = 5
# A stretch of rounds, and how many of the stretches are called calm: those in which the bare call was quickest.
STRETCH = 25
CALM = 4
MANY: dict[str, Any] = {"budget": {"calls": 1_000_000, "wasm_fuel": 10**15, "wall_ms": 10**12}}
# Takes its turn, and tells how long that was if it is not the time that passed here.
Turn = Callable[[], Awaitable[float | None]]


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for subject, call_bar in ((json_csv(folder), bars.SKILL_CALL), (smallest(), None)):
        place = folder / subject.tool_id
        place.mkdir()
        async with open_harness(place, MANY) as harness:
            await subject.put_in_use(harness.gateway)
            rows += await _rows_of(harness, subject, place, call_bar)
    return rows


async def _rows_of(harness: GatewayHarness, subject: Subject, folder: Path, call_bar: Any) -> list[dict[str, Any]]:
    run_id = await harness.open_run(**MANY["budget"])
    bare = _bare(subject)

    async def skill() -> None:
        assert (await harness.call(subject.tool, subject.arguments, run_id=run_id)).result == subject.result

    async def skill_in_new_run() -> None:
        assert (await harness.call(subject.tool, subject.arguments)).result == subject.result

    async def builtin() -> None:
        assert (await harness.call("echo", {"text": "x"}, run_id=run_id)).error is None

    async def nothing_else() -> None:
        bare()

    with extism_peer(folder, subject.extism_module, subject.given, as_guests_write(subject.result)) as peer:

        async def extism() -> float | None:
            return None if peer is None else peer.create_and_call()

        turns = (skill, skill_in_new_run, builtin, nothing_else, extism)
        mine, opening, ours, theirs, peers = await _in_turn(turns, 1)
        rows, _, _, rows_theirs, rows_peers = await _in_turn(turns, IN_A_ROW)
    name = f"{subject.name}, warm, whole pipeline"
    name_of_rows = f"{subject.name}, {IN_A_ROW} calls in a row"
    return [
        _row(name, mine, theirs, "bare wasmtime, same module", call_bar),
        against_extism(name, mine, [] if peer is None else peers),
        _row(f"{name}, calmest quarter", *_calmest(mine, theirs), "bare wasmtime, same module", None),
        _row(f"{subject.name}, each call opening a run", opening, theirs, "bare wasmtime, same module", None),
        _row(name, mine, ours, "the tool echo, whole pipeline", None),
        _row(name_of_rows, rows, rows_theirs, "bare wasmtime, same module", None),
        against_extism(name_of_rows, rows, [] if peer is None else rows_peers),
    ]


def _bare(subject: Subject) -> Callable[[], None]:
    config = wasmtime.Config()
    config.consume_fuel = config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    compiled, linker = wasmtime.Module(engine, subject.module), wasmtime.Linker(engine)
    linker.define_unknown_imports_as_traps(compiled)
    tool, given, expected = subject.tool_id.encode(), subject.given, as_guests_write(subject.result)

    def call() -> None:
        with wasmtime.Store(engine) as store:
            store.set_fuel(1_000_000_000)
            store.set_epoch_deadline(1)
            exports = linker.instantiate(store, compiled).exports(store)
            memory: Any = exports["memory"]
            alloc: Any = exports["palyra_alloc"]
            entry: Any = exports["run"]
            tool_at, given_at = alloc(store, len(tool)), alloc(store, len(given))
            memory.write(store, tool, tool_at)
            memory.write(store, given, given_at)
            packed = entry(store, tool_at, len(tool), given_at, len(given))
            place, length = packed >> 32, packed & 0xFFFFFFFF
            assert memory.read(store, place, place + length) == expected

    return call


async def _in_turn(calls: Sequence[Turn], in_a_row: int) -> list[list[float]]:
    """Milliseconds of each, measured in turn, so that a busy machine is busy for all; each round in another order, so
    that none always comes after the one that leaves the caches coldest."""
    times: list[list[float]] = [[] for _ in calls]
    pairs = list(zip(calls, times, strict=True))
    order = random.Random(ORDER)
    for number in range(0, SAMPLES + WARM, in_a_row):
        for call, found in order.sample(pairs, len(pairs)):
            for _ in range(in_a_row):
                since = time.perf_counter()
                reported = await call()
                taken = time.perf_counter() - since if reported is None else reported
                if number >= WARM:
                    found.append(taken * 1_000)
    return times


def _calmest(ours: list[float], theirs: list[float]) -> tuple[list[float], list[float]]:
    """Of the stretches of the run the quarter in which the peer was quickest: there the machine was slowed down least
    by what else its host does. Chosen by the peer's time alone, which favours the peer."""
    starts = sorted(range(0, len(theirs), STRETCH), key=lambda at: statistics.median(theirs[at : at + STRETCH]))
    calm = starts[: max(1, len(starts) // CALM)]
    mine, others = ([each for at in calm for each in times[at : at + STRETCH]] for times in (ours, theirs))
    return mine, others


def _row(name: str, ours: list[float], theirs: list[float], peer: str, bar: Any) -> dict[str, Any]:
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
