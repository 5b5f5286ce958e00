"""Which Landlock this kernel has. The rules are applied by the start plan, in the process that becomes the program."""

import ctypes
from functools import cache
from typing import Final

from palyra.sandbox.landlock_rights import handled, unhandled

__all__ = ["abi", "handled", "unhandled"]

# The same number on every architecture.
_CREATE_RULESET: Final = 444
_ASK_VERSION: Final = 1


@cache
def abi() -> int:
    """The running kernel's Landlock ABI. 0 where it has none or it is switched off."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    version: int = syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(version, 0)
