"""A helper process that opens sockets in the network of a waiting sandbox. Standard library only.

The daemon starts one of these processes. Its forked children read the orders. A process that has entered a sandbox's
user namespace cannot come back, so each serves one order and ends, and the parent forks the next.
An order names the sandbox's network and the user namespace that owns it, both as descriptors, and brings the socket to
answer on. Nothing of the sandbox runs yet, and nothing in it can reach a process that stays in the host's pid
namespace, is not dumpable, and ends a moment later.
"""

import gc
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

from palyra.sandbox.layers import linux_calls

VERSION = 1
ORDER = struct.Struct("<BBH")  # version, how many listeners, backlog
LISTENER = struct.Struct("<B4sH")  # protocol, address, port
TCP, UDP = 1, 2
# Descriptors of an order: the network, the user namespace that owns it, where to answer.
ORDER_DESCRIPTORS = 3
MAX_LISTENERS = 80
ORDER_BYTES = ORDER.size + MAX_LISTENERS * LISTENER.size

ANSWER = struct.Struct("<Bii")  # version, stage, errno; a stage of 0 is success and brings the sockets
OPENED, BAD_ORDER, ENTER_USER, ENTER_NETWORK, OWN_NETWORK, BIND = range(6)

# Exit statuses of a process that serves one order.
_SERVED, _DAEMON_GONE = 0, 3
# An order takes a millisecond. One that hangs must not hold a sandbox's network for ever.
_ORDER_SECONDS = 10
# Giving back this process's memory and forking the next must not compete with the program that is about to start.
_AFTER_YOU_SECONDS = 0.01
_FORK_AGAIN_SECONDS = 0.05
# From linux/in.h: an address may be bound before its interface is up, which bubblewrap does at about the same time.
_IP_FREEBIND = 15


class Refused(Exception):
    """Why an order was not carried out: the stage, and the errno where there is one."""

    def __init__(self, stage: int, number: int = 0) -> None:
        super().__init__(stage, number)
        self.stage = stage
        self.number = number


def open_listeners(order: bytes, network: int, owner: int) -> list[socket.socket]:
    """Enters the sandbox's network and opens what the order lists, in its order."""
    wanted, backlog = read_order(order)
    own = os.stat("/proc/self/ns/net")
    given = os.fstat(network)
    if (own.st_dev, own.st_ino) == (given.st_dev, given.st_ino):
        # Every port of the order would be open on the host.
        raise Refused(OWN_NETWORK)
    for descriptor, kind, stage in (
        (owner, linux_calls.CLONE_NEWUSER, ENTER_USER),
        (network, linux_calls.CLONE_NEWNET, ENTER_NETWORK),
    ):
        try:
            linux_calls.enter_namespace(descriptor, kind)
        except OSError as problem:
            raise Refused(stage, problem.errno or 0) from problem
    # A process that gains capabilities, as here, is dumpable again where the machine is set up for debugging.
    linux_calls.prctl(linux_calls.PR_SET_DUMPABLE, 0)
    return [_listener(protocol, address, port, backlog) for protocol, address, port in wanted]


def read_order(order: bytes) -> tuple[list[tuple[int, str, int]], int]:
    if len(order) < ORDER.size:
        raise Refused(BAD_ORDER)
    version, count, backlog = ORDER.unpack_from(order)
    if version != VERSION or count > MAX_LISTENERS or len(order) != ORDER.size + count * LISTENER.size:
        raise Refused(BAD_ORDER)
    found = []
    for protocol, address, port in LISTENER.iter_unpack(order[ORDER.size :]):
        if protocol not in (TCP, UDP) or not port:
            raise Refused(BAD_ORDER)
        found.append((protocol, socket.inet_ntoa(address), port))
    return found, backlog


def _listener(protocol: int, address: str, port: int, backlog: int) -> socket.socket:
    """Neither SO_REUSEADDR nor SO_REUSEPORT: either would let a program of the same user bind over it."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == TCP else socket.SOCK_DGRAM)
    try:
        opened.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        opened.bind((address, port))
        if protocol == TCP:
            opened.listen(backlog)
    except OSError as problem:
        opened.close()
        raise Refused(BIND, problem.errno or 0) from problem
    return opened


def serve_one(orders: socket.socket) -> int:
    """Wait for one order, carry it out, and answer."""
    try:
        order, descriptors, flags, _ = socket.recv_fds(orders, ORDER_BYTES + 1, ORDER_DESCRIPTORS)
    except OSError:
        return _DAEMON_GONE
    if not order and not descriptors:
        return _DAEMON_GONE
    orders.close()
    signal.alarm(_ORDER_SECONDS)
    if len(descriptors) != ORDER_DESCRIPTORS or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        return _SERVED
    network, owner, answer_to = descriptors
    with socket.socket(fileno=answer_to) as answers:
        opened: list[socket.socket] = []
        try:
            opened = open_listeners(order, network, owner)
            answer = ANSWER.pack(VERSION, OPENED, 0)
        except Refused as refusal:
            answer = ANSWER.pack(VERSION, refusal.stage, refusal.number)
        _answer(answers, answer, opened)
    for each in opened:
        each.close()
    os.close(network)
    os.close(owner)
    return _SERVED


def _answer(answers: socket.socket, answer: bytes, opened: list[socket.socket]) -> None:
    try:
        if opened:
            socket.send_fds(answers, [answer], [each.fileno() for each in opened], socket.MSG_NOSIGNAL)
        else:
            answers.send(answer, socket.MSG_NOSIGNAL)
    except OSError:  # the daemon does not wait for it any more
        return


def keep_ready(orders: socket.socket, ready: int) -> None:
    """Keep ``ready`` processes waiting for orders until the daemon is gone."""
    mother = os.getpid()
    waiting: set[int] = set()
    while True:
        while len(waiting) < ready:
            try:
                pid = os.fork()
            except OSError:
                # Out of processes or memory: those that wait still serve.
                if waiting:
                    break
                time.sleep(_FORK_AGAIN_SECONDS)
                continue
            if pid == 0:
                _in_child(orders, mother)
            waiting.add(pid)
        pid, status = os.wait()
        waiting.discard(pid)
        if os.waitstatus_to_exitcode(status) == _DAEMON_GONE:
            return


def _in_child(orders: socket.socket, mother: int) -> None:
    status = _SERVED
    try:
        linux_calls.prctl(linux_calls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == mother:
            status = serve_one(orders)
            if status == _SERVED:
                time.sleep(_AFTER_YOU_SECONDS)
    finally:
        os._exit(status)


def main(arguments: list[str], exit_process: Callable[[int], object] = os._exit) -> None:
    orders = socket.socket(fileno=int(arguments[0]))
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    linux_calls.prctl(linux_calls.PR_SET_DUMPABLE, 0)
    linux_calls.name_this_process(b"palyra-sockets")
    os.chdir("/")
    # A collection would touch, and so copy, every page a fork shares.
    gc.disable()
    gc.freeze()
    keep_ready(orders, int(arguments[1]))
    exit_process(0)


if __name__ == "__main__":
    main(sys.argv[1:])
