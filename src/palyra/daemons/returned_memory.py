"""Large blocks go back to the system when they are let go.

glibc keeps blocks as large as the largest it has seen let go, in each of its arenas, and threads have arenas of their
own. Stretching a pairing code takes 16 MiB and a vault's passphrase 128: each thread that did it once would hold that
much for as long as the daemon lives.
"""

import ctypes
from typing import Final

from palyra.limits import MIB

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 1 * MIB


def return_large_blocks() -> None:
    """For the whole process. Where the C library is another one, it is left to itself."""
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(_M_MMAP_THRESHOLD, _LARGE_BYTES)
