"""The egress proxy on loopback with everything around it: servers, names that resolve to them, a record of events."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from fakes.eventually import eventually
from palyra.egress.domain.events import Closed, Connected, EgressEvent, Refused
from palyra.egress.domain.grant import EgressGrant, Meter
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import NameUnresolved
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import is_address
from palyra.egress.limits import ProxyLimits
from palyra.egress.protocols.dns import SyntheticNames
from palyra.egress.proxy.server import CallListener, EgressProxy, ListeningSocket
from palyra.egress.proxy.socket_stream import SocketStream

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SITE = "site.test"


class FixedResolver:
    """Names from a table; a list of answers is given one after the other, the last one for ever."""

    def __init__(self, table: Mapping[str, tuple[str, ...] | list[tuple[str, ...]]]) -> None:
        self.table = dict(table)
        self.asked: list[str] = []

    async def resolve(self, host: str) -> tuple[str, ...]:
        self.asked.append(host)
        answers = (host,) if is_address(host) else self.table.get(host)
        if answers is None:
            raise NameUnresolved(f"{host} is not known", host=host)
        if isinstance(answers, list):
            return answers.pop(0) if len(answers) > 1 else answers[0]
        return answers


class Recorder:
    def __init__(self) -> None:
        self.events: list[EgressEvent] = []

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        self.events.append(event)

    def codes(self) -> list[str]:
        return [event.refusal.code for event in self.events if isinstance(event, Refused)]

    def refusals(self) -> list[Refused]:
        return [event for event in self.events if isinstance(event, Refused)]

    def connected(self) -> list[Connected]:
        return [event for event in self.events if isinstance(event, Connected)]

    def closed(self) -> list[Closed]:
        return [event for event in self.events if isinstance(event, Closed)]


def make_grant(*rules: str, private: tuple[str, ...] | None = None, **bounds: Any) -> EgressGrant:
    """Private addresses are open for all its rules unless ``private`` says otherwise: the servers are on loopback."""
    return EgressGrant(
        grant_id="g",
        principal="agent:a",
        run="r",
        call="c",
        tool="t",
        rules=parse_rules(rules),
        private_targets=parse_rules(rules if private is None else private),
        **bounds,
    )


class EgressHarness:
    def __init__(
        self, proxy: EgressProxy, listener: CallListener, recorder: Recorder, resolver: FixedResolver, port: int
    ) -> None:
        self.proxy = proxy
        self.listener = listener
        self.recorder = recorder
        self.resolver = resolver
        self.port = port

    async def client(self) -> "Client":
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def connect(self, authority: str) -> "Client":
        """A tunnel by CONNECT."""
        client = await self.client()
        await client.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        return client

    async def socks(self, host: str, port: int) -> tuple["Client", int]:
        """A client whose SOCKS5 request was answered, and the answer's code."""
        client = await self.client()
        await client.send(b"\x05\x01\x00")
        assert await client.exactly(2) == b"\x05\x00"
        await client.send(b"\x05\x01\x00\x03" + bytes((len(host),)) + host.encode() + port.to_bytes(2, "big"))
        answer = await client.exactly(10)
        return client, answer[1]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def exactly(self, count: int) -> bytes:
        return await self.reader.readexactly(count)

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Everything until the end; a reset ends it too."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while more := await self.reader.read(65536):
                data += more
        return data

    async def is_reset(self) -> bool:
        try:
            return await self.reader.read(1 << 20) == b"" and False
        except ConnectionResetError:
            return True

    def end(self) -> None:
        self.writer.write_eof()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def server(handler: Handler, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """A server whose connections all end with it."""
    running: set[asyncio.Task[None]] = set()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            # Python 3.11 reports a cancelled handler as an error of the loop.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            writer.close()
            running.discard(task)

    listening = await asyncio.start_server(guarded, host, port)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in tuple(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def echo_request_target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An HTTP server whose answer's body is the request as it arrived."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        body = head + (await reader.readexactly(length) if length else b"")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()


@contextlib.asynccontextmanager
async def harness(
    *rules: str,
    addresses: Mapping[str, tuple[str, ...] | list[tuple[str, ...]]] | None = None,
    limits: ProxyLimits | None = None,
    private: tuple[str, ...] | None = None,
    names: SyntheticNames | None = None,
    listeners: tuple[ListeningSocket, ...] | None = None,
    bounds: Mapping[str, Any] | None = None,
    **proxy_options: Any,
) -> AsyncIterator[EgressHarness]:
    """``SITE`` and whatever else ``addresses`` names resolve; all else does not."""
    recorder = Recorder()
    resolver = FixedResolver({SITE: ("127.0.0.1",), **(addresses or {})})
    service = EgressProxyPolicyService(frozenset)
    limits = limits or ProxyLimits(sweep_seconds=0.02)
    proxy = EgressProxy(service, resolver, recorder, limits=limits, **proxy_options)
    listening = listeners or (ListeningSocket(kind="proxy", socket=socket.create_server(("127.0.0.1", 0))),)
    port = listening[0].socket.getsockname()[1]
    listener = proxy.open_listener(make_grant(*rules, private=private, **(bounds or {})), listening, names)
    try:
        yield EgressHarness(proxy, listener, recorder, resolver, port)
    finally:
        proxy.close()
        # The tunnels end in the loop's next turns.
        await eventually(lambda: not listener.tunnels, every=0)


def hello_for(server_name: str | None) -> bytes:
    """The first bytes of a TLS client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=server_name).do_handshake()
    return outgoing.read()


def use_ports(monkeypatch: Any, *, tls: int | None = None, http: int | None = None) -> None:
    """Lets ports that anybody may listen on stand for 443 and 80."""
    for module in ("proxy.client_protocols", "proxy.tunnel", "protocols.tunnel_opening"):
        for name, port in (("TLS_PORT", tls), ("HTTP_PORT", http)):
            if port is not None:
                monkeypatch.setattr(f"palyra.egress.{module}.{name}", port, raising=False)


def socket_pair(meter: Meter | None = None) -> tuple[SocketStream, socket.socket]:
    """A stream of the running loop and the other end of it."""
    ours, theirs = socket.socketpair()
    return SocketStream(ours, asyncio.get_running_loop(), meter), theirs
