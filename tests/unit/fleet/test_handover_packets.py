"""Packets with descriptors, and what a received socket really is."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from palyra.fleet import limits
from palyra.fleet.egress import handover_protocol
from palyra.fleet.egress.leases import BadListenerSocket

ELSEWHERE = -1


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


async def test_a_packet_brings_its_descriptors() -> None:
    with pair() as (left, right), socket.create_server(("127.0.0.1", 0)) as sent:
        await handover_protocol.send(left, b"hello", [sent.fileno()])
        packet, descriptors = handover_protocol.receive(right)
        assert packet == b"hello" and len(descriptors) == 1
        with handover_protocol.take_listener_socket(descriptors[0], "proxy", ELSEWHERE) as got:
            assert got.getsockname() == sent.getsockname() and got.gettimeout() == 0.0


@pytest.mark.promise("P-limits")
async def test_too_long_or_too_many_is_refused_and_leaks_nothing() -> None:
    with pair() as (left, right):
        before = len(os.listdir("/proc/self/fd"))
        left.send(b"x" * (limits.MAX_HANDOVER_MESSAGE_BYTES + 1))
        with pytest.raises(BadListenerSocket):
            handover_protocol.receive(right)
        many = [left.fileno()] * (limits.MAX_LISTENER_SOCKETS + 1)
        socket.send_fds(left, [b"x"], many)
        with pytest.raises(BadListenerSocket):
            handover_protocol.receive(right)
        assert len(os.listdir("/proc/self/fd")) == before


async def test_sending_waits_for_a_reader() -> None:
    with pair() as (left, right):
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        filled = 0
        with pytest.raises(BlockingIOError):
            while True:
                left.send(b"x" * 1024)
                filled += 1
        sending = asyncio.create_task(handover_protocol.send(left, b"last"))
        await asyncio.sleep(0)
        for _ in range(filled):
            handover_protocol.receive(right)
        await asyncio.wait_for(sending, 20)
        assert handover_protocol.receive(right)[0] == b"last"


def test_who_is_at_the_other_end_is_the_kernels_word() -> None:
    with pair() as (left, _):
        assert handover_protocol.peer_of(left) == (os.getpid(), os.geteuid())


def test_only_listening_sockets_of_another_network_are_doors() -> None:
    def handed(opened: socket.socket) -> int:
        return os.dup(opened.fileno())

    own = handover_protocol.own_network()
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket() as silent,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
        open(os.devnull, "rb") as nothing,
    ):
        handover_protocol.take_listener_socket(handed(listening), "transparent", ELSEWHERE).close()
        handover_protocol.take_listener_socket(handed(udp), "dns_udp", ELSEWHERE).close()
        for opened, kind, network in (
            (listening, "proxy", own),
            (udp, "dns_udp", own),
            (silent, "proxy", ELSEWHERE),
            (udp, "dns_tcp", ELSEWHERE),
            (listening, "dns_udp", ELSEWHERE),
            (six, "proxy", ELSEWHERE),
        ):
            descriptor = handed(opened)
            with pytest.raises(BadListenerSocket):
                handover_protocol.take_listener_socket(descriptor, kind, network)  # type: ignore[arg-type]
            # It is not left open.
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        descriptor = os.dup(nothing.fileno())
        with pytest.raises(BadListenerSocket):
            handover_protocol.take_listener_socket(descriptor, "proxy", ELSEWHERE)
