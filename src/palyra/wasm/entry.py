"""Which of the three forms an entry point has, told from a module's facts."""

from enum import StrEnum

from palyra.wasm.abi import ALLOC, COMPONENT_RUN, CORE_ALLOC, CORE_RUN, MEMORY, MINIMAL_RUN
from palyra.wasm.limits import MAX_MEMORIES, MAX_TABLES, WASM_PAGE_BYTES, RuntimeLimits, share
from palyra.wasm.module_facts import COMPONENT, ModuleFacts
from palyra.wasm.outcome import MemoryExceeded, MissingExport


class EntryForm(StrEnum):
    # run(tool_ptr, tool_len, in_ptr, in_len) -> (ptr << 32 | len)
    PACKED = "packed"
    # run() -> exit code
    MINIMAL = "minimal"
    COMPONENT = "component"


def entry_form(facts: ModuleFacts, entry: str) -> EntryForm:
    export = facts.export(entry)
    if export is None or export.kind != "func":
        raise MissingExport(f"the module exports no function {entry!r}")
    if facts.form == COMPONENT:
        if export.type != COMPONENT_RUN:
            raise MissingExport(f"{entry!r} has the type {export.type}, not {COMPONENT_RUN}")
        return EntryForm.COMPONENT
    if export.type == MINIMAL_RUN:
        return EntryForm.MINIMAL
    if export.type != CORE_RUN:
        raise MissingExport(f"{entry!r} has the type {export.type}, not {CORE_RUN} or {MINIMAL_RUN}")
    alloc, memory = facts.export(ALLOC), facts.export(MEMORY)
    if alloc is None or alloc.type != CORE_ALLOC:
        raise MissingExport(f"the module exports no {ALLOC} of the type {CORE_ALLOC}")
    if memory is None or memory.kind != "memory":
        raise MissingExport(f"the module exports no {MEMORY}")
    return EntryForm.PACKED


def shared_out(facts: ModuleFacts, limits: RuntimeLimits) -> tuple[int, int]:
    """The bounds for each memory, in bytes, and for each table, in elements, that keep the sums within the limits.

    Which modules of a component are instantiated how often is not known from its bytes. The engine allows it as many
    memories and tables as it defines; so each gets the same part, whatever maxima they declare.
    """
    if len(facts.memories) > MAX_MEMORIES or len(facts.tables) > MAX_TABLES:
        raise MemoryExceeded(f"a guest may have {MAX_MEMORIES} memories and {MAX_TABLES} tables")
    pages = limits.max_memory_bytes // WASM_PAGE_BYTES
    alike = facts.form == COMPONENT
    each_page = share(pages, tuple(None if alike else memory.maximum for memory in facts.memories))
    each_element = share(limits.max_table_elements, tuple(None if alike else table.maximum for table in facts.tables))
    if any(memory.minimum > each_page for memory in facts.memories):
        raise MemoryExceeded(
            f"the module's memories begin larger than {each_page} pages each, which keeps their sum within {pages}"
        )
    if any(table.minimum > each_element for table in facts.tables):
        raise MemoryExceeded(f"the module's tables begin larger than {each_element} elements each")
    return each_page * WASM_PAGE_BYTES, each_element
