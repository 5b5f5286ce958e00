import pytest

from palyra.egress.protocols.http1_head import parse_request_head
from palyra.egress.protocols.http1_request import RequestTooLarge, WebAddress, write_request

ADDRESS = WebAddress.parse("https://a.test:8443/x?y")


def test_a_request_that_the_strict_parser_reads_back() -> None:
    raw = write_request(ADDRESS, "POST", (("X-A", "1"),), b"body")
    head, _, body = raw.partition(b"\r\n\r\n")
    read = parse_request_head(head + b"\r\n\r\n")
    assert (read.method, read.target, read.host, read.content_length) == ("POST", "/x?y", "a.test:8443", 4)
    assert body == b"body" and read.values("connection") == ("close",) and read.values("x-a") == ("1",)
    assert read.values("accept-encoding") == ("gzip, deflate",)


def test_what_is_given_is_not_said_twice() -> None:
    headers = (("user_agent", "me"), ("Accept", "a/b"), ("Accept-Encoding", "identity"))
    read = parse_request_head(write_request(ADDRESS, "GET", headers, None))
    assert [name for name, _ in read.headers] == ["Host", "user_agent", "Accept", "Accept-Encoding", "Connection"]
    assert read.content_length is None


def test_a_length_is_said_for_an_empty_body() -> None:
    assert b"Content-Length: 0\r\n" in write_request(ADDRESS, "POST", (), b"")


def test_control_characters_never_reach_the_wire() -> None:
    with pytest.raises(AssertionError):
        write_request(ADDRESS, "GET", (("X", "a\r\nHost: evil"),), None)
    with pytest.raises(AssertionError):
        write_request(ADDRESS, "GET / HTTP/1.1\r\nX:", (), None)


def test_a_head_that_no_server_takes() -> None:
    with pytest.raises(RequestTooLarge):
        write_request(ADDRESS, "GET", tuple((f"X-{number}", "v" * 8000) for number in range(5)), None)
