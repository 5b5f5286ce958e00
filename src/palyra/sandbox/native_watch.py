"""The watch of ``native_watch.s`` as a function of this process. Standard library only: the zygote loads it.

From the death of a program's last process to the word that all of it is gone, a keeper in Python takes a tenth of a
millisecond or more, and it takes it from the processes that are just ending. This takes a few system calls. Where it
cannot be used (another processor, a system that maps no memory file as code) the keeper does the same in Python.
"""

import ctypes
import os
import signal
import struct

from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor.native_code import write_image

# Assembled from native_watch.s; tests/unit/sandbox/test_native_watch.py does it again and compares.
_X86_64 = bytes.fromhex(
    "534889fbb807000000be03000000baffffffff0f054885c00f8ee000000066837b06000f85d500000066837b0e000f85"
    "ca000000b83d00000048c7c7ffffffff488db300010000ba010000004c8d93080100000f054885c078307475483b4318"
    "75d24863830001000048894358488db308010000488d7b60b912000000f348a548c7432801000000ebaa4883f8f6756e"
    "48c743300100000048837b2800745fb82c0000008b3b488d7350bab000000041ba004000004531c04531c90f05b82300"
    "0000488dbb9801000031f60f0531c05bc348837b2800742648ff4b207820b880000000488d7b4831f6488d533841ba08"
    "0000000f054885c00f8936ffffffb8010000005bc3"
)

_POLLIN = 1
_NANOSECONDS = 1_000_000_000
# A program's first process ends right after its last: one signal for each, and some for what it left behind.
_ROUNDS = 8
# Three pollfd; the program, rounds, ended, childless; how long the rest may take; the set of signals.
_STATE = struct.Struct("<ihhihhihh4q2qQ")
_ENDED_AT = 40
_MESSAGE_AT = _STATE.size
_AFTER_YOU_AT = 408
_TIME = struct.Struct("<2q")
_STATE_BYTES = _AFTER_YOU_AT + _TIME.size
_PROT_READ_EXEC = 5
_MAP_PRIVATE = 2
_FAILED = ctypes.c_void_p(-1).value


def open_watch() -> int | None:
    """Where the function is, in this process and those that are forked from it; None where it cannot be had."""
    try:
        image = write_image(_X86_64)
    except OSError:
        return None
    if image is None:
        return None
    # Never writable: it is mapped from a file that nobody has open for writing.
    mapped = ctypes.CDLL(None).mmap
    mapped.restype = ctypes.c_void_p
    mapped.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    address: int | None = mapped(None, len(_X86_64), _PROT_READ_EXEC, _MAP_PRIVATE, image, 0)
    os.close(image)
    return None if address == _FAILED else address


class Watch:
    """One program's. ``rest`` and ``after_you`` are seconds: how long what it left behind may take to end by itself,
    and how long to stay out of the daemon's way when it was told."""

    def __init__(
        self, address: int, descriptors: tuple[int, int, int], program: int, *, rest: float, after_you: float
    ) -> None:
        self._function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(address)
        self._state = ctypes.create_string_buffer(_STATE_BYTES)
        polled = (word for each in descriptors for word in (each, _POLLIN, 0))
        pause = (0, int(rest * _NANOSECONDS))
        _STATE.pack_into(self._state, 0, *polled, program, _ROUNDS, 0, 0, *pause, 1 << (signal.SIGCHLD - 1))
        wire.DONE.pack_into(self._state, _MESSAGE_AT, wire.DONE_TAG, *(0,) * wire.DONE_NUMBERS)
        _TIME.pack_into(self._state, _AFTER_YOU_AT, 0, int(after_you * _NANOSECONDS))

    def told(self) -> bool:
        """Waits. True when all has ended by itself and the daemon was told; False when there is something to decide."""
        return bool(self._function(ctypes.addressof(self._state)) == 0)

    def collected(self) -> tuple[bool, bool, int, tuple[int, ...]]:
        """Whether the program ended, whether no child is left, its status and its usage."""
        ended, childless = _TIME.unpack_from(self._state, _ENDED_AT)
        _, status, *numbers = wire.DONE.unpack_from(self._state, _MESSAGE_AT)
        return bool(ended), bool(childless), status, tuple(numbers[: wire.USAGE_NUMBERS])
