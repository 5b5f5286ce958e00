"""A guest's linear memory as host functions see it. Places and lengths come from the guest and are checked here."""

import ctypes
from typing import Final

from palyra.wasm.domain.frames import Call
from palyra.wasm.domain.host_interface import MEMORY, Status
from palyra.wasm.domain.limits import MAX_CORE_INSTANCES
from palyra.wasm.domain.module_facts import ModuleFacts
from palyra.wasm.engine import libwasmtime

_MEMORY_NAME: Final = MEMORY.encode()
_EXTERN_MEMORY: Final = 3
U32: Final = 0xFFFFFFFF


class GuestMemory:
    """The memory of the guest that calls now. One object serves a whole worker."""

    def __init__(self) -> None:
        self._extern = libwasmtime.Extern()
        self._reference = ctypes.byref(self._extern)
        self._item = ctypes.addressof(self._extern) + libwasmtime.EXTERN_ITEM_OFFSET
        self._base = 0
        self.size = 0

    def of_caller(self, caller: int) -> bool:
        """Point to the calling guest's export ``memory``. Returns False when it has none."""
        found = libwasmtime.caller_export_get(caller, _MEMORY_NAME, len(_MEMORY_NAME), self._reference)
        return self._look(found, libwasmtime.caller_context(caller) if found else 0)

    def of_instance(self, context: int, instance: object) -> bool:
        found = libwasmtime.export_get(context, instance, _MEMORY_NAME, len(_MEMORY_NAME), self._reference)
        return self._look(found, context)

    def _look(self, found: bool, context: int) -> bool:
        if not found or int(self._extern.kind) != _EXTERN_MEMORY:
            self._base = self.size = 0
            return False
        self.refresh(context)
        return True

    def refresh(self, context: int) -> None:
        """Look at the memory again after the guest ran: memory that grows may move."""
        self._base = libwasmtime.memory_data(context, self._item) or 0
        self.size = libwasmtime.memory_data_size(context, self._item)

    def read(self, place: int, length: int, most: int) -> bytes | Status:
        if length > most:
            return Status.TOO_LARGE
        if place + length > self.size:
            return Status.BAD_POINTER
        return ctypes.string_at(self._base + place, length) if length else b""

    def read_text(self, place: int, length: int, most: int) -> str | Status:
        data = self.read(place, length, most)
        if isinstance(data, Status):
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            return Status.BAD_UTF8

    def write(self, place: int, data: bytes) -> Status:
        if place + len(data) > self.size:
            return Status.BAD_POINTER
        if data:
            ctypes.memmove(self._base + place, data, len(data))
        return Status.OK


class GuestStore:
    """The store of one call, with its limits."""

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
