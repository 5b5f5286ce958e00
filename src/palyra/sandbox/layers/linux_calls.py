"""prctl(2), signalfd(2) and setns(2) for the small processes around a program. Standard library only: they load it."""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_NAME_BYTES = 15

_SFD_CLOEXEC = 0o2000000
_SFD_NONBLOCK = 0o4000
# sigset_t of the C library, of which the kernel's is the beginning.
_SIGNAL_SET_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_prctl.restype = ctypes.c_int


def _check(result: int) -> int:
    if result < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return result


def prctl(option: int, value: int, extra: int = 0) -> None:
    _check(_prctl(option, value, extra, 0, 0))


def name_this_process(name: bytes) -> None:
    text = ctypes.create_string_buffer(name[:_NAME_BYTES])
    prctl(PR_SET_NAME, ctypes.addressof(text))


def signal_descriptor(number: int) -> int:
    """Open a descriptor that is readable while a blocked signal is pending."""
    wanted = (1 << (number - 1)).to_bytes(_SIGNAL_SET_BYTES, "little")
    return _check(_libc.signalfd(-1, ctypes.c_char_p(wanted), _SFD_CLOEXEC | _SFD_NONBLOCK))


def enter_namespace(descriptor: int, kind: int) -> None:
    _check(_libc.setns(descriptor, kind))
