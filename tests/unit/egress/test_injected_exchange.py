"""One exchange over streams in memory: framing stays sound, the secret stays out."""

import asyncio

import pytest

from palyra.egress.domain.events import EgressEvent
from palyra.egress.domain.injection import Injection, InjectionPlan
from palyra.egress.domain.refusal import Unreachable
from palyra.egress.domain.target import Target
from palyra.egress.protocols.http1_head import RequestHead
from palyra.egress.protocols.http1_proxy import Forward
from palyra.egress.proxy.termination import InjectedExchange
from palyra.egress.tls import Connection
from palyra.secret import Secret

TARGET = Target.from_url("https://api.example.com/")
PLAN = InjectionPlan(
    kept=(("Host", "api.example.com"),),
    injections=(Injection(header_name="X-Key", secret_ref="global/k"),),
)
VALUES = {"global/k": Secret("secret-value")}


class Memory:
    """Gives its pieces one by one, then nothing for ever (or the end)."""

    def __init__(self, *pieces: bytes, ends: bool = True) -> None:
        self._pieces = list(pieces)
        self._ends = ends
        self.written = b""

    async def read(self, most: int = 0) -> bytes:
        if self._pieces:
            return self._pieces.pop(0)
        if not self._ends:
            await asyncio.Event().wait()
        return b""

    async def write(self, data: bytes | memoryview) -> None:
        self.written += bytes(data)


def forward(method: str = "GET") -> Forward:
    head = RequestHead(method=method, target="/x?q=1", version="1.1", headers=(), raw=b"")
    return Forward(head=head, target_url="https://api.example.com/x", keep_alive=True)


async def exchanged(*pieces: bytes, method: str = "GET", ends: bool = True) -> tuple[InjectedExchange, Memory, bool]:
    client, server = Memory(), Memory(*pieces, ends=ends)
    events: list[EgressEvent] = []
    exchange = InjectedExchange(client, server, TARGET, report=events.append, keep_alive=True)
    is_unfinished = await exchange.run(forward(method), PLAN, VALUES, None)
    assert (
        server.written == f"{method} /x?q=1 HTTP/1.1\r\nHost: api.example.com\r\nX-Key: secret-value\r\n\r\n".encode()
    )
    assert "secret-value" not in repr(events)
    return exchange, client, is_unfinished


async def test_a_counted_body_keeps_its_length() -> None:
    exchange, client, is_unfinished = await exchanged(
        b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n<sec", b"ret-value>"
    )
    assert client.written.endswith(b"\r\n\r\n<************>")
    assert (is_unfinished, exchange.reusable) == (True, True)


async def test_chunks_are_made_anew() -> None:
    _, client, is_unfinished = await exchanged(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"3\r\nsec\r\n",
        b"9\r\nret-value\r\n0\r\nX: y\r\n\r\n",
    )
    assert client.written.endswith(b"\r\n\r\nc\r\n************\r\n0\r\n\r\n")
    assert is_unfinished


async def test_the_head_is_scanned_too() -> None:
    _, client, _ = await exchanged(b"HTTP/1.1 200 secret-value\r\nX-A: secret-value\r\nContent-Length: 0\r\n\r\n")
    assert b"secret" not in client.written
    assert b"X-A: ************" in client.written


async def test_a_body_until_the_end_closes_the_client_too() -> None:
    exchange, client, is_unfinished = await exchanged(b"HTTP/1.1 200 OK\r\n\r\nabc")
    assert b"Connection: close" in client.written
    assert (is_unfinished, exchange.reusable) == (False, False)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_an_unsound_answer_is_the_servers_fault(answer: bytes) -> None:
    with pytest.raises(Unreachable):
        await exchanged(answer)


async def test_an_answer_before_the_request_is_whole_ends_the_connection() -> None:
    client, server = Memory(), Memory(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", ends=False)
    exchange = InjectedExchange(client, server, TARGET, report=lambda _: None, keep_alive=True)

    async def never(_: Connection) -> None:
        await asyncio.Event().wait()

    assert not await exchange.run(forward("POST"), PLAN, VALUES, never)
    assert b"413" in client.written
