"""The confinement of a worker process: no files, network, other processes or privileges, and limited memory.

The process confines itself after warm-up, and never undoes it. Without Landlock in the kernel the filter alone keeps
everything from being opened or connected; the filter must load.
"""

import ctypes
import os
import platform
import resource
import struct
from typing import Final

from palyra.sandbox.domain.launch_spec import LandlockRules
from palyra.sandbox.layers import landlock, linux_calls
from palyra.wasm.process.syscall_filter import confinement_program

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER: Final = 2
_INSTRUCTION_BYTES: Final = 8
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3: Final = 0x20080522
_SIGKILL: Final = 9
# Three standard ones, the socket, the accounts, and a few for memory files.
_MAX_DESCRIPTORS: Final = 64

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_NOTHING_REACHABLE: Final = LandlockRules(
    connect_tcp=(), bind_tcp=(), scope_signals=True, scope_abstract_sockets=True, least_abi=0
)


def _fail(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent(parent: int) -> None:
    """End this process when the one that forked it ends, also if it has ended already."""
    linux_calls.prctl(linux_calls.PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def hide() -> None:
    """Keep other processes of the same user from tracing this one and from reading its memory."""
    linux_calls.prctl(linux_calls.PR_SET_DUMPABLE, 0)


def limit_resources(memory_bytes: int) -> None:
    """Limit writable memory in all, and everything that a worker has no use for."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_DESCRIPTORS, _MAX_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def confine() -> None:
    linux_calls.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _landlock()
    _drop_capabilities()
    _filter(confinement_program(platform.machine()))


def _landlock() -> None:
    """Enter a ruleset without a rule: nothing may be opened, connected or signalled."""
    abi = landlock.abi()
    if abi < 1:
        return
    attributes = struct.pack(
        "<QQQ",
        landlock.fs_handled(abi),
        landlock.net_handled(_NOTHING_REACHABLE, abi),
        landlock.scope_handled(_NOTHING_REACHABLE, abi),
    )
    size = landlock.ruleset_attribute_bytes(abi)
    ruleset = _syscall(
        ctypes.c_long(_CREATE_RULESET), ctypes.c_char_p(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        _fail("landlock_create_ruleset")
    try:
        if _syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0)) < 0:
            _fail("landlock_restrict_self")
    finally:
        os.close(ruleset)


def _drop_capabilities() -> None:
    header = struct.pack("<II", _CAPABILITY_VERSION_3, 0)
    if _syscall(ctypes.c_long(_CAPSET[platform.machine()]), ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))) < 0:
        _fail("capset")


def _filter(program: bytes) -> None:
    instructions = ctypes.create_string_buffer(program)
    described = ctypes.create_string_buffer(
        struct.pack("<QQ", len(program) // _INSTRUCTION_BYTES, ctypes.addressof(instructions))
    )
    linux_calls.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(described))
