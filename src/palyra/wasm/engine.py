"""The one configuration of wasmtime, and the text that names it in the cache."""

import os
import platform
import resource
from typing import Any, Final

import wasmtime
from wasmtime import _ffi

from palyra.limits import KIB, MIB
from palyra.wasm.limits import MAX_WASM_STACK_BYTES
from palyra.wasm.module_facts import CORE, ModuleFacts

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


# A place that is kept for the memory and the table of a guest: mapping and unmapping them anew is a third of what a
# small guest costs. One guest runs at a time, so there is one of each.
SLOT: Final[dict[str, int]] = {
    "total_core_instances": 1,
    "total_memories": 1,
    "total_tables": 1,
    "total_component_instances": 0,
    "total_stacks": 0,
    "total_gc_heaps": 0,
    # All that a module of 32 bits can address: limits are the store's.
    "max_memory_size": 4096 * MIB,
    "table_elements": 10_000,
    "max_core_instance_size": 16 * MIB,
    # Up to here memory is overwritten with zeros, beyond it given back and taken anew, which is slower for a little.
    "linear_memory_keep_resident": 256 * KIB,
    "table_keep_resident": 64 * KIB,
}


def make_engine(*, parallel: bool = False) -> wasmtime.Engine:
    """``parallel`` lets compilation use threads; a process that forks must not have them."""
    return wasmtime.Engine(_config(parallel=parallel))


def make_slot_engine() -> wasmtime.Engine | None:
    """For guests that fit into a slot; it runs what the other engine compiles. None where address space is limited."""
    if _settings() is not SETTINGS:
        return None
    config = _config(parallel=False)
    slot = _ffi.wasmtime_pooling_allocation_config_new()
    try:
        for name, value in SLOT.items():
            setting: Any = getattr(_ffi, f"wasmtime_pooling_allocation_config_{name}_set")
            setting(slot, value)
        _ffi.wasmtime_pooling_allocation_strategy_set(config.ptr(), slot)
    finally:
        _ffi.wasmtime_pooling_allocation_config_delete(slot)
    return wasmtime.Engine(config)


def fits_into_slot(facts: ModuleFacts) -> bool:
    """One memory that shows how large it is, and a table that cannot outgrow its place."""
    return (
        facts.form == CORE
        and facts.shows_its_memory
        and len(facts.tables) <= SLOT["total_tables"]
        and all(table.maximum is not None and table.maximum <= SLOT["table_elements"] for table in facts.tables)
    )


def _config(*, parallel: bool) -> wasmtime.Config:
    config = wasmtime.Config()
    for name, value in _settings().items():
        setattr(config, name, value)
    config.parallel_compilation = parallel
    # Guests speak and are called synchronously; streams and tasks between components have no host here.
    _ffi.wasmtime_config_wasm_component_model_async_set(config.ptr(), False)
    return config


def _version() -> str:
    """Of the library, from the name of the folder beside it that installers make. To ask Python for it takes as long as
    loading the library."""
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
