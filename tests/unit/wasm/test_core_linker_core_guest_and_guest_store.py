"""Core modules run in this process, without a worker around them."""

import msgspec
import pytest
import wasmtime

from fakes.wasm_guests import ECHO, imported, minimal, text_at, wasm
from palyra.wasm.domain.frames import Answer, Load
from palyra.wasm.domain.module_facts import CORE, module_facts
from palyra.wasm.engine import libwasmtime
from palyra.wasm.engine.config import make_engine
from palyra.wasm.engine.metering import GuestEnded, ProcessMemory, RunMeter
from palyra.wasm.engine.store import GuestMemory, GuestStore
from palyra.wasm.host.host_calls import HostCalls
from palyra.wasm.process.fork_server_main import _warm_call, warm_up
from palyra.wasm.process.guest_process import Guests

CALL = msgspec.structs.replace(
    _warm_call(), max_host_calls=3, max_log_lines=9, max_log_bytes=999, max_log_line_chars=99, counts=(1, 0, 0, 0)
)


@pytest.fixture
def guests():
    return Guests(make_engine())


@pytest.fixture
def memory():
    made = ProcessMemory()
    yield made
    made.close()


def _run(guests, memory, module, call=CALL):
    compiled = bytes(wasmtime.Module(guests.engine, module).serialize())
    loaded = guests.load(CORE, compiled, Load(digest=b"", form=CORE, size=len(compiled), facts=module_facts(module)))
    calls = HostCalls(call, lambda ask: Answer(number=ask.number, status=0))
    guests.active.begin(calls)
    meter = RunMeter(memory)
    try:
        return guests.run(loaded, call, meter), meter, calls
    finally:
        guests.active.begin(None)


def test_a_run_is_metered(guests, memory):
    output, meter, _ = _run(guests, memory, wasm(ECHO))
    assert output == b"{}"
    assert (meter.memory_bytes, meter.fuel_used > 0) == (131_072, True)


def test_memory_that_is_not_exported_is_metered_too(guests, memory):
    text = """(module (memory 3) (memory 5) (func (export "run") (result i32)
      (drop (memory.grow 1 (i32.const 2))) (i32.const 0)))"""
    _, meter, _ = _run(guests, memory, wasm(text))
    # Read off the process, which may have grown a little for itself meanwhile.
    assert 10 * 65_536 <= meter.memory_bytes <= 10 * 65_536 + 1_048_576


def test_host_functions_beyond_the_number_are_refused_and_all_are_counted(guests, memory):
    body = "(i32.add (i32.add (call $http-count) (call $http-count)) (i32.add (call $http-count) (call $http-count)))"
    output, _, calls = _run(guests, memory, minimal(body, before=imported("http-count", 0)))
    assert output == 3 - 7
    assert calls.count == 4


def test_a_store_that_was_never_entered_can_be_closed(guests):
    store = GuestStore(libwasmtime.address_of(guests.engine), CALL, module_facts(wasm("(module)")))
    assert store.fuel_used() == 0
    store.close()


def test_a_start_function_that_traps_harms_neither_meter_nor_store(guests, memory):
    text = """(module (memory (export "memory") 1) (func $s unreachable) (start $s)
      (func (export "run") (result i32) (i32.const 0)))"""
    with pytest.raises(GuestEnded, match="unreachable"):
        _run(guests, memory, wasm(text))
    assert _run(guests, memory, wasm(ECHO))[0] == b"{}"


def test_a_log_from_the_start_function_is_kept(guests, memory):
    text = f"""(module {imported("log", 3)} (memory (export "memory") 1) {text_at(0, "early")}
      (func $s (drop (call $log (i32.const 1) (i32.const 0) (i32.const 5)))) (start $s)
      (func (export "run") (result i32) (i32.const 0)))"""
    _, _, calls = _run(guests, memory, wasm(text))
    assert calls.logs == [(1, "early")]


def test_a_memory_nobody_pointed_to_is_empty():
    empty = GuestMemory()
    assert empty.size == 0
    assert empty.read(0, 1, 10) < 0
    assert empty.read(0, 0, 10) == b""
    assert empty.write(0, b"x") < 0


def test_warming_up_leaves_nothing_behind(guests):
    warm_up(guests)
    assert guests.active.calls is None


# Counts up in its memory and in a global, and grows by as many pages as it may.
COUNTS = """(global $g (mut i32) (i32.const 0))
  (func $count (result i32)
    (global.set $g (i32.add (global.get $g) (i32.const 1)))
    (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
    (i32.add (global.get $g) (i32.load (i32.const 64))))"""
GROWS = """(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (memory.size)"""
PAGE = 65_536


def _run_many(guests, memory, module, calls):
    """Run one loaded module again and again, as a worker does: the outputs, and the use of each run."""
    compiled = bytes(wasmtime.Module(guests.engine, module).serialize())
    loaded = guests.load(CORE, compiled, Load(digest=b"", form=CORE, size=len(compiled), facts=module_facts(module)))
    outputs, used = [], []
    for call in calls:
        guests.active.begin(HostCalls(call, lambda ask: Answer(number=ask.number, status=0)))
        meter = RunMeter(memory)
        outputs.append(guests.run(loaded, call, meter))
        used.append((meter.fuel_used, meter.memory_bytes))
    guests.active.begin(None)
    return outputs, used


def test_every_call_finds_the_module_as_new(guests, memory):
    outputs, used = _run_many(guests, memory, minimal("(call $count)", before=COUNTS), [CALL] * 4)
    assert outputs == [2] * 4
    assert len(set(used)) == 1


def test_every_call_has_its_own_fuel_and_bounds(guests, memory):
    endless = minimal("(loop $l (br $l)) (i32.const 0)")
    for fuel in (1_000, 9_000, 500):
        with pytest.raises(GuestEnded) as ended:
            _run(guests, memory, endless, msgspec.structs.replace(CALL, fuel=fuel))
        assert ended.value.kind == "fuel_exhausted"
    calls = [msgspec.structs.replace(CALL, memory_bytes=pages * PAGE) for pages in (3, 3, 5, 2, 2)]
    assert _run_many(guests, memory, minimal(GROWS), calls)[0] == [3, 3, 5, 2, 2]


def test_a_module_that_cannot_be_instantiated_harms_no_other(guests, memory):
    bad = wasm(
        '(module (memory (export "memory") 1) (data (i32.const 70000) "x")'
        ' (func (export "run") (result i32) (i32.const 0)))'
    )
    for _ in range(2):
        with pytest.raises(GuestEnded):
            _run(guests, memory, bad)
        assert _run(guests, memory, minimal("(i32.const 7)"))[0] == 7


@pytest.mark.parametrize("named", ['(func (export "memory"))', '(global (export "memory") i32 (i32.const 5))'])
def test_memory_behind_something_else_of_that_name_is_metered_too(guests, memory, named):
    """The receipt would say that a guest with megabytes had none."""
    text = f'(module (memory 3) {named} (func (export "run") (result i32) (memory.grow (i32.const 7))))'
    call = msgspec.structs.replace(CALL, memory_bytes=16 << 20)
    output, meter, _ = _run(guests, memory, wasm(text), call)
    assert output == 3
    assert 10 * 65_536 <= meter.memory_bytes <= 10 * 65_536 + 1_048_576
