"""A launch as a list of system calls.

``plan_start`` turns a ``LaunchSpec`` into the exact calls that the waiting process makes, in order, with their
arguments in memory beside them: a value that can be read, compared and tested without starting a program. Two executors
carry it out: ``native_start.s`` where it works, and ``exec_child`` in Python elsewhere. Neither decides anything.

The waiting process holds only descriptors 0, 1, 2 and the socket of its orders. So the numbers that later calls return
are known in advance: the descriptors that came with the order start at 3. An opened file gets the lowest free number.
"""

import errno
import fcntl
import os
import struct
from functools import lru_cache
from typing import Final

import msgspec

from palyra.sandbox.domain.launch_spec import BadLaunch, LandlockRules, LaunchSpec, LaunchStage
from palyra.sandbox.launch.plan_segment import (
    AT_FDCWD,
    DESCRIPTORS,
    HEADER_WORDS,
    PR_SET_DUMPABLE,
    RECORD_WORDS,
    RESTART,
    VERSION,
    WORD,
    Segment,
    Step,
    hold_read_only,
    render_name,
)
from palyra.sandbox.layers import landlock as landlock_rights
from palyra.sandbox.layers.syscall_table import SYSCALLS

FIRST_RECEIVED: Final = 3
_STANDARD: Final = 3
# Received descriptors go here first when some have places of their own, so that none overwrites another.
_MOVED: Final = 64
# The first message of a process that waits in a sandbox. A failure is longer.
PRESENT: Final = b"here"


# posix_spawn leaves the two signals that the C library keeps to itself ignored.
_C_LIBRARY_SIGNALS: Final = (32, 33)
_SIGACTION_BYTES: Final = 32
_SIGNAL_SET_BYTES: Final = 8

_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_SECCOMP_MODE_FILTER: Final = 2
_BPF_INSTRUCTION_BYTES: Final = 8
_CAPABILITY_VERSION_3: Final = 0x20080522
_HIGHEST_CAPABILITY: Final = 63
_MSG_CMSG_CLOEXEC: Final = 0x40000000
_RULE_PATH_BENEATH: Final = 1
_RULE_NET_PORT: Final = 2


class StartPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The message, and the purpose of each of its records, so that an error can name the failed step."""

    encoded: bytes
    steps: tuple[Step, ...]


def plan_start(
    spec: LaunchSpec,
    *,
    machine: str,
    landlock_abi: int,
    rlimits: tuple[tuple[int, int, int], ...],
    orders: int,
    in_memory_file: bool = False,
) -> StartPlan:
    """Return the calls for one program. ``rlimits`` are the spec's in the kernel's numbers.

    Descriptors come in this order: the memory file of a long order, the standard ones, ``spec.pass_fds``, one for each
    of ``spec.data_fds``.
    """
    if machine not in SYSCALLS:
        raise BadLaunch(f"programs cannot be started on {machine}", machine=machine)
    planned = _plan_again if spec.read_only_host is not None else _plan
    return planned(spec, machine, landlock_abi, rlimits, orders, in_memory_file)


def _plan(
    spec: LaunchSpec,
    machine: str,
    landlock_abi: int,
    rlimits: tuple[tuple[int, int, int], ...],
    orders: int,
    in_memory_file: bool,
) -> StartPlan:
    first = FIRST_RECEIVED + int(in_memory_file)
    targets = (0, 1, 2, *spec.pass_fds, *(number for number, _ in spec.data_fds))
    plan = Segment(SYSCALLS[machine])
    plan.append(_begin(machine, first, orders, targets, spec.cgroup.v1, spec.new_session, spec.umask))
    if spec.read_only_host is not None:
        # After the control groups, whose files must be writable, and before the working directory is looked up.
        hold_read_only(plan, spec.read_only_host, _free_numbers(first, targets, DESCRIPTORS))
    plan.add(LaunchStage.WORKING_DIRECTORY, "chdir", plan.text(spec.cwd), subject=render_name(spec.cwd))
    if spec.no_new_privs:
        plan.add(LaunchStage.NO_NEW_PRIVS, "prctl", _PR_SET_NO_NEW_PRIVS, 1)
    if spec.landlock is not None:
        free, second_free = _free_numbers(first, targets, 2)
        _restrict_access(plan, spec.landlock, landlock_abi, machine, free, second_free)
    names = tuple(limit.name for limit in spec.rlimits)
    plan.append(_limit(machine, rlimits, names, spec.drop_capabilities, spec.seccomp))
    argv, env = plan.strings(spec.argv), plan.strings([name + b"=" + value for name, value in spec.env])
    plan.add(LaunchStage.EXEC, "execve", plan.text(spec.program), argv, env, subject=render_name(spec.program))
    return StartPlan(encoded=plan.encode(), steps=tuple(plan.steps))


# Sandbox builders: one kind for each profile in use, each in one of a few groups.
_plan_again = lru_cache(maxsize=32)(_plan)


@lru_cache(maxsize=64)
def _begin(
    machine: str,
    first: int,
    orders: int,
    targets: tuple[int, ...],
    cgroups: tuple[str, ...],
    new_session: bool,
    umask: int,
) -> Segment:
    plan = Segment(SYSCALLS[machine])
    _place_descriptors(plan, targets, first, orders)
    for directory in cgroups:
        _enter_cgroup(plan, directory, _free_numbers(first, targets, 1)[0])
    if new_session:
        plan.add(LaunchStage.SESSION, "setsid")
    default = plan.keep(bytes(_SIGACTION_BYTES))
    for number in _C_LIBRARY_SIGNALS:
        plan.add(LaunchStage.SESSION, "rt_sigaction", number, default, 0, _SIGNAL_SET_BYTES)
    plan.add(LaunchStage.SESSION, "umask", umask)
    return plan


@lru_cache(maxsize=64)
def _limit(
    machine: str,
    rlimits: tuple[tuple[int, int, int], ...],
    names: tuple[str, ...],
    drop_capabilities: bool,
    seccomp: bytes | None,
) -> Segment:
    plan = Segment(SYSCALLS[machine])
    for (number, soft, hard), name in zip(rlimits, names, strict=True):
        value = plan.keep(struct.pack("<QQ", soft, hard))
        plan.add(LaunchStage.RLIMITS, "prlimit64", 0, number, value, subject=name)
    if drop_capabilities:
        _drop_capabilities(plan)
    if seccomp is not None:
        _filter(plan, seccomp)
    return plan


def plan_announcement(machine: str, *, orders: int, message: int, closed: tuple[int, ...] = ()) -> bytes:
    """Make a process that waits in a sandbox announce itself and wait for the next order with ``message``."""
    plan = Segment(SYSCALLS[machine])
    for descriptor in closed:
        plan.add(LaunchStage.DESCRIPTORS, "close", descriptor)
    plan.add(LaunchStage.RECEIVE, "write", orders, plan.keep(PRESENT), len(PRESENT))
    plan.add(LaunchStage.RECEIVE, "recvmsg", orders, message, _MSG_CMSG_CLOEXEC)
    plan.words[-1] = RESTART
    return plan.encode()


def plan_hiding(machine: str, *, orders: int, message: int) -> bytes:
    """Hide a waiting process until exec: no process of the same user can read or trace it. It waits for an order."""
    plan = Segment(SYSCALLS[machine])
    plan.add(LaunchStage.RECEIVE, "prctl", PR_SET_DUMPABLE, 0)
    plan.add(LaunchStage.RECEIVE, "recvmsg", orders, message, _MSG_CMSG_CLOEXEC)
    plan.words[-1] = RESTART
    return plan.encode()


def plan_from_memory_file(machine: str, size: int, buffer_bytes: int) -> bytes:
    """Return the short order that makes the waiting process read a long one from its first received descriptor."""
    if size > buffer_bytes:
        raise BadLaunch("the arguments and the environment are longer than any program can take", errno=errno.E2BIG)
    words = [VERSION, 1, WORD * (HEADER_WORDS + RECORD_WORDS), WORD * HEADER_WORDS]
    words += [SYSCALLS[machine]["pread64"], FIRST_RECEIVED, 0, size, 0, 0, 0, RESTART]
    words.append(WORD * (HEADER_WORDS + 2))
    return struct.pack(f"<{len(words)}Q", *words)


def _place_descriptors(plan: Segment, targets: tuple[int, ...], first: int, orders: int) -> None:
    """Put the received descriptors in their places. Exec closes the others."""
    stage = LaunchStage.DESCRIPTORS
    plan.add(stage, "fcntl", orders, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    moved = first
    if len(targets) > _STANDARD:
        moved = _MOVED
        for place in range(len(targets)):
            plan.add(stage, "dup3", first + place, _MOVED + place, os.O_CLOEXEC)
            plan.add(stage, "close", first + place)
    for place, target in enumerate(targets):
        plan.add(stage, "dup3", moved + place, target, 0, subject=str(target))


def _free_numbers(first: int, targets: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the lowest numbers that are free once the descriptors are placed."""
    if len(targets) == _STANDARD:
        return tuple(range(first + _STANDARD, first + _STANDARD + count))
    moved = range(_MOVED, _MOVED + len(targets))
    taken = {*targets, *range(FIRST_RECEIVED, first), *moved}
    return tuple(number for number in range(FIRST_RECEIVED, moved.stop + count) if number not in taken)[:count]


