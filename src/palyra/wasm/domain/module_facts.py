"""Facts of a module, read from its bytes: imports, exports, memories, tables, start function.

For the audit and for sharing out limits. The bytes are hostile: every number is checked before it is used, every list
is bounded, and nothing is compiled. A component's facts are its own imports and exports, with the memories, tables and
start functions of all core modules inside it.
"""

from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from palyra.wasm.domain.host_interface import ALLOC, COMPONENT_RUN, CORE_ALLOC, CORE_RUN, MEMORY, MINIMAL_RUN
from palyra.wasm.domain.limits import MAX_MEMORIES, MAX_MODULE_BYTES, MAX_TABLES, WASM_PAGE_BYTES, RuntimeLimits, share
from palyra.wasm.domain.outcome import CompileFailed, MemoryExceeded, MissingExport

# Reads the binary format of WebAssembly: numbers, names, sections. The bytes are hostile.

_MAX_LEB_BYTES: Final = 10
_MAX_NAME_BYTES: Final = 100_000


def malformed(message: str) -> CompileFailed:
    return CompileFailed(message)


class Allowance:
    """How many list entries may still be read, over all sections and nested modules."""

    def __init__(self, items: int) -> None:
        self.left = items

    def take(self, items: int) -> None:
        self.left -= items
        if self.left < 0:
            raise malformed("the module has more parts than any honest one")


class BinaryReader:
    def __init__(self, view: memoryview, allowance: Allowance) -> None:
        self.view = view
        self.allowance = allowance
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self.view)

    def skip(self, length: int) -> None:
        if length > len(self.view) - self._at:
            raise malformed("the module ends in the middle of a part")
        self._at += length

    def byte(self) -> int:
        self.skip(1)
        return self.view[self._at - 1]

    def take(self, length: int) -> memoryview:
        start = self._at
        self.skip(length)
        return self.view[start : self._at]

    def number(self) -> int:
        """Read an unsigned LEB128 of at most 64 bits."""
        value = 0
        for place in range(_MAX_LEB_BYTES):
            byte = self.byte()
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise malformed("a number is longer than any can be")

    def count(self) -> int:
        """Read the length of a list. Every entry takes at least a byte, so no list is longer than what is left."""
        number = self.number()
        if number > len(self.view) - self._at:
            raise malformed("a list is longer than the module")
        self.allowance.take(number)
        return number

    def name(self) -> str:
        length = self.number()
        if length > _MAX_NAME_BYTES:
            raise malformed("a name is too long")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as problem:
            raise malformed("a name is not UTF-8") from problem

    def section(self) -> tuple[int, "BinaryReader"]:
        self.allowance.take(1)
        kind, length = self.byte(), self.number()
        return kind, BinaryReader(self.take(length), self.allowance)


_Item = TypeVar("_Item")

CORE: Final = "core"
COMPONENT: Final = "component"
_CORE_PREAMBLE: Final = b"\0asm\x01\0\0\0"
_COMPONENT_PREAMBLE: Final = b"\0asm\x0d\0\x01\0"

# More than the largest interpreter has; each is a Python object here.
_MAX_ITEMS: Final = 100_000
_MAX_NESTED: Final = 256
_MAX_DEPTH: Final = 8

_EXTERN_KINDS: Final = ("func", "table", "memory", "global", "tag")
_SORTS: Final = ("core", "func", "value", "type", "component", "instance")
# A component's sections that are read; the others say how its parts fit together, which the engine checks.
_NESTED_MODULE, _NESTED_COMPONENT, _COMPONENT_IMPORT, _COMPONENT_EXPORT = 1, 4, 10, 11
_FUNCTION_TYPE: Final = 0x60
_MAXIMUM_FLAG, _SHARED_FLAG, _WIDE_FLAG, _PAGE_SIZE_FLAG = 1, 2, 4, 8
_VALUE_TYPES: Final = {
    0x7F: "i32",
    0x7E: "i64",
    0x7D: "f32",
    0x7C: "f64",
    0x7B: "v128",
    0x70: "funcref",
    0x6F: "externref",
}


