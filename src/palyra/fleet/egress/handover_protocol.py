"""Messages between a worker and its egress proxy, each one packet of JSON on a unix socket.

The sockets of a listener come with the packet that opens it, in the order of ``kinds``. A worker names a lease and
gets what the daemon granted it; no message lets a worker ask for more.
"""

import asyncio
import os
import socket
import struct
from typing import Annotated, Any, Final, Literal

import msgspec

from palyra.fleet import limits
from palyra.fleet.egress.leases import BadHandoverMessage, BadListenerSocket

PROTOCOL_VERSION: Final = 1
Kind = Literal["proxy", "transparent", "dns_udp", "dns_tcp"]
_Text = Annotated[str, msgspec.Meta(max_length=limits.MAX_FIELD_CHARS)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Kinds = Annotated[tuple[Kind, ...], msgspec.Meta(min_length=1, max_length=limits.MAX_LISTENER_SOCKETS)]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="ask"):
    """``id`` is repeated in the reply."""

    id: _Number


class BindingRequest(_Request, frozen=True, kw_only=True, tag="bind"):
    worker_id: _Text
    nonce: _Text


class GrantRequest(_Request, frozen=True, kw_only=True, tag="grant"):
    """Asks for the grant of a lease. The proxy waits a while for the daemon to send it."""

    lease_id: _Text
    fence: _Number


class OpenRequest(_Request, frozen=True, kw_only=True, tag="open"):
    lease_id: _Text
    fence: _Number
    kinds: _Kinds


class CloseRequest(_Request, frozen=True, kw_only=True, tag="close"):
    lease_id: _Text
    fence: _Number


HandoverRequest = BindingRequest | GrantRequest | OpenRequest | CloseRequest


class BindingReply(msgspec.Struct, frozen=True, kw_only=True):
    """``payload`` and ``signature`` are the signed binding, in hex."""

    egress_id: str
    policy_digest_sha256: str
    payload: str
    signature: str


class GrantReply(msgspec.Struct, frozen=True, kw_only=True):
    """``max_bytes`` is what the lease has left after its earlier listeners."""

    hosts: tuple[str, ...]
    max_bytes: int


class UsageReply(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of one listener."""

    connections: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    refused: int = 0
    violations: int = 0
    refusals: tuple[dict[str, Any], ...] = ()


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""


class HandoverReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field is set; none when a listener was opened. ``id`` 0 is about the connection itself."""

    id: int
    problem: ErrorReply | None = None
    bound: BindingReply | None = None
    granted: GrantReply | None = None
    usage: UsageReply | None = None


encode: Final = msgspec.json.Encoder().encode
_decode_request: Final = msgspec.json.Decoder(HandoverRequest).decode
_decode_reply: Final = msgspec.json.Decoder(HandoverReply).decode


def read_request(packet: bytes) -> HandoverRequest:
    try:
        request: HandoverRequest = _decode_request(packet)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadHandoverMessage(f"not a message of version {PROTOCOL_VERSION}: {error}") from error
    return request


def read_reply(packet: bytes) -> HandoverReply:
    try:
        return _decode_reply(packet)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadHandoverMessage(f"not a reply of version {PROTOCOL_VERSION}: {error}") from error


_CREDENTIALS: Final = struct.Struct("3i")
# From asm-generic/socket.h: the number of the network that a socket is in. Reading it needs no right over that network.
_SO_NETNS_COOKIE: Final = 71
_COOKIE: Final = struct.Struct("Q")


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end, as the kernel recorded them at the connection."""
    size = _CREDENTIALS.size
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return one packet and its descriptors, which the caller closes. An empty packet is the end."""
    packet, descriptors, flags, _ = socket.recv_fds(
        connection, limits.MAX_HANDOVER_MESSAGE_BYTES, limits.MAX_LISTENER_SOCKETS, socket.MSG_CMSG_CLOEXEC
    )
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(descriptors)
        raise BadListenerSocket("a packet was too long, or had too many descriptors")
    return packet, descriptors


async def send(connection: socket.socket, packet: bytes, descriptors: list[int] | None = None) -> None:
    """Wait while the other end does not read."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            socket.send_fds(connection, [packet], descriptors or [], socket.MSG_NOSIGNAL)
            return
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(connection.fileno(), writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(connection.fileno())


def network_cookie(opened: socket.socket) -> int:
    return int(_COOKIE.unpack(opened.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE.size))[0])


def own_network() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return network_cookie(one)


def take_listener_socket(descriptor: int, kind: Kind, forbidden_network: int) -> socket.socket:
    """Return the socket of a descriptor if a listener of this kind can use it. It owns the descriptor from then on."""
    try:
        opened = socket.socket(fileno=descriptor)
    except OSError as error:
        os.close(descriptor)
        raise BadListenerSocket(f"a descriptor is not a socket: {error.strerror}") from None
    try:
        udp = kind == "dns_udp"
        if opened.family != socket.AF_INET or opened.type != (socket.SOCK_DGRAM if udp else socket.SOCK_STREAM):
            raise BadListenerSocket(f"a socket is not of the kind {kind}")
        if not udp and not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise BadListenerSocket(f"a socket of the kind {kind} does not listen")
        if network_cookie(opened) == forbidden_network:
            raise BadListenerSocket("a socket is in this machine's own network, not in a sandbox's")
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        raise BadListenerSocket(f"a socket cannot be inspected: {error.strerror}") from error
    except BaseException:
        opened.close()
        raise
    return opened


def close_all(descriptors: list[int]) -> None:
    for each in descriptors:
        os.close(each)
    descriptors.clear()
