"""The listener bounds what a stranger sends, in bytes, time and connections, and leaves honest requests alone."""

import asyncio
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from palyra.config.state_dir import StateDir
from palyra.daemon.operator_token import operator_token
from palyra.daemon.palyrad import ServerWithoutSignals, bind
from palyra.daemon.settings import Settings
from palyra.devicelink.server.listener import connections_within
from palyra.limits import MAX_HTTP_HEAD_BYTES, MIB
from palyra.server import listener
from palyra.server.context import note_admitted
from palyra.server.http.app import create_app
from palyra.server.listener import BoundedHttpProtocol


def _answers(daemon: Daemon, *parts: bytes) -> bytes:
    address = urlsplit(daemon.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.01)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def _post(daemon: Daemon, size: int, *, last: bool) -> bytes:
    closing = b"Connection: close\r\n" if last else b""
    closing += b"Authorization: Bearer " + daemon.token.encode() + b"\r\n"
    head = b"POST /v1/tool-calls HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (closing, size)
    return head + b"x" * size


def test_large_bodies_pass_whole_in_pieces_and_one_after_the_other(tmp_path: Path) -> None:
    size = 3 * MAX_HTTP_HEAD_BYTES
    with Place(tmp_path).daemon() as daemon:
        whole = _answers(daemon, _post(daemon, size, last=True))
        assert b" 400 " in whole and b" 431 " not in whole
        request = _post(daemon, size, last=True)
        pieces = [request[at : at + 20_000] for at in range(0, len(request), 20_000)]
        assert b" 400 " in _answers(daemon, *pieces)
        two = _answers(daemon, _post(daemon, size, last=False), _post(daemon, size, last=True))
        assert two.count(b" 400 ") == 2 and b" 431 " not in two


@asynccontextmanager
async def _serving(app: Any) -> AsyncIterator[int]:
    server = ServerWithoutSignals(
        uvicorn.Config(app, lifespan="off", log_config=None, http=BoundedHttpProtocol, timeout_keep_alive=60)
    )
    with bind("127.0.0.1", 0) as listening:
        serving = asyncio.create_task(server.serve([listening]))
        await server.listening.wait()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await serving


async def _ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def _read_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await _ok(scope, receive, send)


async def _until_cut_off(port: int, start: bytes, *, trickle: bool) -> None:
    """Send the start, then a letter now and then without end. Return when the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(start)

    async def send() -> None:
        while trickle:
            writer.write(b"a")
            await asyncio.sleep(0.02)

    sending = asyncio.create_task(send())
    with suppress(ConnectionError):
        async with asyncio.timeout(10):
            await reader.read()
    sending.cancel()
    writer.close()


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize(
    "start",
    [b"", b"G", b"GET / HTTP/1.1\r\nhost: x\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\n"],
    ids=["nothing", "a letter", "a header", "a second request"],
)
async def test_a_head_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(listener, "HEAD_SECONDS", 0.2)
    async with _serving(_ok) as port:
        await _until_cut_off(port, start, trickle=bool(start))


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize("app", [_ok, _read_all], ids=["answered before it", "waited for"])
async def test_a_body_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch, app: Any) -> None:
    monkeypatch.setattr(listener, "BODY_SECONDS", 0.2)
    async with _serving(app) as port:
        await _until_cut_off(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n", trickle=True)


async def test_the_stream_of_an_mcp_client_outlives_the_time_of_a_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "BODY_SECONDS", 0.2)
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    async with open_harness(tmp_path) as harness:
        gateway = harness.gateway
        token = operator_token(gateway.store, StateDir.open(tmp_path / "state"), Settings()).reveal().encode()
        async with _serving(create_app(gateway.service)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /mcp/stdio HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer " + token)
            writer.write(b"\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(2):
                async with asyncio.timeout(20):
                    writer.write(b"%x\r\n%s\r\n" % (len(ping), ping))
                    await reader.readuntil(b'"id":1')
                # Twice as long as a body may take.
                await asyncio.sleep(0.4)
            writer.close()


@pytest.mark.promise("P-floods")
async def test_trailers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _serving(_read_all) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + b"2\r\nhi\r\n0\r\nauthorization: Bearer x\r\n\r\n")
        async with asyncio.timeout(10):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        writer.close()


@pytest.mark.promise("P-floods")
async def test_idle_connections_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "max_connections", lambda: 8)
    async with _serving(_ok) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            async with asyncio.timeout(10):
                assert (await reader.read()).endswith(b"ok")
            writer.close()
        for _, writer in idle:
            writer.close()


async def test_a_request_that_runs_is_not_cut_off_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "max_connections", lambda: 4)
    release = asyncio.Event()
    names = iter(("agent:a", "agent:a", "agent:b", "agent:b"))

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        note_admitted(scope, next(names))
        await release.wait()
        await _ok(scope, receive, send)

    async with _serving(slow) as port:
        working = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for _, writer in working:
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        refused, extra = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            async with asyncio.timeout(10):
                assert await refused.read() == b""
        extra.close()
        release.set()
        for reader, writer in working:
            async with asyncio.timeout(10):
                assert (await reader.read()).endswith(b"ok")
            writer.close()


@pytest.mark.promise("P-floods")
async def test_one_principal_with_every_connection_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "max_connections", lambda: 8)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            note_admitted(scope, "agent:greedy")
            await receive()
            await receive()
        await _ok(scope, receive, send)

    async with _serving(app) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in held:
            writer.write(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(0.05)
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            async with asyncio.timeout(10):
                assert (await reader.read()).endswith(b"ok")
            writer.close()
        for _, writer in held:
            writer.close()


@pytest.mark.promise("P-floods")
async def test_an_answer_that_nobody_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "UNREAD_SECONDS", 0.2)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        size = 32 * MIB
        piece = MIB if scope["path"] == "/pieces" else size
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        for _ in range(0, size, piece):
            await send({"type": "http.response.body", "body": b"x" * piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    closing = b"host: x\r\nconnection: close\r\n\r\n"
    async with _serving(large) as port:
        for head in (b"GET /pieces HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /whole HTTP/1.1\r\n" + closing):
            with socket.socket() as silent:
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                silent.connect(("127.0.0.1", port))
                silent.sendall(head)
                await eventually(lambda: not _connections_to(port))


def _connections_to(port: int) -> int:
    """Count the server's ends of established connections, as the kernel lists them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] in ("01", "08") for row in rows)


