"""Landlock of this kernel: its version, its rights, and those that the rules of a launch restrict.

The start plan applies the rules, in the process that becomes the program. Landlock does not cover UDP, reading metadata
(stat), or changing the metadata (chmod, chown, xattr, utime) of files that the user owns. Through ABI 7 it does not
cover connecting to a unix socket by its path either.
"""

import ctypes
from enum import IntFlag
from functools import cache
from typing import Final

from palyra.sandbox.domain.launch_spec import LandlockRules


class Fs(IntFlag):
    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


class Net(IntFlag):
    BIND_TCP = 1 << 0
    CONNECT_TCP = 1 << 1


class Scope(IntFlag):
    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


# The ABI with which each later right appeared; the others have been there from the first.
_FS_SINCE: Final = {Fs.REFER: 2, Fs.TRUNCATE: 3, Fs.IOCTL_DEV: 5}
_NET_SINCE: Final = 4
_SCOPE_SINCE: Final = 6

# The rights that apply to a file that is not a directory; the kernel refuses the others there.
ON_FILES: Final = int(Fs.EXECUTE | Fs.WRITE_FILE | Fs.READ_FILE | Fs.TRUNCATE | Fs.IOCTL_DEV)
READING: Final = int(Fs.EXECUTE | Fs.READ_FILE | Fs.READ_DIR)
DEVICE: Final = int(Fs.READ_FILE | Fs.WRITE_FILE | Fs.TRUNCATE | Fs.IOCTL_DEV)
# Everything but making devices and driving them, which no tool has an honest use for in a workspace.
WRITING: Final = int(~(Fs.MAKE_CHAR | Fs.MAKE_BLOCK | Fs.IOCTL_DEV))

# The sizes of struct landlock_ruleset_attr that the ABIs know: file system; and network; and scopes.
_SIZES: Final = ((_SCOPE_SINCE, 24), (_NET_SINCE, 16), (1, 8))


@cache
def fs_handled(abi: int) -> int:
    return sum(int(right) for right in Fs if _FS_SINCE.get(right, 1) <= abi)


def net_handled(rules: LandlockRules, abi: int) -> int:
    if abi < _NET_SINCE:
        return 0
    return (int(Net.CONNECT_TCP) if rules.connect_tcp is not None else 0) | (
        int(Net.BIND_TCP) if rules.bind_tcp is not None else 0
    )


def scope_handled(rules: LandlockRules, abi: int) -> int:
    if abi < _SCOPE_SINCE:
        return 0
    return (int(Scope.SIGNAL) if rules.scope_signals else 0) | (
        int(Scope.ABSTRACT_UNIX_SOCKET) if rules.scope_abstract_sockets else 0
    )


def ruleset_attribute_bytes(abi: int) -> int:
    return next(size for since, size in _SIZES if abi >= since)


def handled(rules: LandlockRules, abi: int) -> tuple[str, ...]:
    """Name what a kernel of this ABI restricts under these rules, for the receipt."""
    if abi < 1:
        return ()
    fs, net, scoped = fs_handled(abi), net_handled(rules, abi), scope_handled(rules, abi)
    return (
        *(f"fs.{right.name}".lower() for right in Fs if fs & right),
        *(f"net.{right.name}".lower() for right in Net if net & right),
        *(f"scope.{scope.name}".lower() for scope in Scope if scoped & scope),
    )


# The same number on every architecture.
_CREATE_RULESET: Final = 444
_ASK_VERSION: Final = 1


@cache
def abi() -> int:
    """Return the running kernel's Landlock ABI: 0 where Landlock is missing or switched off."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    version: int = syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(version, 0)
