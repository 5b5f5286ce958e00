import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.playbook import Playbook, Refused, cut_anyhow, each_byte, mutated, pieces_of, silence, transcript
from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import MAX_HEAD_BYTES, MAX_HEADERS, MAX_TARGET_BYTES
from palyra.egress.protocols.http1_head import (
    parse_request_head,
    parse_response_head,
    render_request,
    render_response,
    request_buffer,
    response_buffer,
)

REQUEST = (
    b"POST http://example.com/a?b=c HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n"
    + b"X-Name:  a\tb \r\nEmpty:\r\n\r\n"
)
RESPONSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nServer: caf\xe9\r\n\r\n"


def test_a_request_is_read() -> None:
    head = parse_request_head(REQUEST)
    assert (head.method, head.target, head.version) == ("POST", "http://example.com/a?b=c", "1.1")
    assert head.headers == (("Host", "example.com"), ("Content-Length", "5"), ("X-Name", "a\tb"), ("Empty", ""))
    assert (head.host, head.content_length, head.chunked, head.raw) == ("example.com", 5, False, REQUEST)
    assert head.values("x-name") == ("a\tb",)


def test_a_response_is_read() -> None:
    head = parse_response_head(RESPONSE)
    assert (head.status, head.reason, head.version, head.chunked) == (200, "OK", "1.1", True)
    assert head.values("server") == ("caf\xe9",)
    assert parse_response_head(b"HTTP/1.0 204\r\n\r\n").reason == ""


def test_what_is_read_is_written_the_same() -> None:
    plain = b"GET /x HTTP/1.1\r\nHost: a\r\nX: y z\r\n\r\n"
    head = parse_request_head(plain)
    assert render_request(head.method, head.target, head.version, head.headers) == plain
    answer = parse_response_head(RESPONSE)
    assert render_response(answer.status, answer.reason, answer.version, answer.headers) == RESPONSE


def with_fields(*fields: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\n" + b"".join(field + b"\r\n" for field in fields) + b"\r\n"


FAULTS = {
    b"GET / HTTP/1.1\nHost: a\n\n": "CR LF",
    b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n": "CR LF",
    b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n": "CR LF",
    b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n": "CR LF",
    b"GET /\r\nHost: a\r\n\r\n": "does not end in HTTP",
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n": "does not end in HTTP",
    b"GET / HTTP/1.2\r\nHost: a\r\n\r\n": "does not end in HTTP",
    b"GET / http/1.1\r\nHost: a\r\n\r\n": "does not end in HTTP",
    b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n": "does not end in HTTP",
    b"PRI * HTTP/2.0\r\n\r\n": "HTTP/2",
    b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n": "does not end in HTTP",
    b" GET / HTTP/1.1\r\nHost: a\r\n\r\n": "begin with a method",
    b"get / HTTP/1.1\r\nHost: a\r\n\r\n": "begin with a method",
    b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n": "target",
    b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n": "target",
    b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n": "target",
    b"GET /\\a HTTP/1.1\r\nHost: a\r\n\r\n": "target",
    b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n": "target",
    b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n": "target",
    b"GET /" + b"a" * MAX_TARGET_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n": "target",
    b"GET / HTTP/1.1\r\n\r\n": "names no host",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n": "twice",
    b"GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n": "twice",
    with_fields(b"X: y", b" folded"): "continues",
    with_fields(b"X: y", b"\tfolded"): "continues",
    with_fields(b"X : y"): "before a header's colon",
    with_fields(b"X\t: y"): "before a header's colon",
    with_fields(b": y"): "without a name",
    with_fields(b"X"): "without a colon",
    with_fields(b"X(y): z"): "header name",
    with_fields(b"X\xe9: z"): "header name",
    with_fields(b"X: a\x00b"): "control",
    with_fields(b"X: a\x0bb"): "control",
    with_fields(b"X: a\x7fb"): "control",
    with_fields(b"Content-Length: 5", b"Content-Length: 5"): "twice",
    with_fields(b"Content-Length: 5", b"content-LENGTH: 6"): "twice",
    with_fields(b"Content-Length: 5", b"Transfer-Encoding: chunked"): "both",
    with_fields(b"Transfer-Encoding: chunked", b"Content-Length: 5"): "both",
    with_fields(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"): "twice",
    with_fields(b"Content_Length: 5"): "looks like",
    with_fields(b"Transfer_Encoding: chunked"): "looks like",
    b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n": "HTTP/1.0",
    with_fields(*[b"X: y"] * MAX_HEADERS): "more than",
    with_fields(b"X: " + b"y" * MAX_HEAD_BYTES): "longer than",
}
LENGTHS = (
    b"+5", b"-5", b"5, 5", b" 5", b"5 ", b"5\t", b"\t5", b"0x5", b"5;", b"", b"05", b"5.0", b"5e1", b"\xb2",
    b"9" * 16, b"1_0",
)  # fmt: skip
CODINGS = (
    b"Chunked", b"CHUNKED", b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"chunked,", b",chunked",
    b" chunked", b"chunked ", b"chunked;q=1", b'"chunked"', b"x", b"identity", b"\x0bchunked", b"chunk", b"",
)  # fmt: skip


@pytest.mark.parametrize(("raw", "why"), FAULTS.items(), ids=range(len(FAULTS)))
def test_a_faulty_request_is_refused_however_it_comes(raw: bytes, why: str) -> None:
    Playbook(request_buffer()) >> raw << Refused(why) >> silence
    whole = transcript(request_buffer(), [raw])
    assert transcript(request_buffer(), each_byte(raw)) == whole
    for cut in range(1, min(len(raw), 200)):
        assert transcript(request_buffer(), pieces_of(raw, [cut])) == whole


@pytest.mark.parametrize("length", LENGTHS)
def test_a_length_is_a_plain_number(length: bytes) -> None:
    for head in (with_fields(b"Content-Length: " + length), b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % length):
        with pytest.raises(MalformedTraffic):
            (parse_response_head if head.startswith(b"HTTP") else parse_request_head)(head)


@pytest.mark.parametrize("coding", CODINGS)
def test_the_one_transfer_coding_is_chunked(coding: bytes) -> None:
    for head in (
        with_fields(b"Transfer-Encoding: " + coding),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %b\r\n\r\n" % coding,
    ):
        with pytest.raises(MalformedTraffic):
            (parse_response_head if head.startswith(b"HTTP") else parse_request_head)(head)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 99 Odd\r\n\r\n",
        b"HTTP/1.1 600 Odd\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 O\x00K\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
    ],
)
def test_a_faulty_response_is_refused(raw: bytes) -> None:
    said = transcript(response_buffer(), [raw])
    assert isinstance(said[-1], Refused)
    assert transcript(response_buffer(), each_byte(raw)) == said


