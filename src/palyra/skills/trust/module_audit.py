"""Findings on a module from its bytes: imports, exports, memories, tables and the form of its entry point."""

from collections.abc import Iterator
from typing import Final

import msgspec

from palyra.errors import PalyraError
from palyra.skills.limits import MANY_EXPORTS, MAX_MEMORY_BYTES, MAX_MODULE_BYTES, MAX_TABLE_ELEMENTS
from palyra.skills.package.artifact import MODULES
from palyra.skills.package.capabilities import WasiGroup
from palyra.skills.package.manifest import SkillManifest
from palyra.skills.trust.findings import Finding, finding
from palyra.wasm.domain import host_interface
from palyra.wasm.domain.grants import Capability
from palyra.wasm.domain.limits import WASM_PAGE_BYTES
from palyra.wasm.domain.module_facts import COMPONENT, CORE, Import, ModuleFacts, module_facts

# Functions of preview 1 by what they would reach. Those not here (exit, yield, poll) reach nothing.
_PREVIEW1_GROUPS: Final = (
    ("clock_", WasiGroup.CLOCKS),
    ("random_", WasiGroup.RANDOM),
    ("environ_", WasiGroup.ENVIRONMENT),
    ("args_", WasiGroup.ENVIRONMENT),
    ("path_", WasiGroup.FILESYSTEM),
    ("fd_prestat_", WasiGroup.FILESYSTEM),
    ("fd_readdir", WasiGroup.FILESYSTEM),
    ("fd_", WasiGroup.STDIO),
    ("sock_", WasiGroup.SOCKETS),
)
_PREVIEW2_GROUPS: Final = (
    ("wasi:clocks/", WasiGroup.CLOCKS),
    ("wasi:random/", WasiGroup.RANDOM),
    ("wasi:cli/environment", WasiGroup.ENVIRONMENT),
    ("wasi:cli/", WasiGroup.STDIO),
    ("wasi:io/", WasiGroup.STDIO),
    ("wasi:filesystem/", WasiGroup.FILESYSTEM),
    ("wasi:sockets/", WasiGroup.SOCKETS),
    ("wasi:http/", WasiGroup.SOCKETS),
)
# What lets a caller of the exports change the module's own state behind its back.
_INTERNALS: Final = frozenset(
    ("__stack_pointer", "__indirect_function_table", "__wasm_init_memory", "__memory_base", "__table_base", "_start")
)
_ABI_TYPES: Final = {
    host_interface.RUN: frozenset((host_interface.CORE_RUN, host_interface.MINIMAL_RUN)),
    host_interface.ALLOC: frozenset((host_interface.CORE_ALLOC,)),
}


