"""The one configuration of wasmtime, and the text that names it in the cache."""

import os
import platform
import resource
from typing import Final

import wasmtime
from wasmtime import _ffi

from palyra.limits import KIB, MIB
from palyra.wasm.domain.limits import MAX_WASM_STACK_BYTES

# What a guest is compiled with. A change here makes every cached module another one.
SETTINGS: Final[dict[str, bool | int | str]] = {
    "consume_fuel": True,
    "epoch_interruption": True,
    "max_wasm_stack": MAX_WASM_STACK_BYTES,
    "cranelift_opt_level": "speed",
    # The same result for the same input, on every machine.
    "cranelift_nan_canonicalization": True,
    "wasm_relaxed_simd": False,
    # Shared memories are outside every limit of a store, and a guest has one thread.
    "wasm_threads": False,
    # Heaps of their own, which no limit of a store counts.
    "wasm_gc": False,
    "wasm_exceptions": False,
    "wasm_function_references": False,
    "wasm_stack_switching": False,
    # Rare, and with costs or corners of their own.
    "wasm_memory64": False,
    "wasm_custom_page_sizes": False,
    "wasm_wide_arithmetic": False,
    # Allowed, because limits are shared out over memories.
    "wasm_multi_memory": True,
    "wasm_component_model": True,
}


# For a process whose address space is limited: the engine would reserve 4 GiB of it for each memory, which is free
# elsewhere and saves a check at each access.
SMALL_RESERVATION: Final[dict[str, bool | int | str]] = {
    "memory_reservation": 64 * MIB,
    "memory_guard_size": 64 * KIB,
    "memory_reservation_for_growth": 1 * MIB,
}


def _settings() -> dict[str, bool | int | str]:
    unlimited = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    return SETTINGS if unlimited else SETTINGS | SMALL_RESERVATION


def make_engine(*, parallel: bool = False) -> wasmtime.Engine:
    """``parallel`` lets compilation use threads; a process that forks must not have them."""
    config = wasmtime.Config()
    for name, value in _settings().items():
        setattr(config, name, value)
    config.parallel_compilation = parallel
    # Guests speak and are called synchronously; streams and tasks between components have no host here.
    _ffi.wasmtime_config_wasm_component_model_async_set(config.ptr(), False)
    return wasmtime.Engine(config)


def _version() -> str:
    """Read the library's version from the folder that installers make beside it.

    To ask Python for it takes as long as loading the library.
    """
    beside = os.listdir(os.path.dirname(os.path.dirname(wasmtime.__file__)))
    found = [name for name in beside if name.startswith("wasmtime-") and name.endswith(".dist-info")]
    if len(found) == 1:
        return found[0].removeprefix("wasmtime-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("wasmtime")


def engine_name() -> str:
    """Version, machine and settings: what a compiled module depends on."""
    settings = ",".join(f"{name}={value}" for name, value in sorted(_settings().items()))
    return f"wasmtime {_version()} {platform.machine()} {settings}"


def assemble_text(text: str) -> bytes:
    """Translate the WebAssembly text format. Raises ``ValueError``."""
    try:
        return bytes(wasmtime.wat2wasm(text))
    except wasmtime.WasmtimeError as error:
        raise ValueError(str(error)) from error
