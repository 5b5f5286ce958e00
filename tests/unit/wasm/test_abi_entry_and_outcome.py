import re

import pytest

from palyra.errors import PalyraError
from palyra.wasm.domain import host_interface, outcome
from palyra.wasm.domain.limits import RuntimeLimits
from palyra.wasm.domain.module_facts import (
    COMPONENT,
    CORE,
    EntryForm,
    Export,
    Memory,
    ModuleFacts,
    Table,
    entry_form,
    share_out,
)


def test_every_host_function_has_a_type_in_at_least_one_form_and_names_are_unique():
    names = [function.name for function in host_interface.HOST_FUNCTIONS]
    assert len(set(names)) == len(names)
    assert all(function.core or function.wit for function in host_interface.HOST_FUNCTIONS)
    assert set(host_interface.WIT_TYPES) - set(host_interface.CORE_TYPES) == set(), (
        "what a component can do, a core module can"
    )


def test_statuses_are_negative_and_have_names_in_wit():
    assert all(status < 0 for status in host_interface.Status if status is not host_interface.Status.OK)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in host_interface.ERROR_NAMES)


def test_core_types_are_parameters_and_results():
    assert host_interface.core_types("(i32 i64) -> (i32)") == (("i32", "i64"), ("i32",))
    assert host_interface.core_types("() -> ()") == ((), ())


def _core(*exports: Export) -> ModuleFacts:
    return ModuleFacts(form=CORE, size=0, exports=exports)


def test_the_three_forms_of_an_entry():
    run = Export(name="run", kind="func", type=host_interface.CORE_RUN)
    alloc = Export(name="palyra_alloc", kind="func", type=host_interface.CORE_ALLOC)
    memory = Export(name="memory", kind="memory")
    assert entry_form(_core(run, alloc, memory), "run") is EntryForm.PACKED
    assert entry_form(_core(Export(name="go", kind="func", type=host_interface.MINIMAL_RUN)), "go") is EntryForm.MINIMAL
    whole = Export(name="run", kind="func", type=host_interface.COMPONENT_RUN)
    assert entry_form(ModuleFacts(form=COMPONENT, size=0, exports=(whole,)), "run") is EntryForm.COMPONENT
    for facts in (_core(run, alloc), _core(run, memory), _core(Export(name="run", kind="memory")), _core()):
        with pytest.raises(outcome.MissingExport):
            entry_form(facts, "run")


def test_memories_of_a_component_get_equal_parts_whatever_they_declare():
    memories = (Memory(minimum=1, maximum=2), Memory(minimum=1))
    limits = RuntimeLimits(max_memory_bytes=100 * 65_536, max_table_elements=10)
    assert share_out(ModuleFacts(form=COMPONENT, size=0, memories=memories), limits)[0] == 50 * 65_536
    assert share_out(ModuleFacts(form=CORE, size=0, memories=memories), limits)[0] == 98 * 65_536
    with pytest.raises(outcome.MemoryExceeded):
        share_out(ModuleFacts(form=CORE, size=0, tables=(Table(minimum=11),)), limits)


def test_the_designs_kinds_all_exist_and_a_lie_is_a_lost_worker():
    kinds = "compile link missing_export trap timed_out fuel_exhausted memory_exceeded capability_denied invalid_output"
    assert {f"wasm.{kind}" for kind in [*kinds.split(), "quota"]} <= set(PalyraError.registry)
    usage = outcome.WasmUsage(fuel_used=7)
    assert outcome.build_error("trap", "x", usage, ()).usage.fuel_used == 7
    assert isinstance(outcome.build_error("granted_everything", "x", usage, ()), outcome.WorkerLost)
