"""The process that waits for an order and becomes its program. Standard library only: the zygote loads it.

It has only the standard descriptors and the socket of its orders. It is the small native executor, or a fork of Python
that carries the order out itself. Both make the same list of system calls.
"""

import array
import ctypes
import errno
import os
import signal
import socket
import struct

from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor.native_code import BUFFER_BYTES, MAX_RECEIVED, ORDERS_DESCRIPTOR
from palyra.sandbox.layers import linux_calls

NOT_STARTED = 127
_HEADER = struct.Struct("<QQQQ")
_RECORD = struct.Struct("<8Q")
_WORD = struct.Struct("<Q")
_RESTART = 1 << 63
# struct clone_args
_CLONE = struct.Struct("<11Q")
_CLONE3 = 435
_CLONE_INTO_CGROUP = 1 << 33
_ALL_WORDS = (1 << 64) - 1
_ANCILLARY_BYTES = socket.CMSG_SPACE(MAX_RECEIVED * array.array("i").itemsize)


def start_waiting(orders: socket.socket, image: int | None, group: bytes = b"") -> int:
    """Start the process that waits, as a child of this one and in a version 2 group. Return its pid."""
    if image is None or group:
        return _fork_waiting(orders, image, group)
    # Not a fork, which would copy this process's memory to throw it away. All other descriptors close on exec.
    place = (os.POSIX_SPAWN_DUP2, orders.fileno(), ORDERS_DESCRIPTOR)
    return os.posix_spawn(f"/proc/self/fd/{image}", [b"palyra-start"], {}, file_actions=[place], setsigmask=())


def _fork_waiting(orders: socket.socket, image: int | None, group: bytes) -> int:
    parent = os.getpid()
    pid = _fork_into(group, orders) if group else os.fork()
    if pid == 0:
        linux_calls.prctl(linux_calls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(orders.detach(), ORDERS_DESCRIPTOR)
        if image is not None:
            os.execve(image, [b"palyra-start"], {})  # noqa: S606 - the image itself, no shell
        os.closerange(3, ORDERS_DESCRIPTOR)
        os.closerange(ORDERS_DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))
        carry_out(receive())
        os._exit(NOT_STARTED)
    return pid


def _fork_into(group: bytes, orders: socket.socket) -> int:
    """Fork a child that begins in a version 2 group. Old kernels and some containers cannot: there it moves itself."""
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        arguments = _CLONE.pack(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, directory)
        # PyDLL keeps the lock of the interpreter, so that the child has it too.
        pid: int = ctypes.PyDLL(None, use_errno=True).syscall(_CLONE3, arguments, _CLONE.size)
        if pid >= 0:
            return pid
        problem = ctypes.get_errno()
        if problem not in (errno.ENOSYS, errno.EINVAL, errno.E2BIG, errno.EPERM):
            raise OSError(problem, os.strerror(problem))
    finally:
        os.close(directory)
    pid = os.fork()
    if pid == 0:
        try:
            with open(group + b"/cgroup.procs", "wb", buffering=0) as entering:
                entering.write(b"0")
        except OSError as refused:
            os.write(orders.fileno(), wire.FAILED.pack(wire.NOT_IN_GROUP, refused.errno or 0))
            os._exit(NOT_STARTED)
    return pid


def receive() -> bytes:
    """Receive the order. Its descriptors arrive at the lowest free numbers, where the plan expects them."""
    with socket.socket(fileno=os.dup2(ORDERS_DESCRIPTOR, ORDERS_DESCRIPTOR + 1, inheritable=False)) as orders:
        order, _, _, _ = orders.recvmsg(wire.INLINE_ORDER_BYTES + 1, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC)
    if not order:
        os._exit(0)
    return order


def carry_out(order: bytes) -> None:
    """Make the calls of an order. Return only after reporting the failure of one that had to succeed."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    buffer = ctypes.create_string_buffer(BUFFER_BYTES)
    base = ctypes.addressof(buffer)
    ctypes.memmove(base, order, len(order))
    while True:
        index = _make_calls(syscall, buffer, base)
        if index is None:
            continue
        os.write(ORDERS_DESCRIPTOR, wire.FAILED.pack(index, ctypes.get_errno()))
        return


def _make_calls(syscall: "ctypes._NamedFuncPointer", buffer: "ctypes.Array[ctypes.c_char]", base: int) -> int | None:
    """Return the index of the call that failed, or ``None`` if a new plan replaced the buffer."""
    _version, relocations, relocations_at, records_at = _HEADER.unpack_from(buffer, 0)
    for place in range(relocations):
        (slot,) = _WORD.unpack_from(buffer, relocations_at + place * _WORD.size)
        (offset,) = _WORD.unpack_from(buffer, slot)
        _WORD.pack_into(buffer, slot, (offset + base) & _ALL_WORDS)
    index = 0
    while True:
        number, *arguments, control = _RECORD.unpack_from(buffer, records_at + index * _RECORD.size)
        result = syscall(ctypes.c_long(number), *(ctypes.c_ulong(argument) for argument in arguments))
        if result == -1:
            forward = control & 0xFF
            if forward == 0:
                return index
            index += forward
        elif control & _RESTART:
            if result == 0:
                os._exit(0)
            return None
        else:
            index += 1 + (control >> 8 & 0xFF)