def test_a_head_that_is_not_whole_is_none() -> None:
    for raw in (REQUEST[:-2], REQUEST + b"x", b""):
        with pytest.raises(MalformedTraffic):
            parse_request_head(raw)


def test_what_follows_the_head_is_the_rest() -> None:
    buffer = request_buffer()
    Playbook(buffer) >> REQUEST[:20] >> REQUEST[20:] + b"hello" << parse_request_head(REQUEST) >> silence
    assert buffer.rest == b"hello"


def test_nothing_is_held_beyond_the_limit() -> None:
    buffer = request_buffer()
    start = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
    exact = start + b"y" * (MAX_HEAD_BYTES - len(start) - 4) + b"\r\n\r\n"
    assert parse_request_head(exact).method == "GET"
    Playbook(buffer) >> start + b"y" * (MAX_HEAD_BYTES - len(start)) << Refused("longer than") >> silence


@given(mutated([REQUEST, *list(FAULTS)[:38]]), cut_anyhow())
def test_requests_are_read_the_same_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    assert transcript(request_buffer(), pieces_of(data, cuts))[:1] == transcript(request_buffer(), [data])


@given(mutated([RESPONSE]), cut_anyhow())
def test_responses_are_read_the_same_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    assert transcript(response_buffer(), pieces_of(data, cuts))[:1] == transcript(response_buffer(), [data])


@given(st.binary(max_size=400))
def test_any_bytes_are_a_head_no_head_yet_or_refused(data: bytes) -> None:
    assert len(transcript(request_buffer(), [data])) <= 1
    assert len(transcript(response_buffer(), [data])) <= 1


@given(mutated([REQUEST, RESPONSE]))
def test_what_is_accepted_has_one_meaning(data: bytes) -> None:
    """An accepted head is exactly its lines: none hides in another, and no framing header is there twice."""
    try:
        head = parse_request_head(data)
    except MalformedTraffic:
        return
    lines = data[:-4].split(b"\r\n")[1:]
    assert [name.encode() for name, _ in head.headers] == [line.split(b":", 1)[0] for line in lines]
    assert not {byte for byte in data if byte < 32 and byte not in b"\r\n\t"}
    assert data.count(b"\n") == data.count(b"\r") == data.count(b"\r\n")
    names = [name.lower() for name, _ in head.headers]
    assert sum(map(names.count, ("content-length", "transfer-encoding"))) <= 1 == names.count("host")
