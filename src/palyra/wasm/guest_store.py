"""The store one guest lives in, with its limits. It ends with the call."""

import ctypes

from palyra.wasm import libwasmtime
from palyra.wasm.limits import MAX_CORE_INSTANCES
from palyra.wasm.module_facts import ModuleFacts
from palyra.wasm.wire import Call


class GuestStore:
    def __init__(self, engine_address: int, call: Call, facts: ModuleFacts) -> None:
        self._store = libwasmtime.store_new(engine_address, None, None)
        self.context: int = libwasmtime.store_context(self._store)
        libwasmtime.store_limiter(
            *(self._store, call.memory_bytes, call.table_elements, MAX_CORE_INSTANCES),
            *(len(facts.tables), len(facts.memories)),
        )
        self._budget = call.fuel
        libwasmtime.set_fuel(self.context, call.fuel)
        # The deadline's timer moves the epoch on by one.
        libwasmtime.set_epoch_deadline(self.context, 1)

    def fuel_used(self) -> int:
        left = ctypes.c_uint64()
        libwasmtime.get_fuel(self.context, ctypes.byref(left))
        return self._budget - left.value

    def close(self) -> None:
        libwasmtime.store_delete(self._store)
