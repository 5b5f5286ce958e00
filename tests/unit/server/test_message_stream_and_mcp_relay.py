"""Lines in and out. The relay and the stream against a real daemon are in tests/e2e/test_mcp_clients.py."""

import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.loopback import ScriptedServer, respond
from palyra.client.mcp_relay import RelayRefused, StdioRelay
from palyra.client.protocol import ConnectFailed, ConnectionLost
from palyra.executors.mcp_upstream.messages import LineSplitter
from palyra.secret import Secret
from palyra.server.mcp.server import INVALID_REQUEST, PARSE_ERROR, refusal_of


@given(st.lists(st.binary(min_size=1, max_size=12).filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_lines_are_the_same_however_they_arrive(lines: list[bytes], size: int) -> None:
    sent = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    came: list[bytes | None] = []
    for start in range(0, len(sent), size):
        came += splitter.feed(sent[start : start + size])
    assert came == [line for line in lines if line.strip()]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_line_that_is_too_long_is_skipped_to_its_end(size: int) -> None:
    splitter = LineSplitter(4)
    sent = b"ok\n" + b"x" * 30 + b"\nfine\n"
    came: list[bytes | None] = []
    for start in range(0, len(sent), size):
        came += splitter.feed(sent[start : start + size])
    assert came == [b"ok", None, b"fine"]


def test_what_is_no_message_gets_json_rpcs_own_error() -> None:
    assert refusal_of(b"{nonsense")["error"]["code"] == PARSE_ERROR
    assert refusal_of(b"[" * 100_000)["error"]["code"] == PARSE_ERROR
    assert refusal_of(b"[]")["error"]["code"] == INVALID_REQUEST
    assert refusal_of(b'{"id": 7}')["id"] == 7
    assert refusal_of(b'{"id": true}')["id"] is None
    assert "bytes" in refusal_of(None)["error"]["message"]


def relayed(answer: bytes, sent: bytes = b"") -> bytes:
    """What the client reads from a relay whose daemon answers so."""
    reader, writer = os.pipe()
    out_reader, out_writer = os.pipe()
    os.write(writer, sent)
    os.close(writer)

    def script(connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        assert b"palyra-principal: agent:x" in data.lower()
        connection.sendall(answer)

    try:
        with ScriptedServer([script]) as server:
            url = f"http://127.0.0.1:{server.port}"
            StdioRelay(url, Secret("t"), "agent:x", source=reader, target=out_writer).run()
    finally:
        os.close(reader)
        os.close(out_writer)
    with open(out_reader, "rb") as came:
        return came.read()


def test_a_refusal_of_the_daemon_is_told_with_its_code() -> None:
    body = json.dumps({"ok": False, "error": {"code": "token.rejected", "message": "no", "hint": "h"}}).encode()
    with pytest.raises(RelayRefused, match=r"token\.rejected"):
        relayed(respond(body, head=b"HTTP/1.1 401 Unauthorized\r\n"))
    with pytest.raises(RelayRefused, match="502"):
        relayed(respond(b"<html>", head=b"HTTP/1.1 502 Bad Gateway\r\n"))


def test_what_the_daemon_says_comes_out_as_it_is() -> None:
    assert relayed(respond(b'{"a":1}\n')) == b'{"a":1}\n'


def test_a_daemon_that_is_gone_is_said_to_be() -> None:
    with pytest.raises(ConnectFailed):
        StdioRelay("http://127.0.0.1:9", Secret("t"), None).run()
    with pytest.raises(ConnectionLost):
        relayed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab")
