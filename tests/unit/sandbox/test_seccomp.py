import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.bpf import ALLOW, ERRNO, KILL, run_bpf
from palyra.sandbox.layers.seccomp import (
    MAX_INSTRUCTIONS,
    ArgumentTest,
    Clause,
    Rule,
    UnknownArchitecture,
    assemble,
    build_filter,
    build_tier_b_filter,
    build_tier_c_filter,
    encode,
    rules,
)
from palyra.sandbox.layers.syscall_table import AUDIT_ARCH, SYSCALLS

MUST_BE_NAMED = [
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "mount",
    "umount2",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "move_mount",
    "open_tree",
    "mount_setattr",
    "pivot_root",
    "chroot",
    "userfaultfd",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "swapon",
    "swapoff",
    "reboot",
    "acct",
    "quotactl",
    "clock_settime",
    "settimeofday",
    "setns",
    "unshare",
    "clone",
    "clone3",
    "ioctl",
    "socket",
    "personality",
    "name_to_handle_at",
    "open_by_handle_at",
    "pidfd_getfd",
    "process_madvise",
    "kcmp",
    "lookup_dcookie",
    "modify_ldt",
    "ioperm",
    "iopl",
    "move_pages",
    "mbind",
]


def test_every_entry_says_why() -> None:
    for unix in (True, False):
        entries = rules(unix_sockets=unix)
        assert all(len(rule.reason) >= 8 for rule in entries)
        assert len({rule.call for rule in entries}) == len(entries)


def test_nothing_the_design_names_is_missing() -> None:
    assert set(MUST_BE_NAMED) <= {rule.call for rule in rules(unix_sockets=True)}


def test_every_entry_is_known_on_some_machine() -> None:
    known = set().union(*SYSCALLS.values())
    assert {rule.call for rule in rules(unix_sockets=True)} <= known


BOTH = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


def answer(machine: str, call: str | int, *arguments: int, unix: bool = True) -> int:
    program = build_filter(machine, unix_sockets=unix)
    number = call if isinstance(call, int) else SYSCALLS[machine][call]
    return run_bpf(program, number, arguments, arch=AUDIT_ARCH[machine])


def expected(rule: Rule, arguments: tuple[int, ...]) -> int:
    """The meaning of a rule, said another way than the assembler says it."""
    for clause in rule.clauses:
        if all(
            ((arguments[t.argument] >> (32 if t.high else 0) & t.mask & 0xFFFFFFFF) == t.value) is not t.negated
            for t in clause.tests
        ):
            return ERRNO | max(clause.error, 0) if clause.error else ALLOW
    return ERRNO | rule.error if rule.error else ALLOW


@BOTH
@given(number=st.integers(0, 600), arguments=st.tuples(*[st.integers(0, 2**64 - 1)] * 6), unix=st.booleans())
def test_the_program_means_what_the_rules_say(
    machine: str, number: int, arguments: tuple[int, ...], unix: bool
) -> None:
    by_number = {SYSCALLS[machine][r.call]: r for r in rules(unix_sockets=unix) if r.call in SYSCALLS[machine]}
    rule = by_number.get(number)
    assert answer(machine, number, *arguments, unix=unix) == (expected(rule, arguments) if rule else ALLOW)


@BOTH
@given(
    call=st.sampled_from(
        ["socket", "ioctl", "clone", "unshare", "personality", "openat", "fchmodat", "mknodat", "prlimit64"]
    ),
    arguments=st.tuples(
        *[st.sampled_from([0, 1, 2, 3, 4, 6, 10, 16, 17, 38, 40, 132, 262, 0x5412, 0o104755, 2**32, 2**32 + 2])] * 6
    ),
)
def test_checked_arguments_mean_what_the_rules_say(machine: str, call: str, arguments: tuple[int, ...]) -> None:
    rule = next(r for r in rules(unix_sockets=False) if r.call == call)
    assert answer(machine, call, *arguments, unix=False) == expected(rule, arguments)


@BOTH
def test_other_interfaces_do_not_reach_the_rules(machine: str) -> None:
    program = build_tier_c_filter(machine)
    for arch in (0x40000003, 0x40000028, 0):  # i386, arm, nothing
        assert run_bpf(program, 1, arch=arch) == KILL
    for number in (0x40000000 | 1, 0x40000000 | 520, 0xFFFFFFFF):
        assert run_bpf(program, number, arch=AUDIT_ARCH[machine]) == ERRNO | errno.ENOSYS


