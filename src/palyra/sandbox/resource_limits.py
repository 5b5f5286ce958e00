"""The resource limits of one call, as values."""

from typing import Final

from palyra.sandbox.launch import RLimit

# After the soft limit the program gets SIGXCPU and this long to end by itself.
CPU_GRACE_SECONDS: Final = 2
# Too small for any file, and the one value at which the kernel does not start the program that core_pattern may name:
# with 0 the memory of a crash would still be handed to it, outside and as root.
NO_CORE_BYTES: Final = 1


def ordinary_rlimits(
    *,
    cpu_seconds: int,
    memory_bytes: int | None,
    pids: int,
    open_files: int,
    file_bytes: int,
    tasks_of_user: int,
) -> tuple[RLimit, ...]:
    """The limits of one call. ``memory_bytes`` is ``None`` where a control group limits memory better.

    The pids limit is added to what the user already runs, since the kernel compares against the user's total. That
    total moves, so this is a bound on runaway forking and not an exact allowance.
    """
    both = [
        ("CORE", NO_CORE_BYTES),
        ("NOFILE", open_files),
        ("FSIZE", file_bytes),
        ("NPROC", tasks_of_user + pids),
    ]
    return (
        RLimit(name="CPU", soft=cpu_seconds, hard=cpu_seconds + CPU_GRACE_SECONDS),
        *(RLimit(name=name, soft=value, hard=value) for name, value in both),
        *(() if memory_bytes is None else memory_rlimits(memory_bytes)),
    )


def memory_rlimits(memory_bytes: int) -> tuple[RLimit, ...]:
    """One process's memory. All it has mapped counts: what it shares, and what it only reserves, as node's WebAssembly
    does (some 10 GiB for each memory, unless started with --disable-wasm-trap-handler). DATA alone would let shared
    memory grow without bound."""
    return (RLimit("AS", memory_bytes, memory_bytes),)
