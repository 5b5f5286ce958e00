"""openat2(2): path resolution that the kernel itself confines beneath a directory descriptor.

The check and the open are one system call, so there is no moment between them in which a directory can be swapped
for a link. Where the call is missing nothing weaker takes its place.
"""

import ctypes
import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from palyra.workspace.errors import Busy, Openat2Missing, ProcMissing, refusal_of
from palyra.workspace.limits import OPENAT2_ATTEMPTS

_SYSCALL_NUMBERS: Final = {"x86_64": 437, "aarch64": 437}

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_BENEATH: Final = 0x08
CONFINED: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
CONFINED_NAME: Final = "RESOLVE_BENEATH|RESOLVE_NO_MAGICLINKS"

_MISSING: Final = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
_NUMBER: Final = _SYSCALL_NUMBERS.get(platform.machine())
_HOW_BYTES: Final = ctypes.sizeof(_OpenHow)


@cache
def _how(flags: int, resolve: int) -> _OpenHow:
    """Build the argument of a kind once: the kernel only reads it."""
    return _OpenHow(flags, 0, resolve)


def openat2(directory: int, path: bytes, flags: int, *, resolve: int) -> int:
    """Make the bare call. Raise ``OSError`` as the functions of ``os`` do."""
    if _NUMBER is None:
        raise Openat2Missing(f"layer openat2: not known on {platform.machine()}", layer="openat2")
    descriptor: int = _syscall(_NUMBER, directory, path, _how(flags | os.O_CLOEXEC, resolve), _HOW_BYTES)
    if descriptor < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return descriptor


def open_beneath(directory: int, path: bytes, flags: int, *, shown: str) -> int:
    """Open a path that may pass links, as long as it never leaves ``directory``. The caller closes the descriptor.

    The kernel answers EAGAIN when a rename somewhere makes it unable to say whether ``..`` stayed beneath.
    """
    for _ in range(OPENAT2_ATTEMPTS):
        try:
            return openat2(directory, path, flags, resolve=CONFINED)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise refusal_of(error, shown) from error
    raise Busy(f"{shown} is being moved while it is opened", path=shown)


@contextmanager
def hold(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of a block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def descriptor_path(descriptor: int) -> bytes:
    """Return the path under which this process can reopen or link exactly the file of a descriptor."""
    return b"/proc/self/fd/%d" % descriptor


def location(descriptor: int) -> bytes:
    """Ask the kernel for the present path of an open directory."""
    try:
        return os.readlink(descriptor_path(descriptor))
    except FileNotFoundError as error:
        raise ProcMissing("layer openat2: /proc does not show this process", layer="openat2") from error
    except OSError as error:
        raise refusal_of(error, "the directory") from error


def probe(directory: int) -> str:
    """Try the confinement on a real directory. Return what holds, or raise."""
    try:
        os.close(openat2(directory, b".", os.O_PATH | os.O_DIRECTORY, resolve=CONFINED))
    except OSError as error:
        if error.errno in _MISSING:
            raise Openat2Missing(f"layer openat2: {error.strerror}", layer="openat2") from error
        raise refusal_of(error, "the workspace") from error
    _expect(directory, b"..", errno.EXDEV, "RESOLVE_BENEATH")
    try:
        own = os.open(b"/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ProcMissing("layer openat2: /proc does not show this process", layer="openat2") from error
    with hold(own):
        _expect(own, b"root", errno.ELOOP, "RESOLVE_NO_MAGICLINKS")
    return CONFINED_NAME


def _expect(directory: int, path: bytes, problem: int, flag: str) -> None:
    try:
        os.close(openat2(directory, path, os.O_PATH, resolve=CONFINED))
    except OSError as error:
        if error.errno == problem:
            return
        raise Openat2Missing(f"layer openat2: {flag} answers {error.strerror}", layer="openat2") from error
    raise Openat2Missing(f"layer openat2: this kernel does not enforce {flag}", layer="openat2")
