"""One call of a core module: a fresh store, one instance, and nothing left of either."""

import ctypes
from collections.abc import Callable
from typing import Final

import wasmtime

from palyra.wasm.domain import outcome
from palyra.wasm.domain.frames import Call
from palyra.wasm.domain.host_interface import ALLOC, INITIALIZE, Status
from palyra.wasm.domain.module_facts import EntryForm, ModuleFacts, entry_form
from palyra.wasm.engine import libwasmtime
from palyra.wasm.engine.metering import GuestEnded, RunMeter
from palyra.wasm.engine.store import U32, GuestStore
from palyra.wasm.host.core_functions import ActiveCall, CoreHostFunctions, CoreLinker
from palyra.wasm.host.wasi import WasiPreview1

_WORD: Final = 32
# Arguments or results of the longest call that the host makes.
_MOST_VALUES: Final = 4


class LoadedCore:
    """A module with its imports resolved. Instantiating it again and again costs little."""

    def __init__(self, engine: wasmtime.Engine, linker: CoreLinker, compiled: bytes, facts: ModuleFacts) -> None:
        self.facts = facts
        module = wasmtime.Module.deserialize(engine, compiled)
        self._pre = linker.linker.instantiate_pre(module)
        self.address = libwasmtime.address_of(self._pre)
        initialize = facts.export(INITIALIZE)
        self.initializes = initialize is not None and initialize.type == "() -> ()"
        self.one_memory = facts.shows_its_memory


class CoreGuests:
    """Runs core modules, one at a time."""

    def __init__(self, engine: wasmtime.Engine, active: ActiveCall) -> None:
        self._engine = engine
        self._engine_address = libwasmtime.address_of(engine)
        self._active = active
        self._max_request_bytes = 0
        self.functions = CoreHostFunctions(active, lambda: self._max_request_bytes)
        self.wasi = WasiPreview1(active)
        self.linker = CoreLinker(engine, active)
        self.functions.define(self.linker)
        self.wasi.define(self.linker)
        self._instance = libwasmtime.Instance()
        # An instance may only be asked with the store it lives in: the engine ends the process otherwise.
        self._lives = False
        # Whether its exported memory was found: host functions look at the same one.
        self._has_memory = False
        self._extern = libwasmtime.Extern()
        self._function = ctypes.addressof(self._extern) + libwasmtime.EXTERN_ITEM_OFFSET
        self._values = (libwasmtime.RawValue * _MOST_VALUES)()
        self._trap = ctypes.c_void_p()
        self._instance_reference = ctypes.byref(self._instance)
        self._extern_reference = ctypes.byref(self._extern)
        self._trap_reference = ctypes.byref(self._trap)

    def load(self, compiled: bytes, facts: ModuleFacts) -> LoadedCore:
        return LoadedCore(self._engine, self.linker, compiled, facts)

    def run(self, loaded: LoadedCore, call: Call, meter: RunMeter, begin: Callable[[], None]) -> bytes | int:
        """Return the output or raise ``GuestEnded``. ``meter`` records fuel and memory either way.

        ``begin`` starts the clock: when the store knows which tick is its last, and nothing of the guest has run.
        """
        form = entry_form(loaded.facts, call.entry)
        self._max_request_bytes = call.max_request_bytes
        self.functions.begin()
        self.wasi.begin(call.clock_ms, call.random_seed)
        self._has_memory = self._lives = False
        store = GuestStore(self._engine_address, call, loaded.facts)
        begin()
        try:
            meter.start(exact=loaded.one_memory)
            return self._run(loaded, form, store.context, call)
        finally:
            if self._lives and loaded.one_memory and self._in_memory(store.context):
                meter.memory_bytes = self._active.memory.size
            meter.stop(store.fuel_used())
            store.close()

    def _run(self, loaded: LoadedCore, form: EntryForm, context: int, call: Call) -> bytes | int:
        self._judge(libwasmtime.instantiate(loaded.address, context, self._instance_reference, self._trap_reference))
        self._lives = True
        if loaded.initializes:
            self._call(context, INITIALIZE, ())
        if form is EntryForm.MINIMAL:
            return self._call(context, call.entry, ())[0].i32
        tool_at, tool_length = self._place(context, call.tool.encode())
        input_at, input_length = self._place(context, call.input)
        packed = self._call(context, call.entry, (tool_at, tool_length, input_at, input_length))[0].u64
        place, length = packed >> _WORD, packed & U32
        self._in_memory(context)
        output = self._active.memory.read(place, length, call.max_output_bytes)
        if isinstance(output, Status):
            why = "is longer than allowed" if output is Status.TOO_LARGE else "lies outside its memory"
            raise GuestEnded("invalid_output", f"the guest's output {why}")
        return output

    def _place(self, context: int, data: bytes) -> tuple[int, int]:
        """Copy data into the guest, at the place its own allocator names."""
        if not data:
            return 0, 0
        place = self._call(context, ALLOC, (len(data),))[0].u32
        self._in_memory(context)
        if self._active.memory.write(place, data) is not Status.OK:
            raise GuestEnded("invalid_output", f"{ALLOC} returned a place outside the guest's memory")
        return place, len(data)

    def _in_memory(self, context: int) -> bool:
        """Point to the guest's memory as it is now. Returns False when it exports none."""
        if self._has_memory:
            self._active.memory.refresh(context)
        else:
            self._has_memory = self._active.memory.of_instance(context, self._instance_reference)
        return self._has_memory

    def _call(self, context: int, name: str, arguments: tuple[int, ...]) -> "ctypes.Array[libwasmtime.RawValue]":
        raw = name.encode()
        values = self._values
        libwasmtime.export_get(context, self._instance_reference, raw, len(raw), self._extern_reference)
        for place, argument in enumerate(arguments):
            values[place].u64 = argument
        error = libwasmtime.func_call_unchecked(context, self._function, values, _MOST_VALUES, self._trap_reference)
        self._judge(error)
        return values

    def _judge(self, error: int | None) -> None:
        trap = self._trap.value
        if trap:
            self._trap.value = None
            code, text = libwasmtime.take_trap(trap)
            if self._active.ended is not None:
                raise GuestEnded("trap", self._active.ended)
            raise GuestEnded(outcome.kind_of_trap(code), outcome.cause(text))
        if error:
            text = libwasmtime.take_error(error)
            raise GuestEnded(outcome.kind_of_error(text), outcome.cause(text))
