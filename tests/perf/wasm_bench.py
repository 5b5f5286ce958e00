"""What Tier A costs: a call through the runtime, in its worker process, against wasmtime called bare in this process,
and against extism making and calling an equivalent plug-in. Measured alternately, for both forms of guest."""

import asyncio
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
import venv
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import platformdirs
import wasmtime
from wasmtime import component as wit

from fakes.wasm_guests import ECHO, RETURN_INPUT, component, open_runtime, wasm

SAMPLES = 1_000
WARM = 100
AT_ONCE = (8, 256)
INPUT = b'{"text": "a plain little document", "numbers": [1, 2, 3]}'
# The same echo, written for extism's interface: input and output are in memory of the host.
EXTISM_ECHO = """(module
  (import "extism:host/env" "input_length" (func $length (result i64)))
  (import "extism:host/env" "input_load_u8" (func $load (param i64) (result i32)))
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u8" (func $store (param i64 i32)))
  (import "extism:host/env" "output_set" (func $output (param i64 i64)))
  (memory (export "memory") 2)
  (func (export "run") (result i32) (local $n i64) (local $at i64) (local $i i64)
    (local.set $n (call $length)) (local.set $at (call $alloc (local.get $n)))
    (block $done (loop $next (br_if $done (i64.ge_u (local.get $i) (local.get $n)))
      (call $store (i64.add (local.get $at) (local.get $i)) (call $load (local.get $i)))
      (local.set $i (i64.add (local.get $i) (i64.const 1))) (br $next)))
    (call $output (local.get $at) (local.get $n)) (i32.const 0)))"""
# Runs in an environment of its own: times come back as JSON.
EXTISM_PROGRAM = """
import json, sys, time, extism
manifest = {"wasm": [{"data": open(sys.argv[1], "rb").read()}]}
times = []
for number in range(int(sys.argv[2]) + 20):
    since = time.perf_counter()
    assert extism.Plugin(manifest).call("run", sys.argv[3].encode()) == sys.argv[3].encode()
    if number >= 20:
        times.append(time.perf_counter() - since)
print(json.dumps(times))
"""


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    core, as_component = wasm(ECHO), component(RETURN_INPUT)
    rows: list[dict[str, Any]] = []
    async with open_runtime(folder, ready=2) as runtime:
        bar = "no more than 1 ms above bare"
        for name, module, bare in (
            ("core module", core, _bare_core(core)),
            ("component", as_component, _bare_component(as_component)),
        ):
            compiled = await runtime.compile(module)

            async def ours(compiled: Any = compiled) -> None:
                assert (await runtime.run(compiled, tool="echo", input=INPUT)).output == INPUT

            mine, theirs = await _alternately(ours, bare)
            rows.append(_row(f"Tier A, {name}, warm", mine, theirs, peer="bare wasmtime, same module", bar=bar))
            if name == "core module":
                peer = await asyncio.to_thread(_extism, folder)
                rows.append(
                    _row("Tier A, core module, warm", mine, peer, peer="extism, create and call", bar="below it")
                )
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


async def _alternately(
    ours: Callable[[], Awaitable[None]], bare: Callable[[], None]
) -> tuple[list[float], list[float]]:
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(SAMPLES + WARM):
        since = time.perf_counter()
        await ours()
        between = time.perf_counter()
        bare()
        until = time.perf_counter()
        if number >= WARM:
            mine.append(between - since)
            theirs.append(until - between)
    return mine, theirs


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
        "bar": "no collapse",
        "unit": "calls/s",
    }


def _extism(folder: Path) -> list[float]:
    python = _from_pypi("extism")
    if python is None:
        return []
    module = folder / "extism.wasm"
    module.write_bytes(wasm(EXTISM_ECHO))
    command = [python, "-c", EXTISM_PROGRAM, str(module), str(SAMPLES // 2), INPUT.decode()]
    done = subprocess.run(command, check=False, capture_output=True)
    times: list[float] = json.loads(done.stdout) if done.returncode == 0 else []
    return times


def _from_pypi(package: str) -> str | None:
    home = platformdirs.user_cache_path("palyra-bench") / package
    python = home / "bin" / "python"
    there = home / "installed"
    if not there.exists():
        with contextlib.suppress(subprocess.CalledProcessError, OSError):
            venv.create(home, with_pip=True, clear=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True, capture_output=True)
            there.touch()
    return str(python) if there.exists() else None


def _row(name: str, ours: list[float], theirs: list[float], *, peer: str, bar: str) -> dict[str, Any]:
    mine, other = _quantiles(ours), _quantiles(theirs)
    return {
        "name": name,
        "ours_p50": mine[0],
        "ours_p99": mine[1],
        "peer": peer if theirs else f"{peer} (not installed)",
        "peer_p50": other[0],
        "peer_p99": other[1],
        "ratio": mine[0] / other[0] if mine[0] is not None and other[0] else None,
        "samples": len(ours),
        "bar": bar,
        "unit": "ms",
    }


def _quantiles(times: list[float]) -> tuple[float | None, float | None]:
    if not times:
        return None, None
    cuts = statistics.quantiles(times, n=100)
    return cuts[49] * 1_000, cuts[98] * 1_000
