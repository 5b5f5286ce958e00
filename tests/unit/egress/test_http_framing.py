import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.playbook import cut_anyhow, each_byte, mutated, pieces_of
from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES
from palyra.egress.protocols.http1_body import (
    TRANSITIONS,
    BodyEvent,
    BodyKind,
    BodyReader,
    BodyState,
    Decoded,
    Progress,
    body_of_request,
    body_of_response,
)
from palyra.egress.protocols.http1_head import parse_request_head, parse_response_head
from palyra.egress.protocols.state_machine import MachineMisused, step

CHUNKED = b"5\r\nhello\r\n06;a=b;c\r\n world\r\n0\r\n\r\n"
WITH_TRAILERS = b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n"


def chunked(*, trailers: bool = False) -> BodyReader:
    return BodyReader(BodyKind.CHUNKED, trailers=trailers)


def read(reader: BodyReader, pieces: list[bytes]) -> tuple[bytes, bytes, bool] | str:
    """What the body says, what belongs to it, and whether it ended; or the refusal."""
    payload, consumed = b"", b""
    for piece in pieces:
        try:
            decoded = reader.decode(piece)
        except MalformedTraffic as refused:
            return refused.message
        payload += decoded.payload
        consumed += piece[: decoded.consumed]
        if decoded.finished:
            break
    return payload, consumed, reader.finished


@pytest.mark.parametrize(("state", "event"), list(itertools.product(BodyState, BodyEvent)))
def test_every_pair_is_handled_or_refused(state: BodyState, event: BodyEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert step(TRANSITIONS, state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(MachineMisused):
            step(TRANSITIONS, state, event)


@pytest.mark.parametrize("state", list(BodyState))
def test_every_state_takes_bytes_and_the_end(state: BodyState) -> None:
    for data in (b"", b"5\r\n", b"\r\n", b"x", b"\n", b"0" * 9000):
        reader = chunked(trailers=True)
        reader.state = state
        try:
            assert 0 <= reader.receive(data).consumed <= len(data)
        except MalformedTraffic:
            assert reader.state is BodyState.REFUSED
    reader = chunked()
    reader.state = state
    if state in (BodyState.FINISHED, BodyState.UNTIL_CLOSE):
        reader.closed()
        assert reader.finished
    else:
        with pytest.raises(MalformedTraffic):
            reader.closed()


def test_a_counted_body_ends_at_its_length() -> None:
    reader = BodyReader(BodyKind.COUNTED, 5)
    assert reader.receive(b"hel") == Progress(3, False)
    assert reader.receive(b"loGET /") == Progress(2, True)
    assert reader.receive(b"more") == Progress(0, True)


def test_a_chunked_body_ends_at_its_last_chunk() -> None:
    assert chunked().receive(CHUNKED + b"GET /") == Progress(len(CHUNKED), True)
    assert chunked().decode(CHUNKED + b"GET /") == Decoded(b"hello world", len(CHUNKED), True)
    assert read(chunked(trailers=True), [WITH_TRAILERS]) == (b"hello", WITH_TRAILERS, True)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reader = BodyReader(BodyKind.UNTIL_CLOSE)
    assert reader.receive(b"anything") == Progress(8, False)
    reader.closed()
    assert reader.finished


def test_no_body_takes_no_bytes() -> None:
    assert BodyReader(BodyKind.NONE).receive(b"GET /") == Progress(0, True)
    assert BodyReader(BodyKind.COUNTED, 0).receive(b"GET /") == Progress(0, True)


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\rX0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5_\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b"g\r\nhello\r\n0\r\n\r\n",
        b"5;\r\nhello\r\n0\r\n\r\n",
        b"5; a=b\r\nhello\r\n0\r\n\r\n",
        b'5;a="b"\r\nhello\r\n0\r\n\r\n',
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5\r\r\nhello\r\n0\r\n\r\n",
        b"5;" + b"a" * MAX_CHUNK_LINE_BYTES + b"\r\nhello\r\n0\r\n\r\n",
        b"80000000\r\n",
        b"ffffffff\r\n",
        b"100000005\r\nhello\r\n0\r\n\r\n",
        b"0000000000000005\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffb\r\n",
        b"\xb2\r\n",
        b"0\r\nX: y\r\n\r\n",
        b"0\r\n\n",
        b"0\r\nGET / HTTP/1.1\r\n\r\n",
        b"0\n\n",
    ],
)
def test_a_faulty_chunk_is_refused_however_it_comes(body: bytes) -> None:
    refusal = read(chunked(), [body])
    assert isinstance(refusal, str)
    assert read(chunked(), each_byte(body)) == refusal
    for cut in range(1, len(body)):
        assert read(chunked(), pieces_of(body, [cut])) == refusal


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Host: b", b"content_length: 5", b"Set-Cookie: a=b",
        b" folded", b"X : y", b": y", b"X: \x00", b"X", b"X: " + b"y" * MAX_TRAILER_BYTES,
    ],
)  # fmt: skip
def test_a_trailer_says_nothing_that_only_a_head_may(line: bytes) -> None:
    assert isinstance(read(chunked(trailers=True), [b"0\r\n" + line + b"\r\n\r\n"]), str)


