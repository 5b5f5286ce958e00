import ctypes

import pytest
import wasmtime
from wasmtime import _bindings

from palyra.wasm.engine import libwasmtime
from palyra.wasm.engine.config import make_engine

DECLARED = [
    (name, function)
    for name, function in vars(libwasmtime).items()
    if isinstance(function, ctypes._CFuncPtr) and getattr(function, "__name__", "").startswith("wasm")
]


@pytest.mark.parametrize(("name", "function"), DECLARED, ids=[name for name, _ in DECLARED])
def test_declarations_have_the_packages_number_and_size_of_arguments(name, function):
    theirs = getattr(_bindings, f"_{function.__name__}")
    assert [ctypes.sizeof(kind) for kind in function.argtypes] == [ctypes.sizeof(kind) for kind in theirs.argtypes]
    assert (function.restype is None) == (theirs.restype is None)
    if function.restype is not None:
        assert ctypes.sizeof(function.restype) == ctypes.sizeof(theirs.restype)


def test_something_was_compared():
    assert len(DECLARED) > 20


def test_a_raw_value_is_as_large_as_the_engines():
    assert ctypes.sizeof(libwasmtime.RawValue) == ctypes.sizeof(_bindings.wasmtime_val_raw_t)
    assert wasmtime._ffi.WASMTIME_COMPONENT_STRING.value == libwasmtime.STRING
    assert wasmtime._ffi.WASMTIME_COMPONENT_RESULT.value == libwasmtime.RESULT


def test_texts_of_traps_and_errors_are_read_and_freed():
    trap = libwasmtime.trap_new(b"so it ends", 10)
    assert libwasmtime.take_trap(trap) == (None, "so it ends")
    error = wasmtime.WasmtimeError("so it fails")
    assert libwasmtime.take_error(ctypes.cast(error._consume(), ctypes.c_void_p).value) == "so it fails"


def test_a_closed_object_has_no_address():
    engine = make_engine()
    assert libwasmtime.address_of(engine)
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        libwasmtime.address_of(engine)
