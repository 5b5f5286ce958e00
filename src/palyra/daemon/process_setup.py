"""Settings of the Python process: its garbage collector, its lock, its memory and who may read that.

Modules and services that stay are frozen. Otherwise the collector looks through them again and again, which takes a
sixth of a start.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from palyra.limits import MIB
from palyra.sandbox.layers import linux_calls


@contextmanager
def made_to_stay() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


# Python itself in a daemon: its collector and its lock, set for a process that serves for months.
#
# By default the collector looks through the young objects at every seven hundredth new one, and through everything
# each time that a quarter was added. With a thousand connections that is a twentieth of the daemon's time, and finds
# next to nothing: calls and messages end without cycles.
#
# A thread that wants Python's lock waits five milliseconds before it asks for it. gRPC passes on each single message
# from a thread of its own, and the journal's writer is one too: while the loop is busy every message waits that long,
# the loop gets its messages one by one, and half of the machine stands idle (with 64 callers on 1,000 workers 486
# leases a second became 674).

# New objects between two looks at the young ones: a few hundred calls' worth, some megabytes.
YOUNG_OBJECTS: Final = 20_000
# How long a thread waits for another one before it asks for its turn: a few messages' worth of work.
TURN_SECONDS: Final = 0.0005


def settle_in() -> None:
    """Once, when everything is built. Nothing is collected first: that would take as long as half of the start."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    sys.setswitchinterval(TURN_SECONDS)


def keep_memory_private() -> None:
    """Refuse debuggers, memory readers and core dumps: a daemon's memory has its keys and tokens.

    Other programs of the same user, such as one in Tier B, cannot attach to the process then.
    """
    linux_calls.prctl(linux_calls.PR_SET_DUMPABLE, 0)


# Large blocks go back to the system when they are freed.
#
# glibc keeps blocks as large as the largest that was freed, in each of its arenas, and threads have arenas of
# their own. Stretching a pairing code takes 16 MiB and a vault's passphrase 128: each thread that did it once would
# hold that much for as long as the daemon lives.

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 1 * MIB


def return_large_blocks() -> None:
    """For the whole process. Where the C library is another one, it is left to itself."""
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(_M_MMAP_THRESHOLD, _LARGE_BYTES)
