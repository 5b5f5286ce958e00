"""One call of a component: a fresh store, one instance, and nothing left of either."""

import contextlib
import ctypes
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import wasmtime
from wasmtime import component as wit

from palyra.wasm.domain import outcome
from palyra.wasm.domain.frames import Call
from palyra.wasm.domain.host_interface import HOST_INTERFACE, WASI_PREFIX, WIT_TYPES
from palyra.wasm.domain.module_facts import Export, ModuleFacts, entry_form
from palyra.wasm.engine import libwasmtime
from palyra.wasm.engine.metering import GuestEnded, RunMeter
from palyra.wasm.engine.store import GuestStore
from palyra.wasm.host.component_functions import ComponentFunctions
from palyra.wasm.host.core_functions import ActiveCall
from palyra.wasm.host.wasi import ANY_ERRORS, ComponentFunction, WasiComponents

# The types of a component's functions as text, to compare them with those the host has.
#
# The linker takes a Python function for any type a component claims it has. A component that imports a host function
# under another type must not get it: the values would be converted by its type, not ours.

# The longest type of the host's own interfaces has about fifty parts. Types can double at each step: a few bytes may
# stand for millions of parts.
_MAX_PARTS: Final = 500

_PLAIN: Final[dict[type, str]] = {
    wit.Bool: "bool",
    wit.U8: "u8",
    wit.U16: "u16",
    wit.U32: "u32",
    wit.U64: "u64",
    wit.S8: "s8",
    wit.S16: "s16",
    wit.S32: "s32",
    wit.S64: "s64",
    wit.F32: "f32",
    wit.F64: "f64",
    wit.Char: "char",
    wit.String: "string",
    wit.OwnType: "own",
    wit.BorrowType: "borrow",
}


class _PartBudget:
    def __init__(self) -> None:
        self.left = _MAX_PARTS


class TypeTooLarge(Exception):
    """A type with more parts than any that the host knows."""


def function_text(function: wit.FuncType) -> str:
    """Write a type as ``(string, u32) -> result<u32, string>``, without the arrow if nothing is returned.

    Names of parameters are omitted: they mean nothing to the call.
    """
    parts = _PartBudget()
    parameters = ", ".join(_text(type_, parts) for _, type_ in function.params)
    result = function.result
    return f"({parameters})" if result is None else f"({parameters}) -> {_text(result, parts)}"


def _text(type_: Any, parts: _PartBudget) -> str:
    parts.left -= 1
    if parts.left < 0:
        raise TypeTooLarge("a type has too many parts")
    plain = _PLAIN.get(type(type_))
    if plain is not None:
        return plain
    match type_:
        case wit.ListType():
            return f"list<{_text(type_.element, parts)}>"
        case wit.OptionType():
            return f"option<{_text(type_.payload, parts)}>"
        case wit.ResultType():
            ok, err = (("_" if side is None else _text(side, parts)) for side in (type_.ok, type_.err))
            return f"result<{ok}, {err}>"
        case wit.TupleType():
            return f"tuple<{', '.join(_text(element, parts) for element in type_.elements)}>"
        case wit.RecordType():
            return f"record{{{', '.join(f'{name}: {_text(field, parts)}' for name, field in type_.fields)}}}"
        case wit.EnumType():
            return f"enum{{{', '.join(type_.names)}}}"
        case wit.FlagsType():
            return f"flags{{{', '.join(type_.names)}}}"
        case wit.VariantType():
            cases = (name if side is None else f"{name}({_text(side, parts)})" for name, side in type_.cases)
            return f"variant{{{', '.join(cases)}}}"
        case _:
            return type(type_).__name__


def shape(type_: Any, value: Any) -> Any:
    """Convert a host function's value to what the package expects.

    Host functions give every result and variant as a ``Variant``. The package wants the bare payload wherever the
    classes of the cases differ.
    """
    if not isinstance(value, wit.Variant):
        return value
    cases = {"ok": type_.ok, "err": type_.err} if isinstance(type_, wit.ResultType) else dict(type_.cases)
    payload = shape(cases[value.tag], value.payload)
    return wit.Variant(value.tag, payload) if _overlap(cases.values()) else payload


