"""The transport, in a loop and in a thread, against a server that follows a script of raw bytes."""

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fakes.loopback import ScriptedServer, read_request, respond
from palyra.client.address import ServerAddress
from palyra.client.blocking import LoopThread
from palyra.client.protocol import (
    BadAnswer,
    ClientLimits,
    ClientTimeout,
    ConnectFailed,
    ConnectionLost,
    Request,
    Response,
    ResponseTooLarge,
    get,
    send_json,
)
from palyra.client.transport import AsyncTransport

POST = send_json("POST", "/v1/tool-calls", {"tool": "echo"})
GET = get("/v1/tools")


def once(body: bytes) -> Callable[[socket.socket], None]:
    """Answers one request and closes, without having said that it would."""

    def script(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(respond(body))

    return script


def twice_then_silent_death(connection: socket.socket) -> None:
    """Answers once, takes the next request, and dies without a byte: what a restarting server looks like."""
    read_request(connection)
    connection.sendall(respond(b"first"))
    read_request(connection)


def dies_in_the_middle(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(respond(b"first"))
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")


class Wire:
    """Sends requests one after another over one transport of either kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def send(self, port: int, *requests: Request, scheme: str = "http", **options: Any) -> list[Response]:
        address = ServerAddress.parse(f"{scheme}://127.0.0.1:{port}")
        options = {"timeout": 20.0, "limits": ClientLimits(), **options}
        if self.kind == "blocking":
            loop, transport = LoopThread(), AsyncTransport(address, **options)
            try:
                return [loop.run(transport.exchange(request)) for request in requests]
            finally:
                loop.close(transport.close())
        return asyncio.run(self._send_async(address, options, requests))

    async def _send_async(
        self, address: ServerAddress, options: dict[str, Any], requests: tuple[Request, ...]
    ) -> list[Response]:
        transport = AsyncTransport(address, **options)
        try:
            return [await transport.exchange(request) for request in requests]
        finally:
            await transport.close()


@pytest.fixture(params=["blocking", "aio"])
def wire(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param)


def test_a_connection_is_kept_for_the_next_request(wire: Wire) -> None:
    def serve(connection: socket.socket) -> None:
        for _ in range(3):
            read_request(connection)
            connection.sendall(respond(b"ok"))

    with ScriptedServer([serve]) as server:
        assert [answer.body for answer in wire.send(server.port, GET, POST, GET)] == [b"ok"] * 3
        assert server.connections == 1


def test_a_get_survives_a_kept_connection_that_died(wire: Wire) -> None:
    with ScriptedServer([twice_then_silent_death, once(b"again")]) as server:
        assert [answer.body for answer in wire.send(server.port, GET, GET)] == [b"first", b"again"]


def test_a_call_is_never_sent_twice(wire: Wire) -> None:
    with ScriptedServer([twice_then_silent_death, once(b"again")]) as server:
        with pytest.raises(ConnectionLost):
            wire.send(server.port, GET, POST)
        assert server.connections == 1


def test_half_an_answer_is_not_asked_for_again(wire: Wire) -> None:
    with ScriptedServer([dies_in_the_middle, once(b"again")]) as server:
        with pytest.raises(ConnectionLost):
            wire.send(server.port, GET, GET)
        assert server.connections == 1


def test_a_fresh_connection_that_dies_is_an_error_even_for_a_get(wire: Wire) -> None:
    with ScriptedServer([lambda connection: None, once(b"again")]) as server:
        with pytest.raises(ConnectionLost):
            wire.send(server.port, GET)
        assert server.connections == 1


def test_nobody_there(wire: Wire) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectFailed):
            wire.send(unused.getsockname()[1], GET)


def test_a_server_that_drips_bytes_does_not_outlast_the_deadline(wire: Wire) -> None:
    def drip(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        connection.settimeout(0.02)
        while True:
            connection.sendall(b"x: y\r\n")
            try:
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue

    with ScriptedServer([drip]) as server, pytest.raises(ClientTimeout):
        wire.send(server.port, GET, timeout=0.3, limits=ClientLimits(max_header_bytes=10**6))


def test_an_early_refusal_of_a_large_body_is_heard(wire: Wire) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(respond(b"too large", head=b"HTTP/1.1 413 Too Large\r\nconnection: close\r\n"))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    large = send_json("POST", "/v1/x", {"text": "x" * 5_000_000})
    with ScriptedServer([refuse]) as server:
        (answer,) = wire.send(server.port, large)
    assert (answer.status, answer.body) == (413, b"too large")


def test_tls_is_verified(wire: Wire, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with ScriptedServer([once(b"secure")], context) as server:
        (answer,) = wire.send(server.port, GET, scheme="https", ssl_context=trusting)
        assert answer.body == b"secure"
    with ScriptedServer([once(b"secure")], context) as server, pytest.raises(ConnectFailed):
        wire.send(server.port, GET, scheme="https")


def self_signed(directory: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (directory / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return directory / "cert.pem", directory / "key.pem"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ConnectionLost),
        (b"HTTP/1.1 200 OK\r\n", ConnectionLost),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", ConnectionLost),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha", ConnectionLost),
        (b"SSH-2.0-OpenSSH\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\ncontent-length: 0\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, BadAnswer),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\ncontent-length: 0\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n" + b"y" * 9_000_000, ResponseTooLarge),
    ],
)
def test_what_is_no_whole_answer_of_ours_is_named(wire: Wire, answer: bytes, error: type[Exception]) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        with contextlib.suppress(OSError):
            connection.sendall(answer)

    with ScriptedServer([serve]) as server, pytest.raises(error):
        wire.send(server.port, POST)


def test_informational_answers_are_passed_over(wire: Wire) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" + respond(b"hi"))

    with ScriptedServer([serve]) as server:
        assert [answer.body for answer in wire.send(server.port, GET)] == [b"hi"]


def test_nothing_of_the_environment_and_no_cookie_goes_along(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    heads: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        for _ in range(2):
            heads.append(read_request(connection))
            connection.sendall(respond(b"ok", head=b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\n"))

    with ScriptedServer([serve]) as server:
        wire.send(server.port, GET, GET)
    assert len(heads) == 2
    for head in heads:
        assert b"cookie" not in head.lower() and b"accept-encoding: identity\r\n" in head.lower()


def test_an_address_with_a_prefix_is_kept_before_every_path() -> None:
    heads: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        heads.append(read_request(connection))
        connection.sendall(respond(b"ok"))

    with ScriptedServer([serve]) as server:
        address = ServerAddress.parse(f"http://127.0.0.1:{server.port}/base")
        loop, transport = LoopThread(), AsyncTransport(address, timeout=20, limits=ClientLimits())
        loop.run(transport.exchange(send_json("POST", "/v1/x", {"a": 1})))
        loop.close(transport.close())
        assert heads[0].startswith(b"POST /base/v1/x HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % server.port)
        assert heads[0].endswith(b'\r\n\r\n{"a":1}')
