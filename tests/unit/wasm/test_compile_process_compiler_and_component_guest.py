import pytest
from wasmtime import component as wit

from fakes.wasm_guests import ECHO, RETURN_INPUT, component, wasm
from palyra.wasm.compiled_modules import compile_in_process
from palyra.wasm.domain.host_interface import COMPONENT_RUN
from palyra.wasm.domain.limits import PoolSettings
from palyra.wasm.domain.module_facts import module_facts
from palyra.wasm.domain.outcome import CompileFailed, LinkFailed
from palyra.wasm.engine.config import make_engine
from palyra.wasm.engine.metering import GuestEnded
from palyra.wasm.process.fork_server import WorkerSource
from palyra.wasm.process.guest_process import Guests


@pytest.fixture
async def source():
    made = WorkerSource()
    yield made
    await made.close()


async def test_compiled_code_and_facts_come_back(source):
    for module, form in ((wasm(ECHO), "core"), (component(RETURN_INPUT), "component")):
        stored = await compile_in_process(source, PoolSettings(), module)
        assert stored.size > len(module)
        assert stored.facts.form == form
        stored.close()
    assert stored.facts.export("run").type == COMPONENT_RUN


async def test_the_reason_comes_back(source):
    with pytest.raises(CompileFailed, match="type mismatch"):
        await compile_in_process(source, PoolSettings(), wasm("(module)")[:8] + _bad_body())
    with pytest.raises(LinkFailed, match="nowhere"):
        await compile_in_process(source, PoolSettings(), wasm('(module (import "nowhere" "f" (func)))'))


async def test_names_in_the_reason_can_be_read(source):
    hostile = wasm('(module (import "a\\u{202e}b" "f" (func)))')
    with pytest.raises(LinkFailed, match=r"a\\u\{202e\}b"):
        await compile_in_process(source, PoolSettings(), hostile)


def _bad_body() -> bytes:
    """Build a function that should return a number and returns nothing."""
    return b"\x01\x05\x01\x60\x00\x01\x7f" + b"\x03\x02\x01\x00" + b"\x0a\x04\x01\x02\x00\x0b"


def test_a_component_gets_what_it_imports_and_nothing_else():
    guests = Guests(make_engine())
    plain = wit.Component(guests.engine, component(RETURN_INPUT))
    guests.components.link(plain)
    facts = guests.components.add_export_types(plain, module_facts(component(RETURN_INPUT)))
    assert facts.export("run").type == COMPONENT_RUN
    for name in ("other:pkg/host@0.1.0", "palyra:skill/host@0.2.0", "wasi:http/types"):
        greedy = wit.Component(guests.engine, component(RETURN_INPUT, imports=f'(import "{name}" (instance))'))
        with pytest.raises(GuestEnded, match="does not have"):
            guests.components.link(greedy)