def _overlap(cases: Iterable[Any]) -> bool:
    known: set[type] = set()
    for case in cases:
        classes: set[type] = set()
        if case is None:
            classes.add(object)
        else:
            case.add_classes(classes)
        if classes & known:
            return True
        known |= classes
    return False


_LAST_ENUM: Final = re.compile(r"enum\{[^}]*\}>\Z")
# What the package reports when a host function, or the conversion of its values, raised.
_PYTHON_EXCEPTION: Final = "python exception"
_WASI_VERSION: Final = re.compile(r"@0\.2\.\d+\Z")


class LoadedComponent:
    """A component with a linker that has what it imports and nothing else."""

    def __init__(self, component: wit.Component, linker: wit.Linker, facts: ModuleFacts) -> None:
        self.component = component
        self.linker = linker
        self.facts = facts
        self.linker_address = libwasmtime.address_of(linker)
        self.component_address = libwasmtime.address_of(component)
        self._entries: dict[str, wit.ExportIndex] = {}

    def entry(self, name: str) -> int:
        """Return the address of the export's index."""
        if name not in self._entries:
            entry_form(self.facts, name)
            index = self.component.get_export_index(name)
            if index is None:
                raise GuestEnded("missing_export", f"the component exports no {name!r}")
            self._entries[name] = index
        return libwasmtime.address_of(self._entries[name])


