"""One call of a component: a fresh store, one instance, and nothing left of either."""

import contextlib
import ctypes
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
import wasmtime
from wasmtime import component as wit

from palyra.wasm import classify, libwasmtime
from palyra.wasm.abi import HOST_INTERFACE, WASI_PREFIX, WIT_TYPES
from palyra.wasm.component_functions import ComponentFunctions
from palyra.wasm.core_linker import Desk
from palyra.wasm.entry import entry_form
from palyra.wasm.guest_store import GuestStore
from palyra.wasm.module_facts import Export, ModuleFacts
from palyra.wasm.run_meter import GuestEnded, RunMeter
from palyra.wasm.wasi_components import ANY_ERRORS, ComponentFunction, WasiComponents
from palyra.wasm.wire import Call
from palyra.wasm.wit_types import TypeTooLarge, function_text, shaped

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
        """The address of the export's index."""
        if name not in self._entries:
            entry_form(self.facts, name)
            index = self.component.get_export_index(name)
            if index is None:
                raise GuestEnded("missing_export", f"the component exports no {name!r}")
            self._entries[name] = index
        return libwasmtime.address_of(self._entries[name])


class ComponentGuests:
    """Runs components, one at a time."""

    def __init__(self, engine: wasmtime.Engine, desk: Desk) -> None:
        self._engine = engine
        self._engine_address = libwasmtime.address_of(engine)
        self._desk = desk
        self._functions = ComponentFunctions(desk)
        self._wasi = WasiComponents(desk)

    def load(self, compiled: bytes, facts: ModuleFacts) -> LoadedComponent:
        component = wit.Component.deserialize(self._engine, compiled)
        return LoadedComponent(component, self.link(component), facts)

    def link(self, component: wit.Component) -> wit.Linker:
        """Raises ``GuestEnded`` of the kind ``link`` for an import that the host does not have."""
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
                    instance.add_func(item, _shaping(type_, functions[item]))
                elif key in wasi:
                    expected, function = wasi[key]
                    self._check(name, item, type_, expected)
                    instance.add_func(item, _shaping(type_, function))

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

    def described(self, component: wit.Component, facts: ModuleFacts) -> ModuleFacts:
        """The facts with the types of exported functions, which are not read from the bytes."""
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
        """The output, or ``GuestEnded``. ``meter`` is told of fuel and memory either way. ``begin`` starts the clock:
        when the store knows which tick is its last, and nothing of the guest has run."""
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
        """Whether the result is the good one, and its text. The one type that an entry has is passed by hand: the
        package's way asks for types and converts by them each time."""
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
            return bool(result.of.result.is_ok), _string(result.of.result.val.contents)
        finally:
            libwasmtime.component_value_delete(ctypes.byref(result))

    def _judge(self, error: int | None) -> None:
        if not error:
            return
        said = libwasmtime.take_error(error)
        if self._desk.ended is not None:
            raise GuestEnded("trap", self._desk.ended)
        cause = classify.cause(said)
        if cause == _PYTHON_EXCEPTION:
            raise RuntimeError("a value could not be passed between guest and host")
        raise GuestEnded(classify.kind_of_error(said), cause)


def _put_string(target: Any, text: bytes) -> None:
    """Lends the text to the call, which copies it."""
    target.kind = libwasmtime.STRING
    target.of.string.size = len(text)
    target.of.string.data = ctypes.cast(ctypes.c_char_p(text), ctypes.POINTER(ctypes.c_uint8))


def _string(value: Any) -> bytes:
    return ctypes.string_at(value.of.string.data, value.of.string.size) if value.of.string.size else b""


def _shaping(type_: wit.FuncType, function: ComponentFunction) -> ComponentFunction:
    result = type_.result
    if not isinstance(result, wit.ResultType):
        return function
    return lambda *arguments: shaped(result, function(*arguments))


def _is_wasi(name: str) -> bool:
    return name.startswith(WASI_PREFIX) and _WASI_VERSION.search(name) is not None
