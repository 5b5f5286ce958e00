"""Protocols by which a client names its target: SOCKS5, CONNECT, plain HTTP, synthetic addresses; and their DNS.

The DNS server is the sandbox's only one: allowed names get their synthetic addresses, all others nothing. No question
leaves this machine, so names cannot carry data out.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from palyra.egress.domain.refusal import EgressRefused, HostNotAllowed, MalformedTraffic, NameUnresolved, Unreachable
from palyra.egress.domain.target import Target
from palyra.egress.limits import DATAGRAMS_PER_TURN, MAX_DNS_QUERY_BYTES
from palyra.egress.protocols.dns import DnsAnswer, DnsStream, frame
from palyra.egress.protocols.http1_proxy import ESTABLISHED
from palyra.egress.protocols.socks5 import Connect, Reject, Reply, ReplyCode, Socks5Server
from palyra.egress.protocols.tunnel_opening import HTTP_PORT, TLS_PORT, Opening, scheme_of
from palyra.egress.proxy.http_forward import HttpConversation
from palyra.egress.proxy.tunnel import Tunnel

# Answers a question and reports refused names to the listener.
Answer = Callable[[bytes], DnsAnswer]


class DnsListener:
    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, answer: Answer) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = loop
        self._answer = answer
        loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(DATAGRAMS_PER_TURN):
            try:
                question, sender = self._sock.recvfrom(MAX_DNS_QUERY_BYTES + 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # An earlier answer met a closed port; the next question is not to blame.
                continue
            reply = self._answer(question).reply
            if reply:
                with suppress(OSError):
                    self._sock.sendto(reply, sender)

    def close(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()


async def serve_dns_tcp(tunnel: Tunnel, answer: Answer) -> None:
    """Answer one question after the other until the client ends; each has its own deadline."""
    stream = DnsStream()
    while data := await tunnel.client.read():
        for question in stream.receive(data):
            await tunnel.client.write(frame(answer(question).reply))
            tunnel.expect_handshake()


_SOCKS_VERSION: Final = 5


async def serve_proxy(tunnel: Tunnel) -> None:
    """Serve the proxy port: the first byte distinguishes SOCKS5 from CONNECT and plain HTTP."""
    first = await tunnel.client.read()
    if not first:
        return
    if first[0] == _SOCKS_VERSION:
        tunnel.face = "socks5"
        await _serve_socks(tunnel, first)
        return
    tunnel.client.unread(first)
    await _serve_http(tunnel)


async def serve_transparent(tunnel: Tunnel, name_at: Callable[[str], str | None]) -> None:
    """Serve a connection to a synthetic address, which stands for exactly one name."""
    address, port = tunnel.client.sock.getsockname()[:2]
    name = name_at(address)
    if name is None:
        raise HostNotAllowed(f"{address} stands for no allowed name", host=address, port=port)
    target = Target.of(name, port, scheme=scheme_of(port))
    await tunnel.admit(target)
    if port in (TLS_PORT, HTTP_PORT):
        # On these ports the client sends first: nothing is dialled if it sends nothing, or another protocol.
        opening = await tunnel.read_opening()
        if opening is Opening.UNKNOWN:
            return
        if opening is Opening.HTTP and not tunnel.terminated():
            await HttpConversation(tunnel, fixed=target).run()
            return
    if not tunnel.terminated():
        await tunnel.connect()
    await _carry(tunnel, target)


async def _serve_socks(tunnel: Tunnel, first: bytes) -> None:
    machine = Socks5Server()
    data = first
    while data:
        for command in machine.receive(data):
            if isinstance(command, Reply):
                await tunnel.client.write(command.data)
            elif isinstance(command, Reject):
                refused = MalformedTraffic(command.why)
                await tunnel.farewell(command.data, refused)
                raise refused
            elif isinstance(command, Connect):
                await _open_socks(tunnel, machine, command)
                return
        data = await tunnel.client.read()


async def _open_socks(tunnel: Tunnel, machine: Socks5Server, command: Connect) -> None:
    try:
        target = Target.of(command.host, command.port, scheme=scheme_of(command.port))
        await _open(tunnel, target)
    except EgressRefused as refused:
        unreachable = isinstance(refused, Unreachable | NameUnresolved)
        code = ReplyCode.HOST_UNREACHABLE if unreachable else ReplyCode.NOT_ALLOWED
        await tunnel.farewell(machine.refused(code), refused)
        raise
    await tunnel.client.write(machine.accepted())
    tunnel.client.unread(machine.rest)
    await _carry(tunnel, target)


async def _serve_http(tunnel: Tunnel) -> None:
    tunnel.face = "http"
    conversation = HttpConversation(tunnel, fixed=None)
    request = await conversation.run()
    if request is None:
        return
    tunnel.face = "connect"
    try:
        target = connect_target(request.authority)
        await _open(tunnel, target)
    except EgressRefused as refused:
        raise await conversation.refuse(refused) from None
    await tunnel.client.write(ESTABLISHED)
    await _carry(tunnel, target)


def connect_target(authority: str) -> Target:
    target = Target.from_authority(authority, scheme="tcp")
    return Target(scheme_of(target.port), target.host, target.port)


async def _open(tunnel: Tunnel, target: Target) -> None:
    """Judge the target and dial it. A termination dials by itself when it has to."""
    await tunnel.admit(target)
    if not tunnel.terminated():
        await tunnel.connect()


async def _carry(tunnel: Tunnel, target: Target) -> None:
    """Carry the traffic of a tunnel after the client got its positive answer."""
    if tunnel.terminated():
        opening = await tunnel.read_opening()
        if opening in (Opening.TLS, Opening.HTTP):
            await tunnel.terminate(opening)
            return
        if opening is Opening.UNKNOWN:
            return
        if tunnel.grant.inspects(target):
            raise MalformedTraffic("requests to this host are judged, and this is neither TLS nor HTTP", **target.where)
        await tunnel.connect()
    if await tunnel.relay() is Opening.HTTP:
        await HttpConversation(tunnel, fixed=target).run()
