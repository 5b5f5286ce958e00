"""Stops a guest in time: a timer of the system that moves the engine's epoch on.

No Python runs for it. The C library's timer thread calls wasmtime by itself, so neither the interpreter's lock nor a
busy guest can delay it, and nothing ticks while no guest runs.
"""

import ctypes
import os
import time
from ctypes import c_char, c_int, c_long, c_void_p
from typing import Final

from palyra.wasm.domain.limits import WASM_PAGE_BYTES
from palyra.wasm.engine.libwasmtime import INCREMENT_EPOCH

_CLOCK_MONOTONIC: Final = 1
_SIGEV_THREAD: Final = 2
_SIGEVENT_PAD: Final = 32
_MICROSECONDS: Final = 1_000_000
_NANOSECONDS_EACH: Final = 1_000
# The system reads zero as "never".
_LEAST_US: Final = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _SigEvent(ctypes.Structure):
    _fields_ = (
        ("value", c_void_p),
        ("signal", c_int),
        ("notify", c_int),
        ("function", c_void_p),
        ("attributes", c_void_p),
        ("pad", c_char * _SIGEVENT_PAD),
    )


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_seconds", c_long),
        ("interval_nanoseconds", c_long),
        ("seconds", c_long),
        ("nanoseconds", c_long),
    )


class Deadline:
    """One timer for one engine. Belongs to the process that made it: a fork does not inherit it."""

    def __init__(self, engine_address: int) -> None:
        event = _SigEvent(value=engine_address, notify=_SIGEV_THREAD, function=INCREMENT_EPOCH)
        self._timer = c_void_p()
        if _libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._armed = False
        self._wanted = _TimerSpec()
        self._rest = _TimerSpec()

    def arm(self, after_us: int) -> None:
        self._armed = True
        after_us = max(after_us, _LEAST_US)
        self._wanted.seconds = after_us // _MICROSECONDS
        self._wanted.nanoseconds = after_us % _MICROSECONDS * _NANOSECONDS_EACH
        _libc.timer_settime(self._timer, 0, ctypes.byref(self._wanted), None)

    def disarm(self) -> bool:
        """Stop the timer. Returns whether it had gone off: its tick may still come, and would hit the next guest."""
        if not self._armed:
            return False
        self._armed = False
        self._wanted.seconds = self._wanted.nanoseconds = 0
        _libc.timer_settime(self._timer, 0, ctypes.byref(self._wanted), ctypes.byref(self._rest))
        return not (self._rest.seconds or self._rest.nanoseconds)


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
    """The use of one run. Memory that a guest does not export shows only in the process's own accounts."""

    def __init__(self, memory: ProcessMemory) -> None:
        self._process = memory
        self._before: int | None = None
        self._began = time.perf_counter_ns()
        self.fuel_used = 0
        self.memory_bytes = 0
        self.duration_us = 0

    def start(self, *, exact: bool) -> None:
        """Begin to count memory, unless the run is ``exact``: then it sets ``memory_bytes`` itself."""
        self._before = None if exact else self._process.data_bytes()

    def stop(self, fuel_used: int) -> None:
        """End the count. Call it while the guest's memory still exists."""
        self.fuel_used = fuel_used
        if self._before is not None:
            grown = max(0, self._process.data_bytes() - self._before)
            self.memory_bytes = grown - grown % WASM_PAGE_BYTES
        self.duration_us = (time.perf_counter_ns() - self._began) // _NS_PER_US
