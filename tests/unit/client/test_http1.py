import pytest

from palyra.client.following import Head
from palyra.client.http1 import Body, End, Http1Connection, NeedData, ResponseBuilder
from palyra.client.protocol import BadAnswer, ClientLimits, ConnectionLost, ResponseTooLarge, get, send_json

LIMITS = ClientLimits(max_header_bytes=1000, max_response_bytes=10)


def connection(prefix: str = "") -> Http1Connection:
    return Http1Connection("host:1", prefix, LIMITS)


def test_a_request_is_written_whole() -> None:
    data = connection("/base").start(send_json("POST", "/v1/x", {"a": 1}))
    assert data.startswith(b"POST /base/v1/x HTTP/1.1\r\nhost: host:1\r\n")
    assert data.endswith(b'\r\n\r\n{"a":1}')


def test_a_response_comes_in_parts_and_the_connection_serves_again() -> None:
    http = connection()
    for _ in range(2):
        http.start(get("/"))
        assert not http.heard and not http.reusable
        assert http.next_part() == NeedData()
        http.receive(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        assert http.heard
        assert http.next_part() == Head(200, (("content-length", "2"),))
        assert http.next_part() == Body(b"hi")
        assert http.next_part() == End()
        assert http.reusable


def test_a_connection_that_says_close_is_not_reused() -> None:
    http = connection()
    http.start(get("/"))
    http.receive(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    assert isinstance(http.next_part(), Head)
    assert http.next_part() == End()
    assert not http.reusable


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
def test_an_end_in_the_middle_is_a_lost_connection(start: bytes) -> None:
    http = connection()
    http.start(get("/"))
    if start:
        http.receive(start)
    http.receive(b"")
    with pytest.raises(ConnectionLost):
        while not isinstance(http.next_part(), End):
            pass


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2000,
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_what_is_not_our_http_is_a_bad_answer(answer: bytes) -> None:
    http = connection()
    http.start(get("/"))
    http.receive(answer)
    with pytest.raises(BadAnswer):
        http.next_part()


def test_the_builder_has_a_limit_and_needs_a_head() -> None:
    builder = ResponseBuilder(LIMITS)
    with pytest.raises(ConnectionLost):
        builder.finish()
    builder.add(Head(200, ()))
    builder.add(Body(b"12345"))
    builder.add(Body(b"67890"))
    assert builder.finish().body == b"1234567890"
    with pytest.raises(ResponseTooLarge):
        builder.add(Body(b"1"))
