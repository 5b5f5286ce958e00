"""Gives Python functions to core modules, in a way that cannot raise and cannot mix up two calls.

The callback that wasmtime calls is made here once for each function. It reads the raw arguments, hands them to the
implementation and writes the raw result. An exception in an implementation is a fault of ours: the guest gets
a result that says so, the exception stays in the desk for the worker's report, and nothing of it is kept in a global.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Final

import wasmtime

from palyra.wasm import libwasmtime
from palyra.wasm.abi import core_types
from palyra.wasm.guest_memory import GuestMemory
from palyra.wasm.host_calls import HostCalls

_TYPES: Final = {"i32": wasmtime.ValType.i32, "i64": wasmtime.ValType.i64}


class Desk:
    """Who is calling. One guest runs at a time in a process, so there is one desk."""

    def __init__(self) -> None:
        self.calls: HostCalls | None = None
        self.memory = GuestMemory()
        self.result = b""
        self.fault: BaseException | None = None
        # Set by a function that ends the guest, with the reason.
        self.ended: str | None = None

    def begin(self, calls: HostCalls | None) -> None:
        """Before a guest, and after it with None: nothing of the last one is left."""
        self.calls = calls
        self.result = b""
        if calls is not None:
            self.fault = self.ended = None


Implementation = Callable[..., int | None]


class CoreLinker:
    def __init__(self, engine: wasmtime.Engine, desk: Desk) -> None:
        self._desk = desk
        self.linker = wasmtime.Linker(engine)
        self._address = libwasmtime.address_of(self.linker)
        # Callbacks must outlive the linker.
        self._kept: list[object] = []

    def define(
        self,
        module: str,
        types: Mapping[str, str],
        functions: Mapping[str, Implementation],
        *,
        too_often: int,
        faulty: int,
    ) -> None:
        """``types`` are signatures by name. Each has an implementation that takes unsigned integers, one per parameter.
        ``too_often`` is the result when the guest has called too many functions, ``faulty`` when one raises."""
        for name, signature in types.items():
            self._define(module, name, signature, functions[name], (too_often, faulty))

    def _define(
        self, module: str, name: str, signature: str, function: Implementation, fallback: tuple[int, int]
    ) -> None:
        parameters, results = core_types(signature)
        type_ = wasmtime.FuncType([_TYPES[kind]() for kind in parameters], [_TYPES[kind]() for kind in results])
        callback = libwasmtime.UncheckedCallback(self._callback(parameters, results, function, fallback))
        self._kept += [callback, type_]
        raw_module, raw_name = module.encode(), name.encode()
        error = libwasmtime.linker_define_func_unchecked(
            *(self._address, raw_module, len(raw_module), raw_name, len(raw_name)),
            *(libwasmtime.address_of(type_), ctypes.cast(callback, ctypes.c_void_p), None, None),
        )
        if error:
            raise wasmtime.WasmtimeError(libwasmtime.take_error(error))

    def _callback(
        self, parameters: tuple[str, ...], results: tuple[str, ...], function: Implementation, fallback: tuple[int, int]
    ) -> Callable[[int, int, int, int], int]:
        desk = self._desk
        too_often, faulty = fallback
        array = libwasmtime.RawValue * max(len(parameters), 1)
        wide = tuple(kind == "i64" for kind in parameters)
        takes_any, gives = bool(parameters), bool(results)

        def callback(_environment: int, caller: int, values: int, _length: int) -> int:
            answer: int | None = too_often
            raw = array.from_address(values) if takes_any or gives else None
            try:
                calls = desk.calls
                if calls is not None and calls.enter():
                    if takes_any and raw is not None:
                        desk.memory.of_caller(caller)
                        given = [value.u64 if long else value.u32 for value, long in zip(raw, wide, strict=True)]
                        answer = function(*given)
                    else:
                        answer = function()
            except BaseException as problem:
                desk.fault = problem
                answer = faulty
            if desk.ended is not None:
                reason = desk.ended.encode()
                return int(libwasmtime.trap_new(reason, len(reason)))
            if gives and raw is not None:
                raw[0].i32 = answer if answer is not None else faulty
            return 0

        return callback
