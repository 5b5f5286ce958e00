"""The system calls a worker may make once it is confined, as data: each with the code path that needs it.

Everything else answers EPERM. Code of a guest that broke out of WebAssembly can compute, allocate memory and speak to
the daemon over the socket it has; it cannot open, connect, execute, trace, signal or change what it is.
"""

import errno
from typing import Final, NamedTuple

from palyra.sandbox.layers.seccomp import (
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    Instruction,
    UnknownArchitecture,
    encode,
)
from palyra.sandbox.layers.syscall_table import AUDIT_ARCH


class Allowed(NamedTuple):
    """Numbers of the call on x86_64 and aarch64; None where an architecture lacks it."""

    name: str
    x86_64: int | None
    aarch64: int | None
    reason: str


# The first are those of every call of a guest: they are found first.
ALLOWED: Final = (
    Allowed("recvmsg", 47, 212, "frames from the daemon"),
    Allowed("sendto", 44, 206, "frames to the daemon"),
    Allowed("mmap", 9, 222, "guests' memories, stacks, code, the allocator"),
    Allowed("munmap", 11, 215, "the same, given back"),
    Allowed("mprotect", 10, 226, "memory that grows; code that becomes executable"),
    Allowed("madvise", 28, 233, "memory that is reset"),
    Allowed("timer_settime", 223, 110, "the deadline of each call"),
    Allowed("pread64", 17, 67, "the process's own memory accounts, opened before"),
    Allowed("futex", 202, 98, "locks"),
    Allowed("poll", 7, None, "waiting for an answer with a limit"),
    Allowed("ppoll", 271, 73, "the same"),
    Allowed("recvfrom", 45, 207, "frames from the daemon"),
    Allowed("sendmsg", 46, 211, "frames to the daemon"),
    Allowed("brk", 12, 214, "the allocator"),
    Allowed("mremap", 25, 216, "the allocator; memories that move"),
    Allowed("close", 3, 57, "descriptors of modules that were loaded"),
    Allowed("fstat", 5, 80, "the size of a module's memory file"),
    Allowed("lseek", 8, 62, "the same"),
    Allowed("fcntl", 72, 25, "duplicating a memory file for mmap; sealing an image"),
    Allowed("memfd_create", 319, 279, "the engine's image of a module's initial memory"),
    Allowed("ftruncate", 77, 46, "the same"),
    Allowed("write", 1, 64, "the same"),
    Allowed("pwrite64", 18, 68, "the same"),
    Allowed("read", 0, 63, "the same"),
    Allowed("getrandom", 318, 278, "hash seeds"),
    Allowed("rt_sigprocmask", 14, 135, "threads and traps"),
    Allowed("rt_sigaction", 13, 134, "the engine's trap handlers"),
    Allowed("rt_sigreturn", 15, 139, "returning from a trap handler"),
    Allowed("rt_sigtimedwait", 128, 137, "the timer's thread"),
    Allowed("sigaltstack", 131, 132, "the engine's trap handlers"),
    Allowed("restart_syscall", 219, 128, "waits that a signal interrupted"),
    Allowed("set_robust_list", 273, 99, "starting a thread: the timer's, the compiler's"),
    Allowed("rseq", 334, 293, "the same"),
    Allowed("set_tid_address", 218, 96, "the same"),
    Allowed("gettid", 186, 178, "the same"),
    Allowed("getpid", 39, 172, "the C library"),
    Allowed("sched_yield", 24, 124, "locks"),
    Allowed("sched_getaffinity", 204, 123, "how many threads the compiler starts"),
    Allowed("clock_gettime", 228, 113, "time, where the kernel's page for it is missing"),
    Allowed("clock_nanosleep", 230, 115, "the compiler's threads"),
    Allowed("membarrier", 324, 283, "code that becomes executable"),
    Allowed("getrusage", 98, 165, "the compiler"),
    Allowed("timer_gettime", 224, 108, "the deadline"),
    Allowed("timer_delete", 226, 111, "the deadline"),
    Allowed("exit", 60, 93, "the end of a thread"),
    Allowed("exit_group", 231, 94, "the end of the process"),
)

_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE3: Final = 435
_CLONE_THREAD: Final = 0x00010000

_LOAD, _AND, _JUMP_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16


def confinement_program(machine: str) -> bytes:
    """Compile the filter to the bytes that the kernel takes."""
    if machine not in AUDIT_ARCH:
        raise UnknownArchitecture(f"no system call table for {machine}", machine=machine)
    numbers = [entry.x86_64 if machine == "x86_64" else entry.aarch64 for entry in ALLOWED]
    program = [
        Instruction(_LOAD, 0, 0, _ARCHITECTURE_AT),
        Instruction(_JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        Instruction(_RETURN, 0, 0, RET_KILL_PROCESS),
        Instruction(_LOAD, 0, 0, _NUMBER_AT),
    ]
    allow = Instruction(_RETURN, 0, 0, RET_ALLOW)
    for number in numbers:
        if number is not None:
            program += [Instruction(_JUMP_EQUAL, 0, 1, number), allow]
    program += [
        # Its flags are in memory, where a filter cannot see them; the C library falls back to clone.
        Instruction(_JUMP_EQUAL, 0, 1, _CLONE3),
        Instruction(_RETURN, 0, 0, RET_ERRNO | errno.ENOSYS),
        # Threads of this process, and no other process.
        Instruction(_JUMP_EQUAL, 0, 4, _CLONE[machine]),
        Instruction(_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        Instruction(_AND, 0, 0, _CLONE_THREAD),
        Instruction(_JUMP_EQUAL, 0, 1, _CLONE_THREAD),
        allow,
        Instruction(_RETURN, 0, 0, RET_ERRNO | errno.EPERM),
    ]
    return encode(program)