def test_trailers_are_bounded_together() -> None:
    flood = b"0\r\n" + b"X: yyyyyyyyyy\r\n" * MAX_TRAILER_BYTES
    assert read(chunked(trailers=True), [flood]) == "a line of a chunked body that is too long"


def test_a_body_cut_short_is_told() -> None:
    counted = BodyReader(BodyKind.COUNTED, 5)
    counted.receive(b"hell")
    with pytest.raises(MalformedTraffic):
        counted.closed()
    for cut in range(len(CHUNKED)):
        reader = chunked()
        reader.receive(CHUNKED[:cut])
        with pytest.raises(MalformedTraffic):
            reader.closed()


def request(*fields: bytes) -> BodyReader:
    return body_of_request(parse_request_head(b"POST / HTTP/1.1\r\nHost: a\r\n" + b"".join(fields) + b"\r\n"))


def test_a_request_has_the_body_it_announces() -> None:
    assert request().kind is BodyKind.NONE
    assert request(b"Content-Length: 0\r\n").finished
    assert request(b"Content-Length: 7\r\n").kind is BodyKind.COUNTED
    assert request(b"Transfer-Encoding: chunked\r\n").kind is BodyKind.CHUNKED


def response(status: int, method: str = "GET", field: bytes = b"") -> BodyReader:
    return body_of_response(parse_response_head(b"HTTP/1.1 %d X\r\n%b\r\n" % (status, field)), method)


LENGTH = b"Content-Length: 7\r\n"
CODING = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("status", "method", "field", "kind"),
    [
        (200, "GET", b"", BodyKind.UNTIL_CLOSE),
        (200, "GET", LENGTH, BodyKind.COUNTED),
        (200, "GET", CODING, BodyKind.CHUNKED),
        (200, "HEAD", LENGTH, BodyKind.NONE),
        (200, "HEAD", CODING, BodyKind.NONE),
        (304, "GET", LENGTH, BodyKind.NONE),
        (304, "GET", CODING, BodyKind.NONE),
        (204, "GET", b"", BodyKind.NONE),
        (204, "GET", b"Content-Length: 0\r\n", BodyKind.NONE),
        (100, "POST", b"", BodyKind.NONE),
        (101, "GET", b"", BodyKind.NONE),
        (200, "CONNECT", LENGTH, BodyKind.NONE),
        (403, "CONNECT", LENGTH, BodyKind.COUNTED),
    ],
)
def test_a_response_has_the_body_its_kind_allows(status: int, method: str, field: bytes, kind: BodyKind) -> None:
    assert response(status, method, field).kind is kind


@pytest.mark.parametrize(("status", "field"), list(itertools.product((100, 101, 103, 204), (LENGTH, CODING))))
def test_an_answer_that_has_no_body_announces_none(status: int, field: bytes) -> None:
    with pytest.raises(MalformedTraffic):
        response(status, "GET", field)


@given(mutated([CHUNKED, WITH_TRAILERS]), cut_anyhow(), st.booleans())
def test_chunks_are_read_the_same_in_any_pieces(data: bytes, cuts: list[int], trailers: bool) -> None:
    assert read(chunked(trailers=trailers), pieces_of(data, cuts)) == read(chunked(trailers=trailers), [data])


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), cut_anyhow())
def test_what_is_chunked_comes_out_whole(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    assert read(chunked(), pieces_of(body + b"rest", cuts)) == (b"".join(parts), body, True)
    counter = chunked()
    assert counter.receive(body + b"rest") == Progress(len(body), True)


@given(mutated([CHUNKED, WITH_TRAILERS]), st.booleans())
def test_what_goes_on_can_always_become_a_sound_body(data: bytes, trailers: bool) -> None:
    """Byte by byte, what was let through before a refusal has a sound end: the refusal came in time."""
    reader, passed = chunked(trailers=trailers), b""
    for byte in each_byte(data):
        try:
            if reader.receive(byte).finished:
                break
        except MalformedTraffic:
            break
        passed += byte
    else:
        return
    ends = (
        b"", b"0\r\n\r\n", b"\r\n0\r\n\r\n", b"\n0\r\n\r\n", b"\r\n\r\n", b"\n\r\n", b"\n", b"1\r\nx\r\n0\r\n\r\n",
        b"a\r\n\r\n", b":\r\n\r\n",
    )  # fmt: skip
    for filler in (b"x" * count for count in range(260)):
        for end in ends:
            again = chunked(trailers=trailers)
            try:
                if again.receive(passed + filler + end).finished or again.state is BodyState.CHUNK_DATA:
                    return
            except MalformedTraffic:
                continue
    raise AssertionError(passed)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_body_or_refused(data: bytes) -> None:
    result = read(chunked(trailers=True), [data])
    assert isinstance(result, str) or len(result[1]) <= len(data)
