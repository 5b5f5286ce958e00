"""The few system calls of Linux that Python's ``os`` does not have. Standard library only: the zygote loads it."""

import ctypes
import os
import platform

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2

_CLOSE_RANGE = 436
_CLOSE_RANGE_CLOEXEC = 4
_LAST_DESCRIPTOR = 0xFFFFFFFF
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_prctl.restype = ctypes.c_int
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def _raise_errno() -> None:
    problem = ctypes.get_errno()
    raise OSError(problem, os.strerror(problem))


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    if _prctl(option, first, second, 0, 0) < 0:
        _raise_errno()


def name_this_process(name: bytes) -> None:
    text = ctypes.create_string_buffer(name[:15])
    prctl(PR_SET_NAME, ctypes.addressof(text))


def close_on_exec_from(first: int) -> None:
    """Marks every descriptor from ``first`` on, known to this program or not, to be closed by exec."""
    if _syscall(_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(_LAST_DESCRIPTOR), _CLOSE_RANGE_CLOEXEC) == 0:
        return
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number >= first:
            try:
                os.set_inheritable(number, False)
            except OSError:  # the descriptor of the listing itself
                continue


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


_INSTRUCTION_BYTES = 8


def install_seccomp(program: bytes) -> None:
    """Puts this process and all it starts under a BPF program. Needs no_new_privs or CAP_SYS_ADMIN."""
    text = ctypes.create_string_buffer(program, len(program))
    described = _Filter(len(program) // _INSTRUCTION_BYTES, ctypes.addressof(text))
    prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(described))


def drop_capabilities() -> None:
    """Gives up every capability, for this process and for anything it executes.

    The bounding set can only be lowered by who holds CAP_SETPCAP; who does not has nothing a later exec could regain
    under no_new_privs.
    """
    for capability in range(_HIGHEST_CAPABILITY + 1):
        if _prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    _prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    number = _CAPSET.get(platform.machine())
    if number is None:
        raise OSError(38, f"capset is not known on {platform.machine()}")
    if _syscall(number, ctypes.byref(header), ctypes.byref(nothing)) < 0:
        _raise_errno()
