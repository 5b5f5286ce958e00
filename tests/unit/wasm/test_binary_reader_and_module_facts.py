import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.wasm_guests import ECHO, RETURN_INPUT, component, wasm
from palyra.wasm.domain.module_facts import Allowance, BinaryReader, module_facts
from palyra.wasm.domain.outcome import CompileFailed

RICH = """(module
  (import "a" "f" (func (param i32 i64) (result f64)))
  (import "a" "g" (global i32)) (import "a" "t" (table 1 2 funcref)) (import "a" "m" (memory 1))
  (memory (export "mine") 2 7) (table 3 externref) (global (export "g2") i64 (i64.const 0))
  (func $s) (start $s) (func (export "out") (param f32) (result i32) (i32.const 0))
  (data (i32.const 0) "hello"))"""


def test_facts_of_a_core_module():
    facts = module_facts(wasm(RICH))
    assert [(one.module, one.name, one.kind, one.type) for one in facts.imports] == [
        ("a", "f", "func", "(i32 i64) -> (f64)"),
        ("a", "g", "global", ""),
        ("a", "t", "table", ""),
        ("a", "m", "memory", ""),
    ]
    assert facts.export("out").type == "(f32) -> (i32)"
    assert {export.name: export.kind for export in facts.exports} == {"mine": "memory", "g2": "global", "out": "func"}
    assert [(memory.minimum, memory.maximum) for memory in facts.memories] == [(1, None), (2, 7)]
    assert [(table.minimum, table.maximum) for table in facts.tables] == [(1, 2), (3, None)]
    assert facts.has_start
    assert facts.functions == 2
    assert facts.data_bytes > 5


def test_facts_of_a_component_add_up_its_modules():
    facts = module_facts(component(RETURN_INPUT, imports='(import "wasi:cli/exit@0.2.0" (instance))'))
    assert (facts.form, facts.core_modules) == ("component", 2)
    assert [one.name for one in facts.imports] == ["wasi:cli/exit@0.2.0"]
    assert [(one.name, one.kind) for one in facts.exports] == [("run", "func")]
    assert len(facts.memories) == 1, "an imported memory is its neighbour's"


def test_nested_components_are_read_and_deep_nests_refused():
    nest = "(core module (memory 3))"
    for _ in range(3):
        nest = f"(component {nest})"
    assert [memory.minimum for memory in module_facts(wasm(f"(component {nest})")).memories] == [3]
    for _ in range(10):
        nest = f"(component {nest})"
    with pytest.raises(CompileFailed, match="deeply"):
        module_facts(wasm(nest))


@given(st.binary(max_size=200))
def test_any_bytes_give_facts_or_a_refusal(data):
    for beginning in (b"", b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"):
        try:
            module_facts(beginning + data)
        except CompileFailed:
            continue


@given(st.integers(8, 400), st.integers(0, 255))
def test_a_changed_byte_gives_facts_or_a_refusal(place, value):
    for module in (wasm(RICH), wasm(ECHO), component(RETURN_INPUT)):
        changed = bytearray(module)
        changed[place % len(changed)] = value
        try:
            module_facts(bytes(changed))
        except CompileFailed:
            continue


def test_lists_are_bounded_before_they_are_read():
    reader = BinaryReader(memoryview(b"\xff\xff\xff\x7f" + bytes(10)), Allowance(100))
    with pytest.raises(CompileFailed, match="longer than the module"):
        reader.count()
    many = BinaryReader(memoryview(b"\x80\x02" + bytes(300)), Allowance(100))
    with pytest.raises(CompileFailed, match="honest"):
        many.count()
    endless = BinaryReader(memoryview(b"\xff" * 30), Allowance(100))
    with pytest.raises(CompileFailed, match="number"):
        endless.number()