@BOTH
def test_what_ordinary_programs_call_is_allowed(machine: str) -> None:
    for call in ("write", "execve", "execveat", "prctl", "landlock_restrict_self", "capset", "umask", "recvmsg"):
        assert answer(machine, call) == ALLOW
    thread = 0x3D0F00  # what pthread_create passes
    assert answer(machine, "clone", thread) == ALLOW
    assert answer(machine, "clone", 17) == ALLOW
    assert answer(machine, "clone3") == ERRNO | errno.ENOSYS
    assert answer(machine, "unshare", 0x400) == ALLOW  # CLONE_FILES
    assert answer(machine, "prlimit64", 0) == ALLOW
    assert answer(machine, "ioctl", 0, 0x5413) == ALLOW  # TIOCGWINSZ


@BOTH
def test_sockets(machine: str) -> None:
    def ask(family: int, kind: int, protocol: int = 0, *, unix: bool = True) -> int:
        return answer(machine, "socket", family, kind | socket.SOCK_CLOEXEC, protocol, unix=unix)

    for family in (socket.AF_INET, socket.AF_INET6):
        assert ask(family, socket.SOCK_STREAM) == ask(family, socket.SOCK_DGRAM) == ALLOW
        assert ask(family, socket.SOCK_STREAM, 6) == ask(family, socket.SOCK_DGRAM, 17) == ALLOW
        assert ask(family, socket.SOCK_RAW, 6) == ERRNO | errno.EPERM
        assert ask(family, socket.SOCK_SEQPACKET) == ERRNO | errno.EPERM  # SCTP by default
        for protocol in (132, 262, 33, 136):  # SCTP, MPTCP, DCCP, UDP-Lite
            assert ask(family, socket.SOCK_STREAM, protocol) == ERRNO | errno.EPROTONOSUPPORT
    assert ask(socket.AF_UNIX, socket.SOCK_STREAM) == ALLOW
    assert ask(socket.AF_UNIX, socket.SOCK_STREAM, unix=False) == ERRNO | errno.EAFNOSUPPORT
    assert answer(machine, "socketpair", socket.AF_UNIX, unix=False) == ALLOW
    assert ask(socket.AF_NETLINK, socket.SOCK_RAW, 0) == ALLOW
    assert ask(socket.AF_NETLINK, socket.SOCK_RAW, 15) == ERRNO | errno.EAFNOSUPPORT
    for family in (17, 38, 40, 44, 31, 21, 29, 30, 39):  # packet, alg, vsock, xdp, bluetooth, rds, can, tipc, nfc
        assert ask(family, socket.SOCK_STREAM) == ERRNO | errno.EAFNOSUPPORT
    # The kernel reads 32 bits of a family; whatever is above them must not change the answer.
    assert answer(machine, "socket", 2**32 + 17, 3) == ERRNO | errno.EAFNOSUPPORT


def test_programs_are_small_enough_for_the_kernel() -> None:
    for machine in SYSCALLS:
        for program in (build_tier_b_filter(machine), build_tier_c_filter(machine)):
            assert len(program) // 8 < MAX_INSTRUCTIONS / 4


def test_a_far_jump_is_made_where_a_near_one_does_not_reach() -> None:
    clauses = tuple(Clause((ArgumentTest(0, value),), errno.EPERM) for value in range(200))
    entries = [Rule(call="socket", reason="long", error=0, clauses=clauses), Rule(call="bpf", reason="after it")]
    program = encode(assemble(entries, "x86_64"))
    arch = AUDIT_ARCH["x86_64"]
    assert run_bpf(program, SYSCALLS["x86_64"]["bpf"], arch=arch) == ERRNO | errno.EPERM
    assert run_bpf(program, SYSCALLS["x86_64"]["socket"], (199,), arch=arch) == ERRNO | errno.EPERM
    assert run_bpf(program, SYSCALLS["x86_64"]["socket"], (200,), arch=arch) == ALLOW
    assert struct.calcsize("<HBBI") == 8


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(UnknownArchitecture):
        build_tier_c_filter("sparc64")
