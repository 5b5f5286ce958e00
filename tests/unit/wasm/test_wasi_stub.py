"""Preview 1, as a toolchain's output meets it."""

import pytest

from fakes.wasm_guests import minimal, open_runtime, text_at, wasm
from palyra.wasm.domain.grants import CapabilityGrantSet
from palyra.wasm.domain.outcome import Trapped
from palyra.wasm.host.wasi import MODULE, TYPES

MEMORY = '(memory (export "memory") 1)'


def wasi(name):
    return f'(import "{MODULE}" "{name}" (func ${name} {_signature(name)}))'


def _signature(name):
    kind = TYPES[name]
    parameters, _, results = kind.partition(" -> ")
    return f"(param {parameters.strip('()')}) " + ("" if results else "(result i32)")


async def _run(tmp_path, body, *names, data="", grants=CapabilityGrantSet()):  # noqa: B008 - a value
    guest = minimal(body, before=" ".join(wasi(name) for name in names), memory=MEMORY + data)
    async with open_runtime(tmp_path) as runtime:
        return await runtime.run(await runtime.compile(guest), grants=grants)


async def test_every_function_links_and_none_touches_anything(tmp_path):
    """All of them are called with zeros; those that could reach a file or a socket answer that it is not there."""
    calls = []
    for name, kind in TYPES.items():
        if name == "proc_exit":
            continue
        kinds = kind.partition(" -> ")[0].strip("()").split()
        call = f"(call ${name} {' '.join(f'({one}.const 0)' for one in kinds)})"
        if name.startswith(("path_", "sock_")):
            call = f"(if (i32.ne {call} (i32.const 8)) (then unreachable))"
        else:
            call = f"(drop {call})"
        calls.append(call)
    outcome = await _run(tmp_path, "".join(calls) + "(i32.const 1)", *TYPES)
    assert outcome.output == 1


async def test_printed_text_becomes_log_lines(tmp_path):
    data = text_at(0, b"\x10\0\0\0\x0c\0\0\0\x20\0\0\0\x05\0\0\0") + text_at(16, "first\nsecond") + text_at(32, " line")
    body = """(drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 64)))
      (drop (call $fd_write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 68)))
      (if (call $fd_write (i32.const 3) (i32.const 8) (i32.const 1) (i32.const 68)) (then (nop)) (else unreachable))
      (i32.load (i32.const 64))"""
    outcome = await _run(tmp_path, body, "fd_write", data=data)
    assert outcome.output == 17
    assert [(line.level, line.text) for line in outcome.logs] == [
        ("info", "first"),
        ("info", "second line"),
        ("warning", " line"),
    ]


async def test_time_stands_still_and_random_bytes_are_the_seeds(tmp_path):
    body = """(drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 0)))
      (if (i64.ne (i64.load (i32.const 0)) (i64.const 1700000000000000000)) (then unreachable))
      (drop (call $random_get (i32.const 8) (i32.const 4))) (i32.load (i32.const 8))"""
    names = ("clock_time_get", "random_get")
    one = CapabilityGrantSet(clock_ms=1_700_000_000_000, random_seed=b"one")
    other = CapabilityGrantSet(clock_ms=1_700_000_000_000, random_seed=b"other")
    first, again, different = [
        (await _run(tmp_path, body, *names, grants=grants)).output for grants in (one, one, other)
    ]
    assert first == again != different


@pytest.mark.parametrize("place", [-1, 65_533, -8])
async def test_hostile_places_are_a_fault_for_the_guest(tmp_path, place):
    body = f"""(if (i32.ne (call $random_get (i32.const {place}) (i32.const 8)) (i32.const 21)) (then unreachable))
      (if (i32.ne (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const {place})) (i32.const 21))
        (then unreachable))
      (if (i32.ne (call $args_sizes_get (i32.const {place}) (i32.const 0)) (i32.const 21)) (then unreachable))
      (if (i32.ne (call $fd_fdstat_get (i32.const 1) (i32.const {place})) (i32.const 21)) (then unreachable))
      (call $fd_write (i32.const 1) (i32.const {place}) (i32.const -1) (i32.const 0))"""
    outcome = await _run(tmp_path, body, "random_get", "clock_time_get", "args_sizes_get", "fd_fdstat_get", "fd_write")
    assert outcome.output == 21


async def test_ending_oneself_is_told(tmp_path):
    with pytest.raises(Trapped, match="code 3"):
        await _run(tmp_path, "(call $proc_exit (i32.const 3)) (i32.const 0)", "proc_exit")
    abort = wasm(
        """(module (import "env" "abort" (func $a (param i32 i32 i32 i32))) (func (export "run") (result i32)
      (call $a (i32.const 0) (i32.const 0) (i32.const 12) (i32.const 34)) (i32.const 0)))"""
    )
    async with open_runtime(tmp_path) as runtime:
        with pytest.raises(Trapped, match="line 12, column 34"):
            await runtime.run(await runtime.compile(abort))
