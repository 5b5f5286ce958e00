"""The helper's own program: what it refuses, and that it ends."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fakes.eventually import eventually_sync
from fakes.processes import descendants
from palyra.sandbox.domain.network import NetworkPlan
from palyra.sandbox.network import socket_opener_main as helper
from palyra.sandbox.network.call_network import encode_order

GOOD = encode_order(NetworkPlan(ports=(443,)))
LISTENER = helper.LISTENER.pack(helper.TCP, bytes(4), 443)


def test_an_order_is_read_as_it_was_written() -> None:
    wanted, backlog = helper.read_order(GOOD)
    assert wanted == [
        (helper.TCP, "0.0.0.0", 443),
        (helper.UDP, "127.0.0.1", 53),
        (helper.TCP, "127.0.0.1", 53),
        (helper.TCP, "127.0.0.1", 1080),
    ]
    assert backlog > 0


@pytest.mark.parametrize(
    "order",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        helper.ORDER.pack(helper.VERSION + 1, 1, 1) + LISTENER,
        helper.ORDER.pack(helper.VERSION, 2, 1) + LISTENER,
        helper.ORDER.pack(helper.VERSION, helper.MAX_LISTENERS + 1, 1) + LISTENER * (helper.MAX_LISTENERS + 1),
        helper.ORDER.pack(helper.VERSION, 1, 1) + helper.LISTENER.pack(9, bytes(4), 443),
        helper.ORDER.pack(helper.VERSION, 1, 1) + helper.LISTENER.pack(helper.TCP, bytes(4), 0),
    ],
)
def test_other_orders_are_refused(order: bytes) -> None:
    with pytest.raises(helper.Refused) as refused:
        helper.read_order(order)
    assert refused.value.stage == helper.BAD_ORDER


def test_the_largest_door_fits_an_order() -> None:
    order = encode_order(NetworkPlan(ports=tuple(range(2000, 2064))))
    assert len(order) <= helper.ORDER_BYTES and len(helper.read_order(order)[0]) == 67


def test_it_opens_nothing_in_the_network_that_it_is_in() -> None:
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    owner = os.open("/proc/self/ns/user", os.O_RDONLY)
    try:
        with pytest.raises(helper.Refused) as refused:
            helper.open_listeners(GOOD, network, owner)
        assert refused.value.stage == helper.OWN_NETWORK
    finally:
        os.close(network)
        os.close(owner)


@pytest.fixture
def running() -> Iterator[tuple[socket.socket, "subprocess.Popen[bytes]"]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "palyra.sandbox.network.socket_opener_main", str(theirs.fileno()), "2"],
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    with ours:
        yield ours, process
    process.kill()
    process.wait()


def ask(ours: socket.socket, order: bytes, *descriptors: int) -> bytes:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here:
        with there:
            socket.send_fds(ours, [order], [*descriptors, there.fileno()])
        here.settimeout(20)
        return here.recv(100)


def test_each_order_has_a_process_of_its_own(running: tuple[socket.socket, "subprocess.Popen[bytes]"]) -> None:
    """An order that cannot be carried out is answered; one that cannot be answered is not; the next is served."""
    ours, process = running
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        served = set()
        for _ in range(5):
            eventually_sync(lambda: len(descendants(process.pid)) == 2)
            served |= descendants(process.pid)
            assert helper.ANSWER.unpack(ask(ours, GOOD, own, own)) == (helper.VERSION, helper.OWN_NETWORK, 0)
            assert helper.ANSWER.unpack(ask(ours, b"?", own, own)) == (helper.VERSION, helper.BAD_ORDER, 0)
            assert ask(ours, GOOD, own) == b""
        assert len(served) > 4
    finally:
        os.close(own)


def test_it_ends_with_the_daemon(running: tuple[socket.socket, "subprocess.Popen[bytes]"]) -> None:
    ours, process = running
    eventually_sync(lambda: len(descendants(process.pid)) == 2)
    waiting = descendants(process.pid)
    ours.close()
    assert process.wait(20) == 0
    eventually_sync(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in waiting))


def test_those_that_wait_end_when_it_is_killed(running: tuple[socket.socket, "subprocess.Popen[bytes]"]) -> None:
    _, process = running
    eventually_sync(lambda: len(descendants(process.pid)) == 2)
    waiting = descendants(process.pid)
    process.kill()
    process.wait()
    eventually_sync(lambda: not any(_lives(pid) for pid in waiting))


def _lives(pid: int) -> bool:
    """Whoever inherits an orphan may be slow to bury it."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
