"""The faces of the proxy: how a client says where it wants to go. What follows is the same for all of them."""

from collections.abc import Callable
from typing import Final

from palyra.egress.http_forward import HttpConversation
from palyra.egress.http_proxy import ESTABLISHED
from palyra.egress.refusal import EgressRefused, HostNotAllowed, MalformedTraffic, NameUnresolved, Unreachable
from palyra.egress.socks5 import Connect, Reject, Reply, ReplyCode, Socks5Server
from palyra.egress.target import Target
from palyra.egress.tunnel import Tunnel
from palyra.egress.tunnel_opening import HTTP_PORT, TLS_PORT, Opening, scheme_of

_SOCKS_VERSION: Final = 5


async def serve_proxy(tunnel: Tunnel) -> None:
    """The proxy port: SOCKS5, CONNECT and plain HTTP, told apart by the first byte."""
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
    """A connection to a synthetic address, which stands for exactly one name."""
    address, port = tunnel.client.sock.getsockname()[:2]
    name = name_at(address)
    if name is None:
        raise HostNotAllowed(f"{address} stands for no allowed name", host=address, port=port)
    target = Target.of(name, port, scheme=scheme_of(port))
    await tunnel.admit(target)
    if port in (TLS_PORT, HTTP_PORT):
        # Here the client speaks first: nothing is dialled for one that says the wrong thing, or nothing.
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


async def _open_socks(tunnel: Tunnel, machine: Socks5Server, asked: Connect) -> None:
    try:
        target = Target.of(asked.host, asked.port, scheme=scheme_of(asked.port))
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
    asked = await conversation.run()
    if asked is None:
        return
    tunnel.face = "connect"
    try:
        target = connect_target(asked.authority)
        await _open(tunnel, target)
    except EgressRefused as refused:
        raise await conversation.refuse(refused) from None
    await tunnel.client.write(ESTABLISHED)
    await _carry(tunnel, target)


def connect_target(authority: str) -> Target:
    """The target of a tunnel, in the scheme of its port. Raises what refuses its spelling."""
    target = Target.from_authority(authority, scheme="tcp")
    return Target(scheme_of(target.port), target.host, target.port)


async def _open(tunnel: Tunnel, target: Target) -> None:
    """Judges the target and dials it, unless somebody else reads its traffic and dials when it has to."""
    await tunnel.admit(target)
    if not tunnel.terminated():
        await tunnel.connect()


async def _carry(tunnel: Tunnel, target: Target) -> None:
    """The traffic of a tunnel whose client knows that it stands."""
    if tunnel.terminated():
        opening = await tunnel.read_opening()
        if opening in (Opening.TLS, Opening.HTTP):
            await tunnel.terminate(opening)
            return
        if opening is Opening.UNKNOWN:
            return
        await tunnel.connect()
    if await tunnel.relay() is Opening.HTTP:
        await HttpConversation(tunnel, fixed=target).run()
