import asyncio
import subprocess
import sys

import pytest

from fakes.eventually import eventually
from fakes.wasm_guests import (
    ALLOC,
    ECHO,
    GRANTS,
    PACK,
    RETURN_ERROR,
    RETURN_INPUT,
    FakeServices,
    component,
    imported,
    minimal,
    open_runtime,
    text_at,
    wasm,
)
from palyra.limits import MIB
from palyra.wasm.domain.limits import RuntimeLimits
from palyra.wasm.domain.outcome import (
    FuelExhausted,
    GuestFailed,
    InputTooLarge,
    InvalidOutput,
    LinkFailed,
    MissingExport,
    NotCompiled,
    TimedOut,
    Trapped,
)


async def test_a_core_module_gets_its_input_and_gives_its_output(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        module = await runtime.compile(wasm(ECHO))
        outcome = await runtime.run(module, tool="echo", input=b'{"a": 1}')
    assert outcome.output == b'{"a": 1}'
    assert 0 < outcome.usage.fuel_used < 1_000
    assert outcome.usage.peak_memory_bytes == 2 * 65_536


async def test_the_tool_name_reaches_the_guest(tmp_path):
    text = ECHO.replace("(call $pack (local.get 2) (local.get 3))", "(call $pack (local.get 0) (local.get 1))")
    async with open_runtime(tmp_path) as runtime:
        outcome = await runtime.run(await runtime.compile(wasm(text)), tool="naïve", input=b"{}")
    assert outcome.output == "naïve".encode()


async def test_the_minimal_form_returns_an_exit_code(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        outcome = await runtime.run(await runtime.compile(minimal("(i32.const -7)", memory="")))
    assert outcome.output == -7


async def test_a_component_gets_its_input_and_gives_its_output(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        module = await runtime.compile(component(RETURN_INPUT))
        outcome = await runtime.run(module, tool="echo", input='{"ä": 1}'.encode())
    assert outcome.output == '{"ä": 1}'.encode()
    assert outcome.usage.peak_memory_bytes == 2 * 65_536
    assert outcome.usage.fuel_used > 0


async def test_a_components_error_is_a_failure(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        module = await runtime.compile(component(RETURN_ERROR))
        with pytest.raises(GuestFailed, match="no such note"):
            await runtime.run(module, tool="x", input=b"no such note")


async def test_a_core_module_can_say_that_it_failed(tmp_path):
    text = f"""(module {imported("fail", 2)} (memory (export "memory") 1) {text_at(8, "out of cheese")} {ALLOC} {PACK}
      (func (export "run") (param i32 i32 i32 i32) (result i64)
        (drop (call $fail (i32.const 8) (i32.const 13))) (i64.const 0)))"""
    async with open_runtime(tmp_path) as runtime:
        with pytest.raises(GuestFailed, match="out of cheese") as caught:
            await runtime.run(await runtime.compile(wasm(text)), input=b"{}")
    assert caught.value.usage.host_calls == 1


async def test_nothing_of_one_call_is_left_for_the_next(tmp_path):
    """The guest counts in its memory and in a global: both begin at zero again."""
    count = """(i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
      (global.set $g (i32.add (global.get $g) (i32.const 1)))
      (i32.add (i32.load (i32.const 0)) (global.get $g))"""
    async with open_runtime(tmp_path) as runtime:
        module = await runtime.compile(
            minimal(count, before="(global $g (mut i32) (i32.const 0))", memory="(memory 1)")
        )
        assert [(await runtime.run(module)).output for _ in range(3)] == [2, 2, 2]


async def test_a_reactors_initializer_runs_first(tmp_path):
    text = """(module (global $g (mut i32) (i32.const 0)) (func (export "_initialize") (global.set $g (i32.const 41)))
      (func (export "run") (result i32) (i32.add (global.get $g) (i32.const 1))))"""
    async with open_runtime(tmp_path) as runtime:
        assert (await runtime.run(await runtime.compile(wasm(text)))).output == 42


async def test_missing_and_wrong_exports_are_told_apart_by_name(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        nothing = await runtime.compile(wasm("(module)"))
        with pytest.raises(MissingExport, match="'run'"):
            await runtime.run(nothing)
        wrong = await runtime.compile(wasm('(module (func (export "run") (param i64)))'))
        with pytest.raises(MissingExport, match=r"\(i64\)"):
            await runtime.run(wrong)
        no_alloc = await runtime.compile(wasm(ECHO.replace('(export "palyra_alloc")', "")))
        with pytest.raises(MissingExport, match="palyra_alloc"):
            await runtime.run(no_alloc)


async def test_an_unknown_import_does_not_link(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        with pytest.raises(LinkFailed, match="launch-missiles"):
            await runtime.compile(
                wasm('(module (import "palyra:plugins/host-capabilities@0.1.0" "launch-missiles" (func)))')
            )
        with pytest.raises(LinkFailed, match="evil:host/files"):
            await runtime.compile(component(RETURN_INPUT, imports='(import "evil:host/files" (instance))'))


async def test_a_trap_is_named(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        with pytest.raises(Trapped, match="unreachable"):
            await runtime.run(await runtime.compile(minimal("unreachable")))
        with pytest.raises(Trapped, match="unreachable"):
            await runtime.run(await runtime.compile(component("unreachable")), input=b"{}")
        with pytest.raises(Trapped, match="divide by zero"):
            await runtime.run(await runtime.compile(minimal("(i32.div_u (i32.const 1) (i32.const 0))")))


async def test_fuel_and_time_end_a_guest_and_the_next_call_is_well(tmp_path):
    plenty = RuntimeLimits(fuel_budget=10**15)
    async with open_runtime(tmp_path, limits=plenty) as runtime:
        endless = await runtime.compile(minimal("(loop $l (br $l)) (i32.const 0)"))
        echo = await runtime.compile(wasm(ECHO))
        with pytest.raises(FuelExhausted) as caught:
            await runtime.run(endless, limits=RuntimeLimits())
        assert caught.value.usage.fuel_used == RuntimeLimits().fuel_budget
        with pytest.raises(TimedOut):
            await runtime.run(endless, timeout_ms=100)
        assert (await runtime.run(echo, input=b"x")).output == b"x"


async def test_output_beyond_the_limit_or_not_text_is_refused(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        echo = await runtime.compile(wasm(ECHO))
        with pytest.raises(InvalidOutput, match="longer"):
            await runtime.run(echo, input=b"x" * 11, limits=RuntimeLimits(max_output_bytes=10))
        with pytest.raises(InvalidOutput, match="UTF-8"):
            await runtime.run(echo, input=b"\xff\xfe")
        with pytest.raises(InputTooLarge):
            await runtime.run(echo, input=b"x" * 11, limits=RuntimeLimits(max_input_bytes=10))


async def test_large_input_and_output_travel_in_pieces(tmp_path):
    limits = RuntimeLimits(max_input_bytes=4 * MIB, max_output_bytes=4 * MIB)
    text = ECHO.replace("2)", "100)", 1)
    async with open_runtime(tmp_path, limits=limits) as runtime:
        data = b"0123456789abcdef" * (3 * MIB // 16)
        assert (await runtime.run(await runtime.compile(wasm(text)), input=data)).output == data


async def test_a_second_runtime_uses_what_the_first_compiled(tmp_path):
    async with open_runtime(tmp_path) as first:
        made = await first.compile(wasm(ECHO))
    async with open_runtime(tmp_path) as second:
        outcome = await second.run(made, input=b"from disk")
        assert outcome.output == b"from disk"
        assert second.refused_cache_files == 0


async def test_a_module_that_is_gone_says_so(tmp_path):
    async with open_runtime(tmp_path) as runtime:
        module = await runtime.compile(wasm(ECHO))
    async with open_runtime(tmp_path / "elsewhere") as other:
        with pytest.raises(NotCompiled):
            await other.run(module)


async def test_modules_beyond_what_a_worker_keeps_are_loaded_again(tmp_path):
    async with open_runtime(tmp_path, loaded_per_worker=2, computing=1) as runtime:
        modules = [await runtime.compile(minimal(f"(i32.const {number})")) for number in range(4)]
        for _ in range(2):
            assert [(await runtime.run(module)).output for module in modules] == [0, 1, 2, 3]


async def test_a_small_memory_cache_reads_from_disk_again(tmp_path):
    async with open_runtime(tmp_path, memory_cache_bytes=1, loaded_per_worker=1, computing=1) as runtime:
        modules = [await runtime.compile(minimal(f"(i32.const {number})")) for number in range(3)]
        for _ in range(2):
            assert [(await runtime.run(module)).output for module in modules] == [0, 1, 2]


async def test_many_calls_at_once_get_their_own_answers(tmp_path):
    async with open_runtime(tmp_path, wait_ms=60_000) as runtime:
        module = await runtime.compile(wasm(ECHO))
        inputs = [f"input {number}".encode() for number in range(60)]
        outcomes = await asyncio.gather(*(runtime.run(module, input=data) for data in inputs))
    assert [outcome.output for outcome in outcomes] == inputs


async def test_a_cancelled_call_frees_its_place(tmp_path):
    async with open_runtime(tmp_path, limits=RuntimeLimits(fuel_budget=10**15), computing=1) as runtime:
        endless = await runtime.compile(minimal("(loop $l (br $l)) (i32.const 0)"))
        running = asyncio.create_task(runtime.run(endless))
        await eventually(lambda: runtime.pool.busy)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert runtime.pool.busy == 0
        assert (await runtime.run(await runtime.compile(wasm(ECHO)), input=b"x")).output == b"x"


def test_the_daemon_does_not_load_the_engine():
    program = "import sys, palyra.wasm.runtime; print([name for name in sys.modules if name.startswith('wasmtime')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"


async def test_log_lines_come_back_redacted(tmp_path):
    body = "(call $log (i32.const 1) (i32.const 0) (i32.const 20))"
    guest = minimal(
        body, before=imported("log", 3) + "", memory='(memory (export "memory") 1)' + text_at(0, "the password hunter2")
    )
    async with open_runtime(tmp_path) as runtime:
        outcome = await runtime.run(await runtime.compile(guest), services=FakeServices(), grants=GRANTS)
    assert [(line.level, line.text) for line in outcome.logs] == [("info", "the password [redacted]")]
