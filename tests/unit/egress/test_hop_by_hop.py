import pytest

from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.protocols.http1_head import (
    asks_for_websocket,
    parse_request_head,
    parse_response_head,
    relay_response,
    separate,
    stays_open,
)


def test_what_is_the_connections_stays_here() -> None:
    hops = separate(
        (
            ("Connection", "Keep-Alive, X-Mine"), ("Keep-Alive", "300"), ("x-mine", "1"), ("Accept", "*/*"),
            ("Proxy-Authorization", "Basic eA=="), ("Proxy-Connection", "keep-alive"), ("TE", "trailers"),
            ("Trailer", "X"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAA"), ("Transfer-Encoding", "chunked"),
        )
    )  # fmt: skip
    assert hops.kept == (("Accept", "*/*"), ("Transfer-Encoding", "chunked"))
    assert hops.options == {"keep-alive", "x-mine"} and hops.upgrade == "h2c"


@pytest.mark.parametrize("option", ["host", "Content-Length", "transfer-encoding", "AUTHORIZATION", "cookie", "range"])
def test_a_stranger_cannot_have_a_servers_headers_removed(option: str) -> None:
    with pytest.raises(MalformedTraffic):
        separate((("Connection", f"close, {option}"),))


@pytest.mark.parametrize("value", ["", "close,", ",close", "close;", "a b", "clo\xe9"])
def test_an_option_is_a_plain_word(value: str) -> None:
    with pytest.raises(MalformedTraffic):
        separate((("Connection", value),))


def test_only_http_1_1_stays_open() -> None:
    assert stays_open("1.1", frozenset()) and not stays_open("1.1", frozenset({"close"}))
    assert not stays_open("1.0", frozenset({"keep-alive"}))


def asks(raw: bytes) -> bool:
    head = parse_request_head(raw)
    return asks_for_websocket(head, separate(head.headers))


UPGRADE = b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n"


def test_a_websocket_is_asked_for_by_both_headers() -> None:
    assert asks(b"GET / HTTP/1.1\r\nHost: a\r\n" + UPGRADE)
    assert not asks(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n")
    assert not asks(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n")
    assert not asks(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert not asks(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n" + UPGRADE)


@pytest.mark.parametrize(
    "start",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_websocket_request_is_a_plain_get(start: bytes) -> None:
    with pytest.raises(MalformedTraffic):
        asks(start + UPGRADE)


def test_an_answer_says_whether_our_connection_goes_on() -> None:
    head = parse_response_head(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nA: b\r\n\r\n")
    assert relay_response(head, keep_alive=True) == b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"
    assert relay_response(head, keep_alive=False) == b"HTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\n"
    interim = parse_response_head(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert relay_response(interim, keep_alive=False) == b"HTTP/1.1 100 Continue\r\n\r\n"
    switch = parse_response_head(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
    sent = relay_response(switch, keep_alive=False)
    assert sent == b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
