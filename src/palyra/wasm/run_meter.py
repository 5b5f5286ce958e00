"""What one run of a guest uses. Memory that a guest does not export shows only in the process's own accounts."""

import os
import time
from typing import Final

from palyra.wasm.limits import WASM_PAGE_BYTES

_STATM: Final = "/proc/self/statm"
_STATM_BYTES: Final = 256
# Pages of private writable memory: what the kernel counts as data.
_DATA_FIELD: Final = 5
_NS_PER_US: Final = 1_000


class GuestEnded(Exception):
    """A guest's end other than a result. ``kind`` is an error kind of ``outcome``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class ProcessMemory:
    """Opened before the process loses its files."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._file = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._file)

    def data_bytes(self) -> int:
        return int(os.pread(self._file, _STATM_BYTES, 0).split()[_DATA_FIELD]) * self._page


class RunMeter:
    def __init__(self, memory: ProcessMemory) -> None:
        self._process = memory
        self._before: int | None = None
        self._began = time.perf_counter_ns()
        self.fuel_used = 0
        self.memory_bytes = 0
        self.duration_us = 0

    def start(self, *, exact: bool) -> None:
        """``exact``: the run itself sets ``memory_bytes``."""
        self._before = None if exact else self._process.data_bytes()

    def stop(self, fuel_used: int) -> None:
        """While the guest's memory is still there."""
        self.fuel_used = fuel_used
        if self._before is not None:
            grown = max(0, self._process.data_bytes() - self._before)
            self.memory_bytes = grown - grown % WASM_PAGE_BYTES
        self.duration_us = (time.perf_counter_ns() - self._began) // _NS_PER_US
