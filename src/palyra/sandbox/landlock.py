"""Landlock: the kernel confines this process, and all it starts, to named files, ports and processes.

Standard library only: it runs in the process that becomes the program. ``handled`` says, for an ABI, which rights a
set of rules restricts; it is what the receipt reports. Landlock does not cover UDP, looking at metadata (stat), or
changing metadata (chmod, chown, xattr, utime) of files that the user owns, and, through ABI 7, connecting to unix
sockets by path.
"""

import ctypes
import errno
import os
import stat

from palyra.sandbox.launch_wire import Landlock

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1
_RULE_NET_PORT = 2

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_CHAR = 1 << 6
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SOCK = 1 << 9
MAKE_FIFO = 1 << 10
MAKE_BLOCK = 1 << 11
MAKE_SYM = 1 << 12
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
BIND_TCP = 1 << 0
CONNECT_TCP = 1 << 1
SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
SCOPE_SIGNAL = 1 << 1

FS_RIGHTS = {
    "execute": EXECUTE,
    "write_file": WRITE_FILE,
    "read_file": READ_FILE,
    "read_dir": READ_DIR,
    "remove_dir": REMOVE_DIR,
    "remove_file": REMOVE_FILE,
    "make_char": MAKE_CHAR,
    "make_dir": MAKE_DIR,
    "make_reg": MAKE_REG,
    "make_sock": MAKE_SOCK,
    "make_fifo": MAKE_FIFO,
    "make_block": MAKE_BLOCK,
    "make_sym": MAKE_SYM,
    "refer": REFER,
    "truncate": TRUNCATE,
    "ioctl_dev": IOCTL_DEV,
}
# The ABI with which each later right appeared; the others have been there from the first.
_SINCE = {REFER: 2, TRUNCATE: 3, IOCTL_DEV: 5}
_TCP_SINCE = 4
_SCOPES_SINCE = 6

_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_READING = EXECUTE | READ_FILE | READ_DIR
_DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
# Everything but making devices, which no tool has an honest use for.
_WRITING = sum(FS_RIGHTS.values()) & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _NetPort(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def abi() -> int:
    """The running kernel's Landlock ABI. 0 where it has none or it is switched off."""
    version: int = _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(version, 0)


def _handled(rules: Landlock, version: int) -> tuple[int, int, int]:
    fs = sum(right for right in FS_RIGHTS.values() if _SINCE.get(right, 1) <= version)
    net = scoped = 0
    _read, _write, _devices, connect, bind, signals, abstract_sockets, _least = rules
    if version >= _TCP_SINCE:
        net = (CONNECT_TCP if connect is not None else 0) | (BIND_TCP if bind is not None else 0)
    if version >= _SCOPES_SINCE:
        scoped = (SCOPE_SIGNAL if signals else 0) | (SCOPE_ABSTRACT_UNIX_SOCKET if abstract_sockets else 0)
    return fs, net, scoped


def handled(rules: Landlock, version: int) -> tuple[str, ...]:
    """The names of the rights that a kernel of this ABI restricts under these rules, for the receipt."""
    if version < 1:
        return ()
    fs, net, scoped = _handled(rules, version)
    return (
        *(name for name, right in FS_RIGHTS.items() if fs & right),
        *(("bind_tcp",) if net & BIND_TCP else ()),
        *(("connect_tcp",) if net & CONNECT_TCP else ()),
        *(("scope_abstract_unix_socket",) if scoped & SCOPE_ABSTRACT_UNIX_SOCKET else ()),
        *(("scope_signal",) if scoped & SCOPE_SIGNAL else ()),
    )


def create_ruleset(rules: Landlock) -> tuple[int, int]:
    """A descriptor of the ruleset and the ABI it was made for. ``(-1, 0)`` where the kernel has no Landlock."""
    version = abi()
    read, write, devices, connect, bind, _signals, _abstract_sockets, least = rules
    if version < least:
        raise OSError(errno.EOPNOTSUPP, f"Landlock ABI {version}, at least {least} is required")
    if version < 1:
        return -1, 0
    fs, net, scoped = _handled(rules, version)
    attributes = _RulesetAttributes(fs, net, scoped)
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= _TCP_SINCE else 8
    ruleset: int = _syscall(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        _raise_errno("landlock_create_ruleset")
    try:
        for path in read:
            _allow_path(ruleset, path, _READING & fs, optional=True)
        for path in devices:
            _allow_path(ruleset, path, _DEVICE & fs, optional=True)
        for path in write:
            _allow_path(ruleset, path, _WRITING & fs, optional=False)
        for ports, right in ((connect, CONNECT_TCP), (bind, BIND_TCP)):
            for port in ports or ():
                if net & right:
                    _add(ruleset, _RULE_NET_PORT, _NetPort(right, port), f"port {port}")
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset, version


def _allow_path(ruleset: int, path: str, rights: int, *, optional: bool) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        if optional:
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _FILE_RIGHTS
        _add(ruleset, _RULE_PATH_BENEATH, _PathBeneath(rights, beneath), path)
    finally:
        os.close(beneath)


def _add(ruleset: int, kind: int, rule: ctypes.Structure, name: str) -> None:
    if _syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(kind), ctypes.byref(rule), ctypes.c_uint32(0)) < 0:
        _raise_errno(name)


def enforce(ruleset: int) -> None:
    """Irrevocable, for this process and all it starts. Needs no_new_privs or CAP_SYS_ADMIN."""
    if _syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) < 0:
        _raise_errno("landlock_restrict_self")


def restrict_self(rules: Landlock) -> int:
    """Applies the rules to this process. Returns the ABI, 0 where the kernel has none and none was required."""
    ruleset, version = create_ruleset(rules)
    if ruleset >= 0:
        try:
            enforce(ruleset)
        finally:
            os.close(ruleset)
    return version


def _raise_errno(name: str) -> None:
    problem = ctypes.get_errno()
    raise OSError(problem, os.strerror(problem), name)
