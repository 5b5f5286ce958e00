"""extism making and calling a plug-in, in an environment and a process of its own: one at a time, when it is asked to,
so that it can be measured in turn with ours."""

import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perf.peers import from_pypi

# The echo, written for extism's interface: input and output are in memory of the host.
EXTISM_ECHO = """(module
  (import "extism:host/env" "input_length" (func $length (result i64)))
  (import "extism:host/env" "input_load_u8" (func $load (param i64) (result i32)))
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u8" (func $store (param i64 i32)))
  (import "extism:host/env" "output_set" (func $output (param i64 i64)))
  (memory (export "memory") 2)
  (func (export "call") (result i32) (local $n i64) (local $at i64) (local $i i64)
    (local.set $n (call $length)) (local.set $at (call $alloc (local.get $n)))
    (block $done (loop $next (br_if $done (i64.ge_u (local.get $i) (local.get $n)))
      (call $store (i64.add (local.get $at) (local.get $i)) (call $load (local.get $i)))
      (local.set $i (i64.add (local.get $i) (i64.const 1))) (br $next)))
    (call $output (local.get $at) (local.get $n)) (i32.const 0)))"""
# For each line that it reads it makes a plug-in, calls it, and tells how long both took.
_PROGRAM = """
import sys, time, extism
module, given, expected = (open(name, "rb").read() for name in sys.argv[1:4])
manifest = {"wasm": [{"data": module}]}
for _ in sys.stdin.buffer:
    since = time.perf_counter()
    brought = bytes(extism.Plugin(manifest).call("call", given))
    taken = time.perf_counter() - since
    assert brought == expected, brought
    print(taken, flush=True)
"""


class ExtismPeer:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def create_and_call(self) -> float:
        """Seconds, by its own clock: what it takes to ask it is not counted."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def extism_peer(folder: Path, module: bytes, given: bytes, expected: bytes) -> Iterator[ExtismPeer | None]:
    """None where extism is missing."""
    python = from_pypi("extism", "python")
    if python is None:
        yield None
        return
    files = [folder / "extism.wasm", folder / "extism.in", folder / "extism.out"]
    for file, content in zip(files, (module, given, expected), strict=True):
        file.write_bytes(content)
    command = [python, "-c", _PROGRAM, *map(str, files)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield ExtismPeer(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def against_extism(name: str, ours_ms: list[float], theirs_ms: list[float], bar: Any = None) -> dict[str, Any]:
    mine = statistics.quantiles(ours_ms, n=100)
    other = statistics.quantiles(theirs_ms, n=100) if theirs_ms else None
    return {
        "name": name,
        "unit": "ms",
        "ours_p50": mine[49],
        "ours_p99": mine[98],
        "peer": "extism, create and call" if other else "extism (missing)",
        "peer_p50": other[49] if other else None,
        "peer_p99": other[98] if other else None,
        "ratio": mine[49] / other[49] if other else None,
        "samples": len(ours_ms),
        "bar": bar,
    }
