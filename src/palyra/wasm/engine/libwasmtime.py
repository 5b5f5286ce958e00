"""Binds the C functions of wasmtime that every run of a guest calls.

The package's public API stays out of the way of host functions for two reasons. It looks up types and converts values
on each call: a guest that makes 10,000 calls takes 62 ms through it and 7 ms here (``http-count``), or 146 and 41 ms
where each call also reads a text and keeps it (``log``). And it keeps the last exception of any host function in a
global of the process, where the next trap of any guest raises it. Declarations here follow ``wasmtime._bindings``; a
test runs every one of them.
"""

import ctypes
from ctypes import c_bool, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Final

from wasmtime import _ffi

Extern = _ffi.wasmtime_extern_t
Instance = _ffi.wasmtime_instance_t
ByteVector = _ffi.wasm_byte_vec_t
ComponentInstance = _ffi.wasmtime_component_instance_t
ComponentFunction = _ffi.wasmtime_component_func_t
ComponentValue = _ffi.wasmtime_component_val_t
# Kinds of values; the package knows them as objects that cannot be compared.
STRING: Final = 12
RESULT: Final = 19
# Where the function or memory itself lies within an extern.
EXTERN_ITEM_OFFSET: Final[int] = Extern.of.offset

_library = ctypes.CDLL(_ffi.dll._name)


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_library, name)
    function.restype = result
    function.argtypes = arguments
    return function


store_new = _declare("wasmtime_store_new", c_void_p, c_void_p, c_void_p, c_void_p)
store_context = _declare("wasmtime_store_context", c_void_p, c_void_p)
store_limiter = _declare("wasmtime_store_limiter", None, c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64)
store_delete = _declare("wasmtime_store_delete", None, c_void_p)
set_fuel = _declare("wasmtime_context_set_fuel", c_void_p, c_void_p, c_uint64)
get_fuel = _declare("wasmtime_context_get_fuel", c_void_p, c_void_p, c_void_p)
set_epoch_deadline = _declare("wasmtime_context_set_epoch_deadline", None, c_void_p, c_uint64)
instantiate = _declare("wasmtime_instance_pre_instantiate", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
export_get = _declare("wasmtime_instance_export_get", c_bool, c_void_p, c_void_p, c_char_p, c_size_t, c_void_p)
caller_export_get = _declare("wasmtime_caller_export_get", c_bool, c_void_p, c_char_p, c_size_t, c_void_p)
caller_context = _declare("wasmtime_caller_context", c_void_p, c_void_p)
func_call_unchecked = _declare(
    "wasmtime_func_call_unchecked", c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p
)
memory_data = _declare("wasmtime_memory_data", c_void_p, c_void_p, c_void_p)
memory_data_size = _declare("wasmtime_memory_data_size", c_size_t, c_void_p, c_void_p)
linker_define_func_unchecked = _declare(
    "wasmtime_linker_define_func_unchecked",
    c_void_p,
    *(c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, c_void_p, c_void_p, c_void_p, c_void_p),
)
trap_new = _declare("wasmtime_trap_new", c_void_p, c_char_p, c_size_t)
trap_code = _declare("wasmtime_trap_code", c_bool, c_void_p, c_void_p)
trap_message = _declare("wasm_trap_message", None, c_void_p, c_void_p)
trap_delete = _declare("wasm_trap_delete", None, c_void_p)
error_message = _declare("wasmtime_error_message", None, c_void_p, c_void_p)
error_delete = _declare("wasmtime_error_delete", None, c_void_p)
byte_vector_delete = _declare("wasm_byte_vec_delete", None, c_void_p)
component_instantiate = _declare(
    "wasmtime_component_linker_instantiate", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p
)
component_get_func = _declare("wasmtime_component_instance_get_func", c_bool, c_void_p, c_void_p, c_void_p, c_void_p)
component_func_call = _declare(
    "wasmtime_component_func_call", c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t
)
component_value_delete = _declare("wasmtime_component_val_delete", None, c_void_p)
# Only its address is used: the system's timer calls it.
INCREMENT_EPOCH: Final = ctypes.cast(_library.wasmtime_engine_increment_epoch, c_void_p).value

# (environment, caller, values in and out, their number) -> a trap, or nothing.
UncheckedCallback = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_void_p, c_size_t)
_RAW_VALUE_BYTES: Final = 16


class RawValue(ctypes.Union):
    """One argument or result of a call, 16 bytes so that a vector fits."""

    _fields_ = (
        ("i32", c_int32),
        ("u32", c_uint32),
        ("i64", c_int64),
        ("u64", c_uint64),
        ("room", ctypes.c_uint8 * _RAW_VALUE_BYTES),
    )
    i32: int
    u32: int
    i64: int
    u64: int


def address_of(managed: Any) -> int:
    """Return the pointer inside one of the package's objects."""
    value = ctypes.cast(managed.ptr(), c_void_p).value
    if value is None:
        raise ValueError("the object was closed")
    return value


def _text(ask: Any, pointer: int) -> str:
    vector = ByteVector()
    ask(pointer, ctypes.byref(vector))
    try:
        return ctypes.string_at(vector.data, vector.size).rstrip(b"\0").decode("utf-8", "replace")
    finally:
        byte_vector_delete(ctypes.byref(vector))


def take_error(pointer: int) -> str:
    """Return the text of an error and free it."""
    try:
        return _text(error_message, pointer)
    finally:
        error_delete(pointer)


def take_trap(pointer: int) -> tuple[int | None, str]:
    """Return the code and text of a trap and free it."""
    code = ctypes.c_uint8()
    try:
        known = trap_code(pointer, ctypes.byref(code))
        return (code.value if known else None), _text(trap_message, pointer)
    finally:
        trap_delete(pointer)
