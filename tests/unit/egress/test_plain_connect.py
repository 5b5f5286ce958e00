"""What is kept of an ordinary CONNECT, and what is read anew each time."""

import pytest

from palyra.egress import plain_connect as module
from palyra.egress.machine_limits import MAX_REMEMBERED_CONNECT_BYTES, REMEMBERED_CONNECTS
from palyra.egress.plain_connect import connect_target, plain_connect
from palyra.egress.refusal import OddTarget
from palyra.egress.target import Target


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, Target]:
    kept: dict[bytes, Target] = {}
    monkeypatch.setattr(module, "_known", kept)
    return kept


def head(authority: str, *more: str) -> bytes:
    return "\r\n".join([f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", *more, "", ""]).encode()


def test_the_same_words_are_read_once(known: dict[bytes, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = head("Example.COM:443", "User-Agent: curl/8", "Proxy-Connection: Keep-Alive")
    assert plain_connect(asked) == Target("https", "example.com", 443)
    monkeypatch.delattr(module, "HttpProxyServer")
    assert plain_connect(bytes(bytearray(asked))) == Target("https", "example.com", 443)
    assert list(known) == [asked]


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n",
        head("example.com:443") + b"early",
        head("example.com"),
        head("127.1:80"),
        head("example.com:443", "Host: example.com:443"),
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n",
        head("example.com:443", "Content-Length: 3"),
        head("example.com:443").replace(b"\r\n", b"\n"),
        b"connect example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"\x16\x03\x01",
    ],
)
def test_everything_else_is_left_to_those_who_name_its_fault(known: dict[bytes, Target], first: bytes) -> None:
    assert plain_connect(first) is None
    assert known == {}


@pytest.mark.parametrize("more", ["Proxy-Authorization: Basic c2VjcmV0", "Cookie: a=b", "X-Token: secret"])
def test_words_that_may_hold_a_secret_are_not_kept(known: dict[bytes, Target], more: str) -> None:
    assert plain_connect(head("example.com:443", more)) == Target("https", "example.com", 443)
    assert known == {}


def test_the_memory_is_bounded_whatever_strangers_say(known: dict[bytes, Target]) -> None:
    for number in range(REMEMBERED_CONNECTS * 2 + 1):
        assert plain_connect(head(f"h{number}.test:8080")) is not None
        assert len(known) <= REMEMBERED_CONNECTS
    assert plain_connect(head("example.com:443", "User-Agent: " + "x" * MAX_REMEMBERED_CONNECT_BYTES)) is not None
    assert max(map(len, known)) <= MAX_REMEMBERED_CONNECT_BYTES


def test_the_scheme_is_that_of_the_port() -> None:
    assert connect_target("example.com:80").scheme == "http"
    assert connect_target("example.com:8443").scheme == "tcp"
    with pytest.raises(OddTarget):
        connect_target("example.com")