@pytest.mark.promise("P-floods")
async def test_empty_lines_do_not_keep_an_idle_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_SECONDS", 0.2)
    async with _serving(_ok) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.readuntil(b"ok")
        writer.write(b"\r\n")
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.promise("P-floods")
async def test_ten_thousand_requests_in_one_read_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    answered = 0

    async def count(scope: Any, receive: Any, send: Any) -> None:
        nonlocal answered
        answered += 1
        await asyncio.sleep(0)
        await _ok(scope, receive, send)

    async with _serving(count) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 10_000)
        with suppress(ConnectionError):
            async with asyncio.timeout(10):
                await reader.read()
        assert answered <= listener.MAX_PIPELINED
        writer.close()


@pytest.mark.promise("P-floods")
def test_people_and_devices_together_leave_descriptors_for_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft in (64, 256, 1024, 65_536):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert listener.max_connections() + connections_within(soft) <= soft * 3 // 4


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"],
    ids=["no request", "upgrade"],
)
async def test_malformed_requests_fill_no_log(caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
    async with _serving(_ok) as port:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(10):
                assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 ")
            writer.close()
    assert not caplog.records


UNFINISHED_BODY = b"POST /v1/tool-calls HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nx"
UNFINISHED_LOGIN = (
    b"POST /login HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n"
    b"content-type: application/x-www-form-urlencoded\r\ncontent-length: 1000\r\n\r\nx"
)
UNREAD = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 16


@pytest.mark.promise("P-floods")
@pytest.mark.parametrize(
    "sent", [b"", UNFINISHED_BODY, UNFINISHED_LOGIN, UNREAD], ids=["nothing", "half a body", "half a login", "unread"]
)
def test_a_flood_of_connections_leaves_descriptors_for_calls(tmp_path: Path, sent: bytes) -> None:
    with Place(tmp_path).daemon() as daemon, ExitStack() as opened:
        soft, hard = 256, resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        address = urlsplit(daemon.url)
        for _ in range(2 * soft):
            connection = opened.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((address.hostname, address.port))
            with suppress(ConnectionError):
                connection.sendall(sent)
        with daemon.client() as client:
            assert client.call("echo", {"text": "hi"}).result == {"text": "hi"}
