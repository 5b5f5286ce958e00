"""Limits of one guest, one compilation and the pool of workers, with the reasons."""

from functools import lru_cache
from typing import Final

import msgspec

from palyra.limits import DEFAULT_CALL_TIMEOUT_MS, KIB, MAX_PLUGIN_TOOL_INPUT_BYTES, MAX_TOOL_OUTPUT_BYTES, MIB

WASM_PAGE_BYTES: Final = 64 * KIB

# Handles of one kind must stay below the next kind's base; nobody reviews a longer list than this anyway.
MAX_GRANTS_PER_KIND: Final = 256

# A module built from Python carries an interpreter of 18 MiB; nothing honest is twice that.
MAX_MODULE_BYTES: Final = 32 * MIB
# Native code with its tables is two to three times the module.
MAX_COMPILED_BYTES: Final = 192 * MIB
# Compiled modules on disk: every version of a dozen skills with an interpreter, or some thousand small ones. The folder
# shares its disk with the journal, and every module that anybody ever ran leaves a file there.
MAX_DISK_CACHE_BYTES: Final = 2048 * MIB
# An interpreter takes half a minute on two busy cores; a module made to be slow takes for ever.
COMPILE_TIMEOUT_MS: Final = 240_000
# What compiling an interpreter needs, twice.
COMPILE_MEMORY_BYTES: Final = 4096 * MIB
# Private writable memory of a worker: the guest's, what loaded modules take, and copies on the way in and out.
WORKER_MEMORY_BYTES: Final = 1024 * MIB

# Native stack a guest may use; deep recursion traps instead of reaching the worker's own frames.
MAX_WASM_STACK_BYTES: Final = 512 * KIB
# A component is made of several core instances, each with shims; an interpreter has about a dozen.
MAX_CORE_INSTANCES: Final = 64
# More memories or tables than these split the sum into parts too small to use.
MAX_MEMORIES: Final = 8
MAX_TABLES: Final = 16

# Names inside a guest's requests.
MAX_STORAGE_KEY_BYTES: Final = 512
MAX_HEADER_COUNT: Final = 64
MAX_HEADER_BYTES: Final = 16 * KIB
MAX_ATTACHED_SECRETS: Final = 8
# A piece of printed output that a guest hands over at once; longer writes come in pieces.
MAX_PRINT_BYTES: Final = 4 * KIB


class RuntimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call. The runtime's own limits are the most that a call's can be (``within``)."""

    # About a tenth of a second of arithmetic: a tool that needs more says so in its manifest.
    fuel_budget: int = 10_000_000
    # Summed over all memories of the guest.
    max_memory_bytes: int = 64 * MIB
    # Summed over all tables of the guest.
    max_table_elements: int = 100_000
    # Guests that live at once in all workers. Only the runtime's own value counts.
    max_instances: int = 256
    max_input_bytes: int = MAX_PLUGIN_TOOL_INPUT_BYTES
    max_output_bytes: int = MAX_TOOL_OUTPUT_BYTES
    max_log_bytes: int = 64 * KIB
    max_log_lines: int = 256
    max_log_line_chars: int = 2_048
    # Every call of a host function, also those that the worker answers by itself.
    max_host_calls: int = 10_000
    # Calls that leave the worker: requests, storage, messages, secrets.
    max_outside_calls: int = 256
    # One call that leaves the worker; epochs do not interrupt it.
    host_call_timeout_ms: int = 10_000
    # The body of one request, one stored value, one message.
    max_request_bytes: int = 1 * MIB
    max_response_bytes: int = 4 * MIB

    def within(self, most: "RuntimeLimits") -> "RuntimeLimits":
        """Take the smaller value of each limit."""
        return _smaller(self, most)


# Calls of one tool have the same limits again and again.
@lru_cache(maxsize=256)
def _smaller(limits: RuntimeLimits, most: RuntimeLimits) -> RuntimeLimits:
    return RuntimeLimits(
        **{name: max(0, min(getattr(limits, name), getattr(most, name))) for name in limits.__struct_fields__}
    )


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many worker processes there are and how long anything waits for one."""

    # Kept ready while nothing happens. A worker is a fork of about 1 MiB of its own.
    ready: int = 2
    # Guests that compute at once; those that wait for the outside are not counted. 0: twice the number of processors.
    computing: int = 0
    # Waiting for a place before the answer is ``wasm.quota``.
    wait_ms: int = 5_000
    # After a guest's deadline its worker has this long to say so; then it is killed.
    kill_grace_ms: int = 1_000
    # Spare workers beyond ``ready`` end after this long without work.
    idle_seconds: float = 30.0
    # Modules that one worker keeps loaded, by number.
    loaded_per_worker: int = 16
    # Compiled modules kept in memory, beside those on disk.
    memory_cache_bytes: int = 256 * MIB
    # Those on disk; the ones that were not used for longest go first.
    disk_cache_bytes: int = MAX_DISK_CACHE_BYTES
    # Compilations at once; each may use every core.
    compiling: int = 1
    compile_timeout_ms: int = COMPILE_TIMEOUT_MS
    max_module_bytes: int = MAX_MODULE_BYTES


# Some ten seconds of arithmetic: what a skill that parses or computes a lot may ask for.
DEFAULT_MAX_FUEL: Final = 1_000_000_000
DEFAULT_TIMEOUT_MS: Final = DEFAULT_CALL_TIMEOUT_MS


def share(total: int, declared: tuple[int | None, ...]) -> int:
    """Compute the largest bound for each of several growing things that keeps their sum within ``total``.

    ``declared`` are their own maxima; None stands for a thing without one. The engine bounds each memory or table by
    one number, not their sum: a thing with a small maximum leaves more to the others.
    """
    if not declared:
        return total
    left, open_ended = total, len(declared)
    for most in sorted(total if size is None else size for size in declared):
        if most * open_ended > left:
            return max(0, left // open_ended)
        left -= most
        open_ended -= 1
    return total