class Import(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """``type`` is a function's signature; a component's imports are named in ``name`` alone."""

    module: str
    name: str
    kind: str
    type: str = ""


class Export(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    name: str
    kind: str
    type: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Sizes in pages of 64 KiB."""

    minimum: int
    maximum: int | None = None
    shared: bool = False
    wide: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    minimum: int
    maximum: int | None = None


class ModuleFacts(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    form: str
    size: int
    imports: tuple[Import, ...] = ()
    exports: tuple[Export, ...] = ()
    # Those the module defines, and of a core module those it imports too.
    memories: tuple[Memory, ...] = ()
    tables: tuple[Table, ...] = ()
    has_start: bool = False
    functions: int = 0
    data_bytes: int = 0
    custom_sections: tuple[str, ...] = ()
    core_modules: int = 1

    def export(self, name: str) -> Export | None:
        return next((export for export in self.exports if export.name == name), None)

    @property
    def shows_its_memory(self) -> bool:
        """Whether it has one memory and exports it under its usual name: its size is the whole."""
        shown = self.export(MEMORY)
        return len(self.memories) == 1 and shown is not None and shown.kind == "memory"


def module_facts(module: bytes, *, most: int = MAX_MODULE_BYTES) -> ModuleFacts:
    """Read the facts. Raises ``CompileFailed`` for bytes that are not a module or exceed the bounds here."""
    if len(module) > most:
        raise malformed(f"the module has {len(module)} bytes, {most} are allowed")
    reader = BinaryReader(memoryview(module), Allowance(_MAX_ITEMS))
    if module.startswith(_CORE_PREAMBLE):
        return _CoreModule(reader).facts()
    if module.startswith(_COMPONENT_PREAMBLE):
        return _component(reader, 0)
    raise malformed("this is not a WebAssembly module")


class _CoreModule:
    """Gathers a core module's facts section by section."""

    def __init__(self, reader: BinaryReader) -> None:
        self._size = len(reader.view)
        self._types: list[str] = []
        self._functions: list[int] = []
        self._imports: list[Import] = []
        self._exports: list[tuple[str, str, int]] = []
        self._memories: list[Memory] = []
        self._tables: list[Table] = []
        self._custom: list[str] = []
        self._has_start = False
        self._defined = self._data = 0
        reader.skip(len(_CORE_PREAMBLE))
        while reader.more():
            self._section(*reader.section())

    def _section(self, kind: int, body: BinaryReader) -> None:
        match kind:
            case 0:
                self._custom.append(body.name())
            case 1:
                self._types += [_function_type(body) for _ in range(body.count())]
            case 2:
                for _ in range(body.count()):
                    self._import(body)
            case 3:
                self._defined = body.count()
                self._functions += [body.number() for _ in range(self._defined)]
            case 4:
                self._tables += [_table(body) for _ in range(body.count())]
            case 5:
                self._memories += [_memory(body) for _ in range(body.count())]
            case 7:
                self._exports += [(body.name(), _kind(body), body.number()) for _ in range(body.count())]
            case 8:
                self._has_start = True
            case 11:
                self._data += len(body.view)
            case _:
                return

    def _import(self, body: BinaryReader) -> None:
        module, name, kind = body.name(), body.name(), _kind(body)
        signature = ""
        match kind:
            case "func":
                self._functions.append(body.number())
                signature = _at(self._types, self._functions[-1])
            case "table":
                self._tables.append(_table(body))
            case "memory":
                self._memories.append(_memory(body))
            case "global":
                _value_type(body)
                body.byte()
            case _:
                body.byte()
                body.number()
        self._imports.append(Import(module=module, name=name, kind=kind, type=signature))

    def facts(self) -> ModuleFacts:
        return ModuleFacts(
            form=CORE,
            size=self._size,
            imports=tuple(self._imports),
            exports=tuple(
                Export(
                    name=name, kind=kind, type=_at(self._types, _at(self._functions, index)) if kind == "func" else ""
                )
                for name, kind, index in self._exports
            ),
            memories=tuple(self._memories),
            tables=tuple(self._tables),
            has_start=self._has_start,
            functions=self._defined,
            data_bytes=self._data,
            custom_sections=tuple(self._custom),
        )


def _component(reader: BinaryReader, depth: int) -> ModuleFacts:
    """Facts of nested modules are added up as if each were instantiated once; the engine's limits hold for the rest."""
    if depth > _MAX_DEPTH:
        raise malformed("components are nested too deeply")
    size = len(reader.view)
    imports: list[Import] = []
    exports: list[Export] = []
    inner: list[ModuleFacts] = []
    custom: list[str] = []
    reader.skip(len(_COMPONENT_PREAMBLE))
    while reader.more():
        kind, body = reader.section()
        if kind == 0:
            custom.append(body.name())
        elif kind == _NESTED_MODULE:
            _expect(body, _CORE_PREAMBLE)
            inner.append(_CoreModule(body).facts())
        elif kind == _NESTED_COMPONENT:
            _expect(body, _COMPONENT_PREAMBLE)
            inner.append(_component(body, depth + 1))
        elif kind == _COMPONENT_IMPORT:
            for _ in range(body.count()):
                imports.append(Import(module="", name=_external_name(body), kind=_described(body)))
        elif kind == _COMPONENT_EXPORT:
            for _ in range(body.count()):
                exports.append(_component_export(body))
        if len(inner) > _MAX_NESTED:
            raise malformed("the component has too many modules inside")
    # A nested module that imports its memory has it from a neighbour, where it is counted.
    return ModuleFacts(
        form=COMPONENT,
        size=size,
        imports=tuple(imports),
        exports=tuple(exports),
        memories=tuple(memory for part in inner for memory in part.memories[_imported(part, "memory") :]),
        tables=tuple(table for part in inner for table in part.tables[_imported(part, "table") :]),
        has_start=any(part.has_start for part in inner),
        functions=sum(part.functions for part in inner),
        data_bytes=sum(part.data_bytes for part in inner),
        custom_sections=tuple(custom),
        core_modules=sum(part.core_modules for part in inner),
    )


def _imported(facts: ModuleFacts, kind: str) -> int:
    return sum(entry.kind == kind for entry in facts.imports) if facts.form == CORE else 0


def _expect(body: BinaryReader, preamble: bytes) -> None:
    if bytes(body.view[: len(preamble)]) != preamble:
        raise malformed("a nested module has an unknown beginning")


def _external_name(body: BinaryReader) -> str:
    if body.byte() not in (0, 1):
        raise malformed("a component's name has an unknown form")
    return body.name()


def _described(body: BinaryReader) -> str:
    """Read the kind of an import or of a declared export type, and skip its description."""
    sort = body.byte()
    if sort >= len(_SORTS):
        raise malformed("a component refers to an unknown kind of thing")
    if sort == 0:
        body.byte()
        body.number()
    elif _SORTS[sort] in ("type", "value"):
        bound = body.byte()
        if bound == 0 or _SORTS[sort] == "value":
            body.number()
    else:
        body.number()
    return "module" if sort == 0 else _SORTS[sort]


def _component_export(body: BinaryReader) -> Export:
    name = _external_name(body)
    sort = body.byte()
    if sort >= len(_SORTS):
        raise malformed("a component exports an unknown kind of thing")
    if sort == 0:
        body.byte()
    body.number()
    if body.byte():
        _described(body)
    return Export(name=name, kind="module" if sort == 0 else _SORTS[sort])


def _kind(body: BinaryReader) -> str:
    number = body.byte()
    if number >= len(_EXTERN_KINDS):
        raise malformed("the module has an unknown kind of import or export")
    return _EXTERN_KINDS[number]


def _value_type(body: BinaryReader) -> str:
    name = _VALUE_TYPES.get(body.byte())
    if name is None:
        raise malformed("the module uses a type of a proposal that is off here")
    return name


def _function_type(body: BinaryReader) -> str:
    if body.byte() != _FUNCTION_TYPE:
        raise malformed("the module uses a type of a proposal that is off here")
    parameters = " ".join([_value_type(body) for _ in range(body.count())])
    return f"({parameters}) -> ({' '.join([_value_type(body) for _ in range(body.count())])})"


def _bounds(body: BinaryReader) -> tuple[int, int, int | None]:
    flags = body.byte()
    minimum = body.number()
    return flags, minimum, body.number() if flags & _MAXIMUM_FLAG else None


def _table(body: BinaryReader) -> Table:
    _value_type(body)
    _, minimum, maximum = _bounds(body)
    return Table(minimum=minimum, maximum=maximum)


def _memory(body: BinaryReader) -> Memory:
    flags, minimum, maximum = _bounds(body)
    if flags & _PAGE_SIZE_FLAG:
        raise malformed("memories with pages of another size are off here")
    return Memory(minimum=minimum, maximum=maximum, shared=bool(flags & _SHARED_FLAG), wide=bool(flags & _WIDE_FLAG))


def _at(items: list[_Item], index: int) -> _Item:
    if index >= len(items):
        raise malformed("an index points past the end of its list")
    return items[index]


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


def share_out(facts: ModuleFacts, limits: RuntimeLimits) -> tuple[int, int]:
    """Bound each memory, in bytes, and each table, in elements, so that the sums stay within the limits.

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
