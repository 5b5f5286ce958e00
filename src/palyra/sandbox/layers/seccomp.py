"""The system calls that programs in the sandbox may not make, as data, and the BPF program made of them.

The list forbids. All else is allowed, because ordinary tools must work and the kernel grows calls faster than lists.
Namespaces, Landlock, limits and the absence of capabilities stand beside it. A filter sees numbers and not what
pointers point to. So it cannot tell a program in a memory file (memfd) from one on disk. It cannot see the mode in
openat2's argument, so that call is refused. It cannot see the addresses that sockets connect to.
"""

import errno
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from palyra.errors import InvalidInput
from palyra.sandbox.layers.syscall_table import AUDIT_ARCH, SYSCALLS, X32_BIT

# No error number: the call does nothing and succeeds.
PRETENDED: Final = -1


class ArgumentTest(msgspec.Struct, frozen=True):
    """``(argument & mask) == value`` on the low 32 bits, or on the ``high`` ones of an address.

    The kernel itself looks at no more than the low bits of most of these arguments.
    """

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    negated: bool = False
    high: bool = False


class Clause(msgspec.Struct, frozen=True):
    """When every test holds, ``error`` is the answer: 0 lets the call through, ``PRETENDED`` fakes its success."""

    tests: tuple[ArgumentTest, ...]
    error: int


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One system call. The first clause that applies decides; when none does, ``error`` does (0: allowed)."""

    call: str
    reason: str
    error: int = errno.EPERM
    clauses: tuple[Clause, ...] = ()


def _deny(reason: str, calls: str, *, error: int = errno.EPERM) -> tuple[Rule, ...]:
    return tuple(Rule(call=call, reason=reason, error=error) for call in calls.split())


AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
_SOCK_TYPE_MASK, _SOCK_STREAM, _SOCK_DGRAM = 0xF, 1, 2
_NETLINK_ROUTE = 0
_IP_PROTOCOLS: Final = (0, 1, 6, 17, 58)  # default, ICMP, TCP, UDP, ICMPv6

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME shares its bit with a signal number in
# clone and exists only in unshare and clone3.
_NAMESPACE_FLAGS: Final = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_CLONE_NEWTIME = 0x00000080
_TIOCSTI, _TIOCSETD, _TIOCLINUX, _TIOCCONS = 0x5412, 0x5423, 0x541C, 0x541D
_PERSONALITY_QUERY, _PERSONALITY_ORDINARY = 0xFFFFFFFF, 0
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
_S_ISUID, _S_ISGID = 0o4000, 0o2000
_MSG_FASTOPEN = 0x20000000

_RLIMIT_CORE: Final = 4
_CORE = (
    "a limit of 1 keeps the kernel from handing a crash to a program of the host's root; 0, which programs ask for to "
    "the same end, would not"
)
_SET_ID = "leaves a program on the host that runs with its owner's or group's rights for any user who starts it"


def _set_id_clauses(argument: int) -> tuple[Clause, ...]:
    return tuple(Clause((ArgumentTest(argument, bit, bit),), errno.EPERM) for bit in (_S_ISUID, _S_ISGID))


def _keeping_core_limit(resource: int, limit: int) -> tuple[Clause, ...]:
    """Match a call that gives a new limit, wherever that lies in memory. A call that only reads the old one passes."""
    core = ArgumentTest(resource, _RLIMIT_CORE)
    halves = (ArgumentTest(limit, 0, negated=True), ArgumentTest(limit, 0, negated=True, high=True))
    return tuple(Clause((core, half), PRETENDED) for half in halves)


def _without_set_id(call: str, argument: int) -> Rule:
    return Rule(call=call, reason=_SET_ID, error=0, clauses=_set_id_clauses(argument))


def _without_fast_open(call: str, flags: int) -> Rule:
    return Rule(
        call=call,
        reason="TCP fast open connects while sending, past the connect that Landlock judges",
        error=0,
        clauses=(Clause((ArgumentTest(flags, _MSG_FASTOPEN, _MSG_FASTOPEN),), errno.EOPNOTSUPP),),
    )


def _without_devices(call: str, argument: int) -> Rule:
    """Refuse device nodes: one that root makes in the workspace opens the disk to every user of the host."""
    clauses = (
        Clause((ArgumentTest(argument, _S_IFBLK, _S_IFMT),), errno.EPERM),
        Clause((ArgumentTest(argument, _S_IFCHR, _S_IFMT),), errno.EPERM),
        *_set_id_clauses(argument),
    )
    return Rule(call=call, reason="a device node opens hardware; " + _SET_ID, error=0, clauses=clauses)


def _without_namespaces(call: str, flags: tuple[int, ...]) -> Rule:
    return Rule(
        call=call,
        reason="a new user namespace gives capabilities over kernel code that no ordinary program reaches",
        error=0,
        clauses=tuple(Clause((ArgumentTest(0, flag, flag),), errno.EPERM) for flag in flags),
    )


def _sockets(*, unix: bool) -> Rule:
    """Allow netlink for routing only.

    getifaddrs and name resolution ask it which addresses exist. Without capabilities it changes nothing.
    """
    families = ((AF_UNIX,) if unix else ()) + (AF_INET, AF_INET6)
    internet = tuple(
        clause
        for family in (AF_INET, AF_INET6)
        for clause in (
            Clause(
                (
                    ArgumentTest(0, family),
                    ArgumentTest(1, _SOCK_STREAM, _SOCK_TYPE_MASK, negated=True),
                    ArgumentTest(1, _SOCK_DGRAM, _SOCK_TYPE_MASK, negated=True),
                ),
                errno.EPERM,
            ),
            Clause(
                (ArgumentTest(0, family), *(ArgumentTest(2, protocol, negated=True) for protocol in _IP_PROTOCOLS)),
                errno.EPROTONOSUPPORT,
            ),
        )
    )
    return Rule(
        call="socket",
        reason="rare families and protocols (packet, vsock, alg, SCTP, ...) are old or privileged kernel code, "
        "and some carry TCP-like streams past rules made for TCP"
        + ("" if unix else "; unix sockets by path reach daemons of the host, docker and agents among them"),
        error=errno.EAFNOSUPPORT,
        clauses=(
            *internet,
            Clause((ArgumentTest(0, AF_NETLINK), ArgumentTest(2, _NETLINK_ROUTE)), 0),
            *(Clause((ArgumentTest(0, family),), 0) for family in families),
        ),
    )


def rules(*, unix_sockets: bool) -> tuple[Rule, ...]:
    """List the forbidden calls.

    ``unix_sockets`` lets a program make unix sockets that connect by path or abstract name. In Tier C its namespaces
    decide which of them exist; in Tier B they are the host's. Pairs always work.
    """
    return (
        *_deny(
            "io_uring does file and network work that this filter never sees; programs fall back without it",
            "io_uring_setup io_uring_enter io_uring_register",
            error=errno.ENOSYS,
        ),
        *_deny(
            "reads, writes or steers other processes of the same user",
            "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp "
            "move_pages migrate_pages",
        ),
        *_deny("kernel keyrings are shared by the user's sessions", "add_key request_key keyctl"),
        *_deny("loads or drives kernel programs", "bpf perf_event_open"),
        *_deny("lets a program hold the kernel in the middle of a copy, a step of many exploits", "userfaultfd"),
        *_deny("watches the whole file system", "fanotify_init"),
        *_deny(
            "changes what is mounted where, and so what protected names mean",
            "mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr "
            "mount_setattr",
        ),
        *_deny("enters another process's namespaces", "setns"),
        _without_namespaces("clone", _NAMESPACE_FLAGS),
        _without_namespaces("unshare", (*_NAMESPACE_FLAGS, _CLONE_NEWTIME)),
        *_deny(
            "its flags are in memory, where a filter cannot see them; the C library falls back to clone",
            "clone3",
            error=errno.ENOSYS,
        ),
        *_deny(
            "replaces or extends the running kernel",
            "kexec_load kexec_file_load init_module finit_module delete_module create_module query_module "
            "get_kernel_syms",
        ),
        *_deny(
            "administers the machine",
            "swapon swapoff reboot acct quotactl quotactl_fd nfsservctl vhangup sethostname setdomainname "
            "lsm_set_self_attr",
        ),
        *_deny("the kernel's log names addresses and other people's programs", "syslog"),
        *_deny("sets the clock", "settimeofday clock_settime clock_adjtime adjtimex"),
        *_deny("speaks to hardware ports", "iopl ioperm"),
        *_deny("descriptor tables for 16-bit code; a recurring hole", "modify_ldt", error=errno.ENOSYS),
        *_deny("obsolete", "uselib ustat sysfs _sysctl lookup_dcookie", error=errno.ENOSYS),
        *_deny("steers memory of other users of the machine's nodes", "mbind set_mempolicy set_mempolicy_home_node"),
        *_deny("opens a file by number, past every directory permission", "open_by_handle_at"),
        *_deny(
            "only useful with the former; as on a file system that cannot", "name_to_handle_at", error=errno.EOPNOTSUPP
        ),
        Rule(
            call="personality",
            reason="other personalities switch off address randomisation and turn readable memory executable",
            clauses=tuple(
                Clause((ArgumentTest(0, value),), 0) for value in (_PERSONALITY_QUERY, _PERSONALITY_ORDINARY)
            ),
        ),
        Rule(
            call="ioctl",
            reason="types into a shared terminal (TIOCSTI, TIOCLINUX), takes the console, changes disciplines",
            error=0,
            clauses=tuple(
                Clause((ArgumentTest(1, request),), errno.EPERM)
                for request in (_TIOCSTI, _TIOCLINUX, _TIOCCONS, _TIOCSETD)
            ),
        ),
        _sockets(unix=unix_sockets),
        Rule(
            call="socketpair",
            reason="only unix pairs have a use; others are reached by accident or attack",
            error=errno.EAFNOSUPPORT,
            clauses=(Clause((ArgumentTest(0, AF_UNIX),), 0),),
        ),
        Rule(
            call="prlimit64",
            reason=f"sets the limits of other processes of the same user, the daemon's among them; {_CORE}",
            clauses=(*_keeping_core_limit(1, 2), Clause((ArgumentTest(0, 0),), 0)),
        ),
        Rule(call="setrlimit", reason=_CORE, error=0, clauses=(Clause((ArgumentTest(0, _RLIMIT_CORE),), PRETENDED),)),
        _without_set_id("chmod", 1),
        _without_set_id("fchmod", 1),
        _without_set_id("fchmodat", 2),
        _without_set_id("fchmodat2", 2),
        _without_set_id("creat", 1),
        _without_set_id("open", 2),
        _without_set_id("openat", 3),
        *_deny(
            "its mode is in memory, where a filter cannot see a set-user-id bit; programs fall back to openat",
            "openat2",
            error=errno.ENOSYS,
        ),
        _without_fast_open("sendto", 3),
        _without_fast_open("sendmsg", 2),
        _without_fast_open("sendmmsg", 3),
        _without_devices("mknod", 1),
        _without_devices("mknodat", 2),
    )


# The assembler: rules in, bytes out.
#
# It finds the call number by halving: the kernel runs the program once for each call number at installation, and for
# each call after that. Calls of another interface (32-bit, x32) never reach the rules.

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_JUMP: Final = 0x05  # BPF_JMP | BPF_JA
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06

RET_KILL_PROCESS: Final = 0x80000000
RET_ERRNO: Final = 0x00050000
RET_ALLOW: Final = 0x7FFF0000
_ENOSYS: Final = 38

# struct seccomp_data: number, architecture, instruction pointer, six 64-bit arguments (little-endian here).
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_ARGUMENT_BYTES: Final = 8
_INSTRUCTION: Final = struct.Struct("<HBBI")
# The reach of a conditional jump, and the longest program the kernel takes.
_NEAR: Final = 255
MAX_INSTRUCTIONS: Final = 4096
_ALL_BITS: Final = 0xFFFFFFFF


class UnknownArchitecture(InvalidInput):
    code = "sandbox.unknown_architecture"
    hint = "seccomp programs are made for x86_64 and aarch64"


class Instruction(NamedTuple):
    code: int
    if_true: int
    if_false: int
    value: int


_Code = list[Instruction]
_ALLOW: Final = Instruction(_RETURN, 0, 0, RET_ALLOW)


def _answer(error: int) -> Instruction:
    if error == PRETENDED:
        return Instruction(_RETURN, 0, 0, RET_ERRNO)
    return Instruction(_RETURN, 0, 0, RET_ERRNO | error) if error else _ALLOW


def _clause(clause: Clause) -> _Code:
    """Compile one clause. Its code falls through to the next instruction when a test does not hold."""
    loads: list[_Code] = []
    for test in clause.tests:
        place = _ARGUMENTS_AT + _ARGUMENT_BYTES * test.argument + (_ARGUMENT_BYTES // 2 if test.high else 0)
        code = [Instruction(_LOAD, 0, 0, place)]
        if test.mask != _ALL_BITS:
            code.append(Instruction(_AND, 0, 0, test.mask))
        loads.append(code)
    length = sum(len(code) + 1 for code in loads) + 1
    made: _Code = []
    for test, code in zip(clause.tests, loads, strict=True):
        made += code
        past = length - len(made) - 1
        made.append(Instruction(_JUMP_EQUAL, *((past, 0) if test.negated else (0, past)), test.value))
    made.append(_answer(clause.error))
    return made


def _leaf(rule: Rule | None) -> _Code:
    if rule is None:
        return [_ALLOW]
    return [instruction for clause in rule.clauses for instruction in _clause(clause)] + [_answer(rule.error)]


def _search(spans: Sequence[tuple[int, _Code]]) -> _Code:
    """Find the span of a number by halving. A span reaches from its first number to that of the next."""
    if len(spans) == 1:
        return spans[0][1]
    middle = len(spans) // 2
    below, above = _search(spans[:middle]), _search(spans[middle:])
    if len(below) <= _NEAR:
        return [Instruction(_JUMP_AT_LEAST, len(below), 0, spans[middle][0]), *below, *above]
    far = Instruction(_JUMP, 0, 0, len(below))
    return [Instruction(_JUMP_AT_LEAST, 0, 1, spans[middle][0]), far, *below, *above]


def assemble(entries: Sequence[Rule], machine: str) -> tuple[Instruction, ...]:
    numbers = SYSCALLS.get(machine)
    if numbers is None:
        raise UnknownArchitecture(f"no system call table for {machine}", machine=machine)
    by_number = {numbers[rule.call]: rule for rule in entries if rule.call in numbers}
    spans: list[tuple[int, _Code]] = [(0, [_ALLOW])]
    for number in sorted(by_number):
        code = _leaf(by_number[number])
        if spans[-1][0] == number:
            spans.pop()
        # Neighbours with the same answer are one span.
        if not spans or spans[-1][1] != code:
            spans.append((number, code))
        if number + 1 not in by_number:
            spans.append((number + 1, [_ALLOW]))
    # Numbers with the x32 bit, and the -1 that a tracer leaves behind, are refused.
    spans.append((X32_BIT, [_answer(_ENOSYS)]))
    program = [
        Instruction(_LOAD, 0, 0, _ARCHITECTURE_AT),
        Instruction(_JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        # A 32-bit program would spin on calls that answer with an error: it is ended.
        Instruction(_RETURN, 0, 0, RET_KILL_PROCESS),
        Instruction(_LOAD, 0, 0, _NUMBER_AT),
        *_search(spans),
    ]
    return tuple(program)


def encode(program: Sequence[Instruction]) -> bytes:
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)


@lru_cache(maxsize=16)
def build_filter(machine: str, *, unix_sockets: bool) -> bytes:
    """Build the program for ``LaunchSpec.seccomp`` or ``bwrap --seccomp``. ``rules`` explains the choice."""
    return encode(assemble(rules(unix_sockets=unix_sockets), machine))


def build_tier_b_filter(machine: str) -> bytes:
    """Build the program for processes that share the host's files and network: unix sockets as pairs only."""
    return build_filter(machine, unix_sockets=False)


def build_tier_c_filter(machine: str) -> bytes:
    """Build the program for processes in their own namespaces: unix sockets reach only what is inside."""
    return build_filter(machine, unix_sockets=True)
