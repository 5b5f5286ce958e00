"""What a worker and its egress proxy say to each other on the doors' socket.

One message is one packet, JSON; the sockets of a door come with the packet that asks for it, in the order of ``kinds``.
A worker names a lease and gets what the daemon granted it; there is no message by which it could ask for more.
"""

import asyncio
import os
import socket
import struct
from typing import Annotated, Any, Final, Literal

import msgspec

from palyra.fleet import limits
from palyra.fleet.egress.leases import BadDoorMessage, BadDoorSocket

PROTOCOL_VERSION: Final = 1
Kind = Literal["proxy", "transparent", "dns_udp", "dns_tcp"]
_Text = Annotated[str, msgspec.Meta(max_length=limits.MAX_FIELD_CHARS)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Kinds = Annotated[tuple[Kind, ...], msgspec.Meta(min_length=1, max_length=limits.MAX_DOOR_SOCKETS)]


class _Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="ask"):
    """``id`` is repeated in the answer."""

    id: _Number


class AskBinding(_Asked, frozen=True, kw_only=True, tag="bind"):
    worker_id: _Text
    nonce: _Text


class AskGrant(_Asked, frozen=True, kw_only=True, tag="grant"):
    """What the lease may reach; waits a while for the daemon's word."""

    lease_id: _Text
    fence: _Number


class AskDoor(_Asked, frozen=True, kw_only=True, tag="open"):
    lease_id: _Text
    fence: _Number
    kinds: _Kinds


class AskClose(_Asked, frozen=True, kw_only=True, tag="close"):
    lease_id: _Text
    fence: _Number


Asked = AskBinding | AskGrant | AskDoor | AskClose


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """``payload`` and ``signature`` are the signed binding, in hex."""

    egress_id: str
    policy_digest_sha256: str
    payload: str
    signature: str


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """What is left for the lease: ``max_bytes`` without what its earlier doors moved."""

    hosts: tuple[str, ...]
    max_bytes: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What went through a door."""

    connections: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    refused: int = 0
    violations: int = 0
    refusals: tuple[dict[str, Any], ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the fields, or none of them for a door that was opened. ``id`` 0 is about the connection itself."""

    id: int
    problem: Problem | None = None
    bound: Bound | None = None
    granted: Granted | None = None
    usage: Usage | None = None


_asked = msgspec.json.Decoder(Asked)
_answer = msgspec.json.Decoder(Answer)


def read_asked(packet: bytes) -> Asked:
    try:
        asked: Asked = _asked.decode(packet)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadDoorMessage(f"not a message of version {PROTOCOL_VERSION}: {error}") from error
    return asked


def read_answer(packet: bytes) -> Answer:
    try:
        return _answer.decode(packet)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadDoorMessage(f"not an answer of version {PROTOCOL_VERSION}: {error}") from error


def written(message: Asked | Answer) -> bytes:
    return msgspec.json.encode(message)


# Packets with descriptors on a unix socket, for an event loop; and what a received socket really is.

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