class ComponentGuests:
    """Runs components, one at a time."""

    def __init__(self, engine: wasmtime.Engine, active: ActiveCall) -> None:
        self._engine = engine
        self._engine_address = libwasmtime.address_of(engine)
        self._active = active
        self._functions = ComponentFunctions(active)
        self._wasi = WasiComponents(active)

    def load(self, compiled: bytes, facts: ModuleFacts) -> LoadedComponent:
        component = wit.Component.deserialize(self._engine, compiled)
        return LoadedComponent(component, self.link(component), facts)

    def link(self, component: wit.Component) -> wit.Linker:
        """Link the imports. Raises ``GuestEnded`` of the kind ``link`` for one that the host does not have."""
        linker = wit.Linker(self._engine)
        with linker.root() as root:
            for name, extern in component.type.imports(self._engine).items():
                interface = extern.ty
                ours = name == HOST_INTERFACE
                if not isinstance(interface, wit.ComponentInstanceType) or not (ours or _is_wasi(name)):
                    raise GuestEnded("link", f"the component imports {name!r}, which the host does not have")
                with root.add_instance(name) as instance:
                    self._fill(instance, name, interface, ours=ours)
        # What is left are functions of WASI that this host lacks.
        linker.define_unknown_imports_as_traps(component)
        return linker

    def _fill(
        self, instance: wit.LinkerInstance, name: str, interface: wit.ComponentInstanceType, *, ours: bool
    ) -> None:
        functions, wasi = self._functions.table(), self._wasi.table()
        for item, extern in interface.exports(self._engine).items():
            type_ = extern.ty
            if isinstance(type_, wit.ResourceType):
                if ours:
                    raise GuestEnded("link", f"{name} has no resource {item!r}")
                instance.add_resource(item, self._wasi.resource(item), lambda _store, _representation: None)
            elif isinstance(type_, wit.FuncType):
                key = (name.partition("@")[0], item)
                if ours:
                    self._check(name, item, type_, WIT_TYPES.get(item))
                    instance.add_func(item, _shape_result(type_, functions[item]))
                elif key in wasi:
                    expected, function = wasi[key]
                    self._check(name, item, type_, expected)
                    instance.add_func(item, _shape_result(type_, function))

    def _check(self, interface: str, name: str, type_: wit.FuncType, expected: str | None) -> None:
        if expected is None:
            raise GuestEnded("link", f"{interface} has no function {name!r}")
        try:
            found = function_text(type_)
        except TypeTooLarge as problem:
            raise GuestEnded(
                "link", f"{name!r} of {interface} is imported with a type that it does not have"
            ) from problem
        if expected.endswith(f"{ANY_ERRORS}>"):
            found = _LAST_ENUM.sub(f"{ANY_ERRORS}>", found)
        if found != expected:
            raise GuestEnded("link", f"{name!r} of {interface} is imported as {found[:200]}, but it is {expected}")

    def add_export_types(self, component: wit.Component, facts: ModuleFacts) -> ModuleFacts:
        """Add the types of exported functions, which are not read from the bytes."""
        types: dict[str, str] = {}
        for name, extern in component.type.exports(self._engine).items():
            exported = extern.ty
            if isinstance(exported, wit.FuncType):
                with contextlib.suppress(TypeTooLarge):
                    types[name] = function_text(exported)
        exports = tuple(
            Export(name=export.name, kind=export.kind, type=types.get(export.name, "")) for export in facts.exports
        )
        return msgspec.structs.replace(facts, exports=exports)

    def run(self, loaded: LoadedComponent, call: Call, meter: RunMeter, begin: Callable[[], None]) -> bytes:
        """Return the output or raise ``GuestEnded``. ``meter`` records fuel and memory either way.

        ``begin`` starts the clock: when the store knows which tick is its last, and nothing of the guest has run.
        """
        entry = loaded.entry(call.entry)
        try:
            call.input.decode()
        except UnicodeDecodeError as problem:
            raise GuestEnded("trap", "the input is not text, which is all a component takes") from problem
        self._wasi.begin(call.clock_ms, call.random_seed)
        store = GuestStore(self._engine_address, call, loaded.facts)
        begin()
        try:
            meter.start(exact=False)
            well, text = self._run(loaded, entry, store.context, call)
        finally:
            meter.stop(store.fuel_used())
            store.close()
        if not well:
            raise GuestEnded("failed", text.decode("utf-8", "replace")[: call.max_log_line_chars + 1])
        if len(text) > call.max_output_bytes:
            raise GuestEnded("invalid_output", "the guest's output is longer than allowed")
        return text

    def _run(self, loaded: LoadedComponent, entry: int, context: int, call: Call) -> tuple[bool, bytes]:
        """Return whether the result is the good one, and its text.

        The one type that an entry has is passed by hand: the package asks for types and converts by them each time.
        """
        instance, function = libwasmtime.ComponentInstance(), libwasmtime.ComponentFunction()
        self._judge(
            libwasmtime.component_instantiate(
                loaded.linker_address, context, loaded.component_address, ctypes.byref(instance)
            )
        )
        if not libwasmtime.component_get_func(ctypes.byref(instance), context, entry, ctypes.byref(function)):
            raise GuestEnded("missing_export", "the entry point is not a function")
        arguments, result = (libwasmtime.ComponentValue * 2)(), libwasmtime.ComponentValue()
        tool = call.tool.encode()
        _put_string(arguments[0], tool)
        _put_string(arguments[1], call.input)
        self._judge(
            libwasmtime.component_func_call(
                ctypes.byref(function), context, arguments, len(arguments), ctypes.byref(result), 1
            )
        )
        try:
            return bool(result.of.result.is_ok), _read_string(result.of.result.val.contents)
        finally:
            libwasmtime.component_value_delete(ctypes.byref(result))

    def _judge(self, error: int | None) -> None:
        if not error:
            return
        said = libwasmtime.take_error(error)
        if self._active.ended is not None:
            raise GuestEnded("trap", self._active.ended)
        cause = outcome.cause(said)
        if cause == _PYTHON_EXCEPTION:
            raise RuntimeError("a value could not be passed between guest and host")
        raise GuestEnded(outcome.kind_of_error(said), cause)


def _put_string(target: Any, text: bytes) -> None:
    """Lends the text to the call, which copies it."""
    target.kind = libwasmtime.STRING
    target.of.string.size = len(text)
    target.of.string.data = ctypes.cast(ctypes.c_char_p(text), ctypes.POINTER(ctypes.c_uint8))


def _read_string(value: Any) -> bytes:
    return ctypes.string_at(value.of.string.data, value.of.string.size) if value.of.string.size else b""


def _shape_result(type_: wit.FuncType, function: ComponentFunction) -> ComponentFunction:
    result = type_.result
    if not isinstance(result, wit.ResultType):
        return function
    return lambda *arguments: shape(result, function(*arguments))


def _is_wasi(name: str) -> bool:
    return name.startswith(WASI_PREFIX) and _WASI_VERSION.search(name) is not None
