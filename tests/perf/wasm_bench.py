"""What Tier A costs: a call through the runtime, in its worker process, against wasmtime called bare in this process,
and against extism making and calling an equivalent plug-in. Measured alternately, for both forms of guest."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import wasmtime
from wasmtime import component as wit

from benchmarks import bars
from fakes.wasm_guests import ECHO, RETURN_INPUT, component, open_runtime, wasm
from perf.extism_peer import EXTISM_ECHO, ExtismPeer, against_extism, extism_peer

SAMPLES = 1_000
WARM = 100
AT_ONCE = (8, 256)
INPUT = b'{"text": "a plain little document", "numbers": [1, 2, 3]}'


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    core, as_component = wasm(ECHO), component(RETURN_INPUT)
    rows: list[dict[str, Any]] = []
    async with open_runtime(folder, ready=2) as runtime:
        for name, module, bare, bar in (
            ("core module", core, _bare_core(core), bars.WASM_CORE),
            ("component", as_component, _bare_component(as_component), bars.WASM_COMPONENT),
        ):
            compiled = await runtime.compile(module)

            async def ours(compiled: Any = compiled) -> None:
                assert (await runtime.run(compiled, tool="echo", input=INPUT)).output == INPUT

            with extism_peer(folder, wasm(EXTISM_ECHO), INPUT, INPUT) as extism:
                mine, theirs, peers = await _in_turn(ours, bare, extism)
            rows.append(_row(f"Tier A, {name}, warm", mine, theirs, peer="bare wasmtime, same module", bar=bar))
            if name == "core module":
                ms = [[each * 1_000 for each in times] for times in (mine, peers)]
                rows.append(against_extism("Tier A, core module, warm", *ms, bars.WASM_EXTISM))
                rows.append(await _growth(ours))
    return rows


def _bare_core(module: bytes) -> Callable[[], None]:
    """The package's public interface, with the same limits."""
    config = wasmtime.Config()
    config.consume_fuel = config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    compiled, linker = wasmtime.Module(engine, module), wasmtime.Linker(engine)

    def call() -> None:
        with wasmtime.Store(engine) as store:
            store.set_limits(memory_size=64 * 1024 * 1024)
            store.set_fuel(10_000_000)
            store.set_epoch_deadline(1)
            exports = linker.instantiate(store, compiled).exports(store)
            memory: Any = exports["memory"]
            alloc: Any = exports["palyra_alloc"]
            entry: Any = exports["run"]
            tool_at, input_at = alloc(store, 4), alloc(store, len(INPUT))
            memory.write(store, b"echo", tool_at)
            memory.write(store, INPUT, input_at)
            packed = entry(store, tool_at, 4, input_at, len(INPUT))
            place, length = packed >> 32, packed & 0xFFFFFFFF
            assert memory.read(store, place, place + length) == INPUT

    return call


def _bare_component(module: bytes) -> Callable[[], None]:
    config = wasmtime.Config()
    config.consume_fuel = config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    compiled, linker = wit.Component(engine, module), wit.Linker(engine)

    def call() -> None:
        with wasmtime.Store(engine) as store:
            store.set_limits(memory_size=64 * 1024 * 1024)
            store.set_fuel(10_000_000)
            store.set_epoch_deadline(1)
            entry: Any = linker.instantiate(store, compiled).get_func(store, "run")
            assert entry(store, "echo", INPUT.decode()).payload == INPUT.decode()

    return call


async def _in_turn(
    ours: Callable[[], Awaitable[None]], bare: Callable[[], None], extism: ExtismPeer | None
) -> tuple[list[float], list[float], list[float]]:
    mine: list[float] = []
    theirs: list[float] = []
    peers: list[float] = []
    for number in range(SAMPLES + WARM):
        since = time.perf_counter()
        await ours()
        between = time.perf_counter()
        bare()
        until = time.perf_counter()
        peer = [] if extism is None else [extism.create_and_call()]
        if number >= WARM:
            mine.append(between - since)
            theirs.append(until - between)
            peers += peer
    return mine, theirs, peers


async def _growth(ours: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """Many at once against a few: a queue, not a collapse."""
    rates = []
    await asyncio.gather(*(ours() for _ in range(AT_ONCE[0])))
    for many in AT_ONCE:
        since = time.perf_counter()
        await asyncio.gather(*(ours() for _ in range(many)))
        rates.append(many / (time.perf_counter() - since))
    return {
        "name": f"Tier A, {AT_ONCE[1]} at once",
        "ours_p50": rates[1],
        "ours_p99": None,
        "peer": f"{AT_ONCE[0]} at once",
        "peer_p50": rates[0],
        "peer_p99": None,
        "ratio": rates[1] / rates[0],
        "samples": AT_ONCE[1],
        "bar": bars.WASM_CROWD,
        "unit": "calls/s",
    }


def _row(name: str, ours: list[float], theirs: list[float], *, peer: str, bar: Any) -> dict[str, Any]:
    mine, other = _quantiles(ours), _quantiles(theirs)
    return {
        "name": name,
        "ours_p50": mine[0],
        "ours_p99": mine[1],
        "peer": peer,
        "peer_p50": other[0],
        "peer_p99": other[1],
        "ratio": mine[0] / other[0],
        "samples": len(ours),
        "bar": bar,
        "unit": "ms",
    }


def _quantiles(times: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(times, n=100)
    return cuts[49] * 1_000, cuts[98] * 1_000