def _enter_cgroup(plan: Segment, directory: str, free: int) -> None:
    """Move the one thread there is. Moving the process, through ``cgroup.procs``, waits 4 to 8 ms for a kernel lock."""
    stage, path = LaunchStage.CGROUP, f"{directory}/tasks"
    name = plan.text(path.encode("utf-8", "surrogateescape"))
    plan.add(stage, "openat", AT_FDCWD, name, os.O_WRONLY | os.O_CLOEXEC, subject=path)
    plan.add(stage, "write", free, plan.keep(b"0"), 1, subject=path)
    plan.add(stage, "close", free)


def _restrict_access(plan: Segment, rules: LandlockRules, abi: int, machine: str, ruleset: int, beneath: int) -> None:
    if abi < max(rules.least_abi, 1):
        raise BadLaunch(f"this kernel has Landlock ABI {abi}, {max(rules.least_abi, 1)} is required", abi=abi)
    stage, fs = LaunchStage.LANDLOCK, landlock_rights.fs_handled(abi)
    net, scoped = landlock_rights.net_handled(rules, abi), landlock_rights.scope_handled(rules, abi)
    attributes = plan.keep(struct.pack("<QQQ", fs, net, scoped))
    plan.add(stage, "landlock_create_ruleset", attributes, landlock_rights.ruleset_attribute_bytes(abi), 0)
    # The readable paths hardly differ between calls, and are most of the plan.
    plan.append(_allow_paths(machine, rules.read, landlock_rights.READING & fs, ruleset, beneath))
    plan.append(_allow_paths(machine, rules.devices, landlock_rights.DEVICE & fs, ruleset, beneath))
    plan.append(_allow_paths(machine, rules.write, landlock_rights.WRITING & fs, ruleset, beneath, required=True))
    for ports, right in (
        (rules.connect_tcp, landlock_rights.Net.CONNECT_TCP),
        (rules.bind_tcp, landlock_rights.Net.BIND_TCP),
    ):
        for port in ports or ():
            if net & right:
                rule = plan.keep(struct.pack("<QQ", right, port))
                plan.add(stage, "landlock_add_rule", ruleset, _RULE_NET_PORT, rule, 0, subject=f"port {port}")
    plan.add(stage, "landlock_restrict_self", ruleset, 0)
    plan.add(stage, "close", ruleset)


@lru_cache(maxsize=64)
def _allow_paths(
    machine: str, paths: tuple[str, ...], rights: int, ruleset: int, beneath: int, *, required: bool = False
) -> Segment:
    """Add a rule for each path. A required path must exist.

    struct landlock_path_beneath_attr is packed: the rights, then the descriptor. There is one for a directory and one
    for other files, on which the kernel refuses the rights that only directories have.
    """
    plan = Segment(SYSCALLS[machine])
    stage = LaunchStage.LANDLOCK
    whole = plan.keep(struct.pack("<Qi", rights, beneath))
    single = plan.keep(struct.pack("<Qi", rights & landlock_rights.ON_FILES, beneath))
    add, kind = "landlock_add_rule", _RULE_PATH_BENEATH
    for path in paths:
        name = plan.text(path.encode("utf-8", "surrogateescape"))
        flags = os.O_PATH | os.O_CLOEXEC
        plan.add(stage, "openat", AT_FDCWD, name, flags, subject=path, on_error=0 if required else 4)
        plan.add(stage, add, ruleset, kind, whole, 0, subject=path, on_error=1, on_success=2)
        plan.add(stage, add, ruleset, kind, single, 0, subject=path)
        plan.add(stage, "close", beneath)
    return plan


def _drop_capabilities(plan: Segment) -> None:
    """Drop all capabilities.

    Lowering the bounding set needs a capability. A process without it gains none by exec under no_new_privs, so those
    failures are passed over. The last call may not fail.
    """
    stage = LaunchStage.CAPABILITIES
    for capability in range(_HIGHEST_CAPABILITY + 1):
        plan.add(stage, "prctl", _PR_CAPBSET_DROP, capability, on_error=1)
    plan.add(stage, "prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, on_error=1)
    header = plan.keep(struct.pack("<II", _CAPABILITY_VERSION_3, 0))
    plan.add(stage, "capset", header, plan.keep(bytes(24)))


def _filter(plan: Segment, program: bytes) -> None:
    instructions = plan.keep(program)
    described = plan.keep(struct.pack("<QQ", len(program) // _BPF_INSTRUCTION_BYTES, 0))
    plan.data_pointers.append((described.offset + WORD, instructions.offset))
    plan.add(LaunchStage.SECCOMP, "prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described)
