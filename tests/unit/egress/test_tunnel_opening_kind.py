import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palyra.egress.limits import MAX_FIRST_LINE_BYTES
from palyra.egress.protocols.tunnel_opening import classify


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b"", "more"),
        (b"\x16", "more"),
        (b"\x16\x03", "tls"),
        (b"\x16\x03\x01\x02\x00\x01", "tls"),
        (b"\x16\x04", "other"),
        (b"\x80\x2e\x01\x03\x01", "tls"),
        (b"\x80\x2e\x01\x00\x02", "tls"),
        (b"\x80\x2e\x02", "other"),
        (b"\xff\xfe", "more"),
        (b"G", "more"),
        (b"GET", "more"),
        (b"GET ", "http"),
        (b"get /", "http"),
        (b"CONNECT a:1 HTTP/1.1\r\n", "http"),
        (b"INVENTED / HTTP/1.1\r\n", "http"),
        (b"INVENTED / HTTP/1.1\n", "http"),
        (b"INVENTED\t/\thttp/1.1\n", "http"),
        (b"INVENTED /", "more"),
        (b"INVENTED /\r\n", "other"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"),
        (b"GET /\r\n", "http"),
        (b"\r\nGET / HTTP/1.1", "http"),
        (b"\nX", "http"),
        (b" GET", "http"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", "other"),
        (b"SSH-2.0-OpenSSH_9.2p1", "more"),
        (b"EHLO me.example\r\n", "other"),
        (b"*1\r\n$4\r\nPING\r\n", "other"),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", "other"),
        (b"A\x00", "other"),
        (b"X" * MAX_FIRST_LINE_BYTES, "http"),
        (b"X " + b"y" * MAX_FIRST_LINE_BYTES, "http"),
    ],
)
def test_protocols_are_told_apart(first: bytes, kind: str) -> None:
    assert classify(first) == kind


@given(st.binary(max_size=40), st.binary(max_size=40))
@example(b"INVENTED / HTTP", b"/1.1\r\n")
@example(b"\x80\x2e\x01", b"\x03")
def test_an_answer_is_final(first: bytes, more: bytes) -> None:
    assert classify(first) in ("more", classify(first + more))
