"""Attempts on the kernel's wide and risky interfaces."""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import signal
import socket
import struct
from collections.abc import Callable

from .calls import (
    REFUSED,
    Blocked,
    NotApplicable,
    Order,
    call,
    fail,
    in_child,
    libc,
    number_of,
    raw_arguments,
)

X32_BIT = 0x40000000
TIOCSCTTY = 0x540E
CLONE_NEWUSER = 0x10000000
INVISIBLE = (errno.ESRCH, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EPROTOTYPE)


def syscall(order: Order) -> str:
    """Make one call. If success would do harm, its arguments make it fail: the errno tells how far it got."""
    name = order["call"]
    number = number_of(order, name)
    try:
        got = call(number, *raw_arguments(order["arguments"]))
    except OSError as error:
        if error.errno in (*REFUSED, *order.get("denied", ())):
            raise
        raised = errno.errorcode.get(error.errno or 0, str(error.errno))
        return f"{name} was let through to the kernel, which answered {raised}"
    return f"{name} answered {got}"


def new_user_namespace(order: Order) -> str:
    """Call clone or clone3 with a namespace flag. The child ends at once."""
    if order["call"] == "clone3":
        record = struct.pack("8Q", CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
        pointer = ctypes.create_string_buffer(record, len(record))
        child = call(number_of(order, "clone3"), pointer, len(record))
    else:
        child = call(number_of(order, "clone"), CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return f"{order['call']} made a user namespace"


def mount_in_new_namespace(order: Order) -> str:
    """Mount in a nested user namespace, which gives back the right to mount."""
    if libc.unshare(CLONE_NEWUSER | 0x00020000) != 0:
        raise fail("unshare")
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
        raise Blocked("a namespace was made, but not the mount in it")
    return "mounted in a nested namespace"


def trace_child(order: Order) -> str:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        call(number_of(order, "ptrace"), 0x4206, child, 0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return "attached to a child"


def compat_entry(order: Order) -> str:
    """Call getpid by int 0x80: the calls of 32-bit programs have other numbers, which a filter could overlook."""
    if platform.machine() != "x86_64":
        raise NotApplicable("only x86-64 has this way in")
    code = bytes((0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3))

    def enter() -> int:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        return 0 if function() == os.getpid() else 1

    status = in_child(enter)
    if os.WIFSIGNALED(status):
        raise Blocked(f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    if os.WEXITSTATUS(status) == 0:
        return "getpid by int 0x80 answered"
    raise Blocked(f"int 0x80 gave no process id (status {os.WEXITSTATUS(status)})")


def x32_entry(order: Order) -> str:
    if platform.machine() != "x86_64":
        raise NotApplicable("only x86-64 has this way in")

    def enter() -> int:
        return 0 if call(X32_BIT | 39) == os.getpid() else 1

    status = in_child(enter)
    if os.WIFSIGNALED(status):
        raise Blocked(f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    if os.WEXITSTATUS(status) == 0:
        return "getpid by its x32 number answered"
    raise Blocked(f"no answer (status {os.WEXITSTATUS(status)})")


def terminal(order: Order) -> str:
    """Put a character into the input of a terminal: of an own one, or else of standard input."""
    number = int(order["request"])
    try:
        primary, user = os.openpty()
    except OSError:
        user = 0
    else:
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                fcntl.ioctl(user, TIOCSCTTY, 0)
                fcntl.ioctl(user, number, b"\n")
            except OSError as error:
                os._exit(min(error.errno or 0, 250))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        os.close(primary)
        result = os.WEXITSTATUS(status)
        if result == 0:
            return "a character was put into a terminal's input"
        if result == errno.ENOTTY:
            return "the request was let through to the kernel"
        raise OSError(result, os.strerror(result))
    try:
        fcntl.ioctl(user, number, b"\n")
    except OSError as error:
        if error.errno == errno.ENOTTY:
            return "the request was let through to the kernel"
        raise
    return "a character was put into a terminal's input"


def socket_family(order: Order) -> str:
    try:
        socket.socket(order["family"], order["type"], order["protocol"]).close()
    except OSError as error:
        if error.errno in (*REFUSED, *INVISIBLE):
            raise
        raised = errno.errorcode.get(error.errno or 0, str(error.errno))
        return f"socket was let through to the kernel, which answered {raised}"
    return "the socket was made"


def network_settings(order: Order) -> str:
    """Request a change of an interface that does not exist: the kernel checks the right to change any first."""
    link = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0x7FFFFFFF, 0, 0)
    header = struct.pack("=IHHII", 16 + len(link), 19, 1 | 4, 1, 0)
    with socket.socket(16, socket.SOCK_RAW, 0) as client:
        client.settimeout(2)
        client.sendto(header + link, (0, 0))
        (answer,) = struct.unpack_from("=i", client.recv(4096), 16)
    if -answer in REFUSED:
        raise OSError(-answer, os.strerror(-answer))
    return f"the request was carried out, as far as it went ({errno.errorcode.get(-answer, answer)})"


def core_dump(order: Order) -> str:
    """Crash a child. Its memory must not be written anywhere, nor handed to a program of the host."""

    def crash() -> int:
        os.kill(os.getpid(), signal.SIGSEGV)
        return 0

    status = in_child(crash)
    if os.WCOREDUMP(status):
        return "the kernel dumped the memory of a crashed program"
    raise Blocked("no dump was made")


def privileged_program(order: Order) -> str:
    """Start a setuid program of root's. Only one that got no new rights obeys LD_DEBUG, and then does nothing."""
    candidates = ("/usr/bin/su", "/bin/su", "/usr/bin/passwd", "/usr/bin/mount", "/bin/mount", "/usr/bin/newgrp")
    program = next((path for path in candidates if os.path.exists(path) and os.stat(path).st_mode & 0o4000), None)
    if program is None:
        raise NotApplicable("there is no setuid program here")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for number in (1, 2):
            os.dup2(writing, number)
        os.execve(program, [program, "--version"], {"LD_DEBUG": "help"})  # noqa: S606  no shell is wanted
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        obeyed = b"LD_DEBUG" in output.read()
    os.waitpid(child, 0)
    with open("/proc/self/status") as status:
        fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    if fields["NoNewPrivs"].strip() != "1":
        return "NoNewPrivs is 0: a setuid program gets its owner's rights"
    if os.geteuid() != 0 and not obeyed:
        return f"{program} got the rights of its owner"
    raise Blocked(f"{program} got no rights; NoNewPrivs is 1")


PROBES: dict[str, Callable[[Order], str]] = {
    each.__name__: each
    for each in (
        *(syscall, new_user_namespace, mount_in_new_namespace, trace_child, compat_entry, x32_entry, terminal),
        *(socket_family, network_settings, core_dump, privileged_program),
    )
}
