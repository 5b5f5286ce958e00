"""Stops a guest in time: a timer of the system that moves the engine's epoch on.

No Python runs for it. The C library's timer thread calls wasmtime by itself, so neither the interpreter's lock nor a
busy guest can delay it, and nothing ticks while no guest runs.
"""

import ctypes
import os
from ctypes import c_char, c_int, c_long, c_void_p
from typing import Final

from palyra.wasm.libwasmtime import INCREMENT_EPOCH

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
        """Whether the timer had gone off: its tick may still be on the way, and would hit the next guest."""
        if not self._armed:
            return False
        self._armed = False
        self._wanted.seconds = self._wanted.nanoseconds = 0
        _libc.timer_settime(self._timer, 0, ctypes.byref(self._wanted), ctypes.byref(self._rest))
        return not (self._rest.seconds or self._rest.nanoseconds)
