"""Requests that hide another one, sent to a real proxy in front of a server that takes what it gets.

The server believes anything, so what reaches it is what an attacker brought through. Two widely used parsers read it
too: they must see exactly the requests that were judged.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import h11
import httptools
import pytest

from fakes.eventually import eventually
from fakes.playbook import each_byte
from fakes.smuggling_corpus import WORD, Attempt, answers, attempts
from palyra.egress.domain.events import EgressEvent, Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.domain.rules import HostRule
from palyra.egress.protocols.http1_proxy import Forward, HttpProxyServer, ProxyState, Reject, RequestBody, Tunnel
from palyra.egress.protocols.http1_response import AnswerBody, AnswerEnded, ResponseReader, ResponseState
from palyra.egress.proxy.server import CallListener, EgressProxy, ListeningSocket

pytestmark = pytest.mark.promise("P-net-host-held")

ALLOWED = "allowed.example"
HOST = ALLOWED.encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
# Requests that are sound and stand openly behind another one. They are judged, and refused, each on its own.
OPEN_PIPELINING = {"plain pipelining", "pipelining behind a body", "pipelining behind chunks"}


def pass_through(machine: HttpProxyServer, pieces: list[bytes]) -> tuple[list[str], bytes]:
    """The URLs that a judge is asked about, and the bytes that go to the server if it allows the first host only."""
    urls: list[str] = []
    sent = b""
    for piece in pieces:
        commands = machine.receive(piece)
        while commands:
            command = commands.pop(0)
            if isinstance(command, Forward):
                urls.append(command.target_url)
                if not command.target_url.startswith(f"http://{ALLOWED}/"):
                    return urls, sent
                sent += command.head.raw
            elif isinstance(command, RequestBody):
                sent += command.data
            elif isinstance(command, Tunnel | Reject):
                return urls, sent
            if not commands and machine.state is ProxyState.ANSWERING and machine.rest:
                commands = machine.next_request()
    return urls, sent


def seen_by_h11(data: bytes) -> list[bytes]:
    connection, targets = h11.Connection(h11.SERVER), []
    connection.receive_data(data)
    connection.receive_data(b"")
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return targets
        if isinstance(event, h11.Request):
            targets.append(event.target)
        elif isinstance(event, h11.EndOfMessage) and connection.our_state is h11.SEND_RESPONSE:
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:
                return targets
            connection.start_next_cycle()
        elif event in (h11.PAUSED, h11.NEED_DATA) or isinstance(event, h11.ConnectionClosed):
            return targets


def seen_by_httptools(data: bytes) -> list[bytes]:
    targets: list[bytes] = []

    class Handler:
        def on_url(self, url: bytes) -> None:
            targets.append(url)

    parser = httptools.HttpRequestParser(Handler())
    with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        parser.feed_data(data)
    return targets


def in_both_forms() -> list[tuple[Attempt, bool]]:
    proxied = [(attempt, False) for attempt in attempts(b"http://" + HOST, HOST)]
    return proxied + [(attempt, True) for attempt in attempts(b"", HOST)]


@pytest.mark.parametrize(
    ("attempt", "origin"), in_both_forms(), ids=lambda value: value.name if isinstance(value, Attempt) else str(value)
)
@pytest.mark.parametrize("cut", [lambda data: [data], each_byte], ids=["whole", "by byte"])
def test_parsers_behind_the_proxy_see_the_judged_requests(
    attempt: Attempt, origin: bool, cut: Callable[[bytes], list[bytes]]
) -> None:
    urls, sent = pass_through(HttpProxyServer(origin="http" if origin else None), cut(attempt.data))
    judged = [url for url in urls if url.startswith(f"http://{ALLOWED}/")]
    assert WORD not in b"".join(line for line in sent.split(b"\r\n") if b"HTTP/" in line)
    for seen in (seen_by_h11(sent), seen_by_httptools(sent)):
        assert len(seen) <= len(judged) and WORD not in b"".join(seen)


@pytest.mark.parametrize("attempt", answers(), ids=lambda attempt: attempt.name)
@pytest.mark.parametrize("cut", [lambda data: [data], each_byte], ids=["whole", "by byte"])
def test_a_hidden_answer_is_refused_or_spoils_its_connection(
    attempt: Attempt, cut: Callable[[bytes], list[bytes]]
) -> None:
    reader = ResponseReader("GET")
    passed = b""
    try:
        for piece in cut(attempt.data):
            commands = reader.receive(piece)
            passed += b"".join(command.data for command in commands if isinstance(command, AnswerBody))
            if AnswerEnded() in commands:
                break
    except MalformedTraffic:
        assert reader.state is ResponseState.REFUSED
    assert WORD not in passed and not reader.reusable


class Names:
    async def resolve(self, host: str) -> tuple[str, ...]:
        return ("127.0.0.1",)


class Watcher:
    def __init__(self) -> None:
        self.events: list[EgressEvent] = []

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        self.events.append(event)

    def violations(self) -> list[str]:
        return [event.refusal.code for event in self.events if isinstance(event, Refused) and event.violation]


class Harness:
    """A server that believes everything, the proxy before it, and a client."""

    def __init__(self, server_port: int, proxy_port: int, watcher: Watcher) -> None:
        self.host = f"{ALLOWED}:{server_port}".encode()
        self.proxy_port = proxy_port
        self.watcher = watcher
        self.received = b""
        self.connections = 0
        self.scripts: list[bytes] = []
        self.listener: CallListener | None = None
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.received += data
                writer.write(self.scripts.pop(0) if self.scripts else OK)
        writer.close()

    async def say(self, *words: bytes) -> bytes:
        """All that comes back to these words, each sent when the one before was answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy_port)
        received = b""
        with suppress(OSError):
            for word in words:
                writer.write(word)
                received += await asyncio.wait_for(reader.read(65_536), 5)
            writer.write_eof()
            received += await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await eventually(lambda: self.listener is None or not self.listener.tunnels)
        return received