class ModuleUse(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities that a module can use. An opaque one imports the whole interface, so its imports say nothing."""

    module: str
    capabilities: frozenset[Capability] = frozenset()
    wasi: frozenset[WasiGroup] = frozenset()
    is_opaque: bool = False


def audit_module(name: str, module: bytes, manifest: SkillManifest) -> tuple[ModuleUse, list[Finding]]:
    entry = f"{MODULES}{name}"
    try:
        facts = module_facts(module, most=MAX_MODULE_BYTES)
    except PalyraError as error:
        return ModuleUse(module=name, is_opaque=True), [finding("module-invalid", entry, error.message)]
    found = [
        *_form(facts, manifest, entry),
        *_imports(facts, entry),
        *(_entry_point(facts, entry) if name in manifest.modules() else ()),
        *_exports(facts, entry),
        *_sizes(facts, entry),
    ]
    if facts.has_start:
        found.append(finding("start-function", entry, "it has a start function, which runs when it is instantiated"))
    return _use(name, facts), found


def _form(facts: ModuleFacts, manifest: SkillManifest, entry: str) -> Iterator[Finding]:
    declared = manifest.compat.abi
    if declared is not None and declared.value != facts.form:
        yield finding("module-abi", entry, f"compat.abi says {declared.value}, and it is a {facts.form} module")


def _imports(facts: ModuleFacts, entry: str) -> Iterator[Finding]:
    for one in facts.imports:
        problem = _unknown_component_import(one) if facts.form == COMPONENT else _unknown_core_import(one)
        if problem:
            yield finding("unknown-import", entry, problem)


def _unknown_core_import(one: Import) -> str:
    if one.module == host_interface.WASI_PREVIEW1:
        return "" if one.kind == "func" else f"it imports the {one.kind} {one.module}.{one.name}"
    if one.module != host_interface.IMPORT_MODULE:
        return f"it imports {one.name!r} from {one.module!r}"
    expected = host_interface.CORE_TYPES.get(one.name)
    if one.kind != "func" or expected is None:
        return f"it imports the {one.kind} {one.name!r}, which {host_interface.IMPORT_MODULE} does not have"
    if one.type != expected:
        return f"it imports {one.name!r} as {one.type}, and it is {expected}"
    return ""


def _unknown_component_import(one: Import) -> str:
    if one.name == host_interface.HOST_INTERFACE or one.name.startswith(host_interface.WASI_PREFIX):
        return "" if one.kind == "instance" else f"it imports the {one.kind} {one.name!r}"
    # Types that the world's own functions mention are imported as equal to something else.
    return "" if one.kind == "type" else f"it imports the {one.kind} {one.name!r}"


def _entry_point(facts: ModuleFacts, entry: str) -> Iterator[Finding]:
    run = facts.export(host_interface.RUN)
    if run is None or run.kind != "func":
        yield finding("entrypoint-missing", entry, f"it exports no function {host_interface.RUN!r}")
        return
    if facts.form != CORE:
        return
    if run.type not in _ABI_TYPES[host_interface.RUN]:
        evidence = (
            f"{host_interface.RUN} is {run.type}, and must be {host_interface.CORE_RUN} or {host_interface.MINIMAL_RUN}"
        )
        yield finding("entrypoint-type", entry, evidence)
    if run.type != host_interface.CORE_RUN:
        return
    alloc, memory = facts.export(host_interface.ALLOC), facts.export(host_interface.MEMORY)
    if alloc is None or alloc.type not in _ABI_TYPES[host_interface.ALLOC]:
        yield finding(
            "entrypoint-type",
            entry,
            f"{host_interface.RUN} needs an export {host_interface.ALLOC} of {host_interface.CORE_ALLOC}",
        )
    if memory is None or memory.kind != "memory":
        yield finding("entrypoint-type", entry, f"{host_interface.RUN} needs an exported {host_interface.MEMORY}")


def _exports(facts: ModuleFacts, entry: str) -> Iterator[Finding]:
    if facts.form == CORE:
        internals = sorted({one.name for one in facts.exports if one.name in _INTERNALS or one.kind == "table"})
        if internals:
            yield finding("dangerous-export", entry, f"it exports {', '.join(internals)}")
    if len(facts.exports) > MANY_EXPORTS:
        yield finding("many-exports", entry, f"it has {len(facts.exports)} exports")


def _sizes(facts: ModuleFacts, entry: str) -> Iterator[Finding]:
    if facts.form == CORE and len(facts.memories) > 1:
        yield finding("multiple-memories", entry, f"it has {len(facts.memories)} memories")
    if any(memory.shared or memory.wide for memory in facts.memories):
        yield finding("shared-memory", entry, "it has a memory for threads, or one of more than 4 GiB")
    least = sum(memory.minimum for memory in facts.memories) * WASM_PAGE_BYTES
    if least > MAX_MEMORY_BYTES:
        yield finding("memory-excess", entry, f"it starts with {least} bytes of memory; {MAX_MEMORY_BYTES} are allowed")
    elif any(memory.maximum is None for memory in facts.memories):
        yield finding("memory-unbounded", entry, f"only the runtime's limit of {MAX_MEMORY_BYTES} bytes holds")
    elements = sum(table.minimum for table in facts.tables)
    if elements > MAX_TABLE_ELEMENTS:
        yield finding("table-excess", entry, f"its tables have {elements} elements; {MAX_TABLE_ELEMENTS} are allowed")


def _use(name: str, facts: ModuleFacts) -> ModuleUse:
    if facts.form == COMPONENT:
        names = {one.name for one in facts.imports}
        wasi = {_group(one, _PREVIEW2_GROUPS) for one in names if one.startswith(host_interface.WASI_PREFIX)}
        # An interface is imported as a whole: which functions are called shows only when it runs.
        everything = host_interface.HOST_INTERFACE in names
        return ModuleUse(module=name, wasi=frozenset(group for group in wasi if group), is_opaque=everything)
    ours = {one.name for one in facts.imports if one.module == host_interface.IMPORT_MODULE}
    # Counting handles reaches nothing, and the seeds' modules do only that.
    acting = {one for one in ours if not one.endswith(("-count", "-handle"))}
    capabilities = frozenset(kind for kind in Capability if any(one.startswith(f"{kind}-") for one in acting))
    counting = frozenset(kind for kind in Capability if f"{kind}-handle" in ours) - capabilities
    wasi = {_group(one.name, _PREVIEW1_GROUPS) for one in facts.imports if one.module == host_interface.WASI_PREVIEW1}
    return ModuleUse(
        module=name,
        capabilities=capabilities,
        wasi=frozenset(group for group in wasi if group),
        is_opaque=bool(counting),
    )


def _group(name: str, groups: tuple[tuple[str, WasiGroup], ...]) -> WasiGroup | None:
    return next((group for prefix, group in groups if name.startswith(prefix)), None)
