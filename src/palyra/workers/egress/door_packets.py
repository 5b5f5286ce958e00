"""Packets with descriptors on a unix socket, for an event loop; and what a received socket really is."""

import asyncio
import os
import socket
import struct
from typing import Final

from palyra.workers.egress import limits
from palyra.workers.egress.door_messages import Kind
from palyra.workers.egress.errors import BadDoorSocket

_CREDENTIALS: Final = struct.Struct("3i")
# From asm-generic/socket.h: a number for the network that a socket is in. It needs no power over that network.
_SO_NETNS_COOKIE: Final = 71
_COOKIE: Final = struct.Struct("Q")


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel noted them when it connected."""
    size = _CREDENTIALS.size
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """One packet and its descriptors, which are the caller's to close. Nothing at all is the end."""
    packet, descriptors, flags, _ = socket.recv_fds(
        connection, limits.MAX_DOOR_MESSAGE_BYTES, limits.MAX_DOOR_SOCKETS, socket.MSG_CMSG_CLOEXEC
    )
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(descriptors)
        raise BadDoorSocket("a packet was too long, or had too many descriptors")
    return packet, descriptors


async def send(connection: socket.socket, packet: bytes, descriptors: list[int] | None = None) -> None:
    """Waits while the other end does not read."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            socket.send_fds(connection, [packet], descriptors or [], socket.MSG_NOSIGNAL)
            return
        except BlockingIOError:
            writable = loop.create_future()
            loop.add_writer(connection.fileno(), _done, writable)
            try:
                await writable
            finally:
                loop.remove_writer(connection.fileno())


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def network_cookie(opened: socket.socket) -> int:
    return int(_COOKIE.unpack(opened.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE.size))[0])


def own_network() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return network_cookie(one)


def door_socket(descriptor: int, kind: Kind, forbidden_network: int) -> socket.socket:
    """The socket of a descriptor, which it owns from then on, if it is what a door of this kind needs."""
    try:
        opened = socket.socket(fileno=descriptor)
    except OSError as error:
        os.close(descriptor)
        raise BadDoorSocket(f"a descriptor is no socket: {error.strerror}") from None
    try:
        udp = kind == "dns_udp"
        if opened.family != socket.AF_INET or opened.type != (socket.SOCK_DGRAM if udp else socket.SOCK_STREAM):
            raise BadDoorSocket(f"a socket is not of the kind {kind}")
        if not udp and not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise BadDoorSocket(f"a socket of the kind {kind} does not listen")
        if network_cookie(opened) == forbidden_network:
            raise BadDoorSocket("a socket is in this machine's own network, not in a sandbox's")
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        raise BadDoorSocket(f"a socket cannot be looked at: {error.strerror}") from error
    except BaseException:
        opened.close()
        raise
    return opened


def close_all(descriptors: list[int]) -> None:
    for each in descriptors:
        os.close(each)
    descriptors.clear()