@asynccontextmanager
async def harness() -> AsyncIterator[Harness]:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [sock.getsockname()[1] for sock in listening]
    watcher = Watcher()
    here = Harness(*ports, watcher)
    server = await asyncio.start_server(here.serve, sock=listening[0])
    rule = HostRule.parse(f"{ALLOWED}:{ports[0]}")
    grant = EgressGrant(
        grant_id="g", principal="agent:bot", run="r", call="c", tool="t", rules=(rule,), private_targets=(rule,)
    )
    proxy = EgressProxy(EgressProxyPolicyService(frozenset), Names(), watcher)
    here.listener = proxy.open_listener(grant, [ListeningSocket(kind="proxy", socket=listening[1])])
    try:
        yield here
    finally:
        proxy.close()
        for writer in here.writers:
            writer.transport.abort()
        server.close()
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})


def heads_in(received: bytes) -> bytes:
    return b"".join(line for line in received.split(b"\r\n") if b" HTTP/" in line)


@pytest.mark.parametrize("inside", [False, True], ids=["absolute-form", "in a tunnel"])
async def test_nothing_hidden_reaches_the_server(inside: bool) -> None:
    async with harness() as here:
        tunnel = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (here.host, here.host)
        for attempt in attempts(b"" if inside else b"http://" + here.host, here.host):
            here.received = b""
            here.watcher.events.clear()
            words = [tunnel, attempt.data] if inside else [attempt.data]
            received = await here.say(*words)
            assert WORD not in heads_in(here.received), attempt.name
            assert WORD not in received, attempt.name
            if attempt.name not in {"HTTP/1.0 keep-alive", "h2c"}:
                assert here.watcher.violations(), attempt.name


async def test_an_open_second_request_is_judged_on_its_own() -> None:
    async with harness() as here:
        for attempt in attempts(b"http://" + here.host, here.host):
            if attempt.name in OPEN_PIPELINING:
                proxied = attempt.data.replace(b"GET /smuggled", b"GET http://evil.example/smuggled")
                here.watcher.events.clear()
                received = await here.say(proxied)
                assert received.startswith(b"HTTP/1.1 200 OK\r\n") and b"egress.host_not_allowed" in received
                assert here.watcher.violations() == ["egress.host_not_allowed"]
        assert WORD not in here.received


async def test_no_client_gets_a_hidden_answer() -> None:
    async with harness() as here:
        ask = b"GET http://%b/ HTTP/1.1\r\nHost: %b\r\n\r\n" % (here.host, here.host)
        for attempt in answers():
            here.scripts = [attempt.data]
            received = await here.say(ask, ask)
            assert WORD not in received, attempt.name
            here.scripts = []


async def test_an_answer_nobody_asked_for_is_not_the_next_ones() -> None:
    async with harness() as here:
        ask = b"GET http://%b/ HTTP/1.1\r\nHost: %b\r\n\r\n" % (here.host, here.host)
        here.scripts = [OK + OK.replace(b"ok", b"no")]
        received = await here.say(ask, ask)
        assert received.count(b"HTTP/1.1 200 OK") == 2 and received.count(b"\r\n\r\nok") == 2 and b"no" not in received
        assert here.connections == 2
