"""Framing of HTTP/1 bodies, read strictly: the bytes are passed on unchanged, and the next program must agree.

Chunk sizes are plain hexadecimal digits and line ends exact. Requests have no trailers: a trailer could carry what was
stripped from the head.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from palyra.egress.domain.refusal import MalformedTraffic
from palyra.egress.limits import MAX_CHUNK_BYTES, MAX_CHUNK_LINE_BYTES, MAX_CHUNK_SIZE_DIGITS, MAX_TRAILER_BYTES
from palyra.egress.protocols.http1_head import TOKEN, RequestHead, ResponseHead
from palyra.egress.protocols.state_machine import MachineEvent, MachineState, step


class BodyState(MachineState):
    COUNTED = "counted"
    CHUNK_SIZE = "chunk_size"
    CHUNK_DATA = "chunk_data"
    CHUNK_END = "chunk_end"
    TRAILERS = "trailers"
    UNTIL_CLOSE = "until_close"
    FINISHED = "finished"
    REFUSED = "refused"


class BodyEvent(MachineEvent):
    SIZE = "size"
    LAST_SIZE = "last_size"
    DATA_WHOLE = "data_whole"
    LINE_END = "line_end"
    EMPTY_LINE = "empty_line"
    CLOSED = "closed"
    MALFORMED = "malformed"


_S = BodyState
_E = BodyEvent
TRANSITIONS: Final[dict[tuple[BodyState, BodyEvent], BodyState]] = {
    (_S.COUNTED, _E.DATA_WHOLE): _S.FINISHED,
    (_S.COUNTED, _E.CLOSED): _S.REFUSED,
    (_S.CHUNK_SIZE, _E.SIZE): _S.CHUNK_DATA,
    (_S.CHUNK_SIZE, _E.LAST_SIZE): _S.TRAILERS,
    (_S.CHUNK_SIZE, _E.MALFORMED): _S.REFUSED,
    (_S.CHUNK_SIZE, _E.CLOSED): _S.REFUSED,
    (_S.CHUNK_DATA, _E.DATA_WHOLE): _S.CHUNK_END,
    (_S.CHUNK_DATA, _E.CLOSED): _S.REFUSED,
    (_S.CHUNK_END, _E.LINE_END): _S.CHUNK_SIZE,
    (_S.CHUNK_END, _E.MALFORMED): _S.REFUSED,
    (_S.CHUNK_END, _E.CLOSED): _S.REFUSED,
    (_S.TRAILERS, _E.EMPTY_LINE): _S.FINISHED,
    (_S.TRAILERS, _E.MALFORMED): _S.REFUSED,
    (_S.TRAILERS, _E.CLOSED): _S.REFUSED,
    (_S.UNTIL_CLOSE, _E.CLOSED): _S.FINISHED,
    (_S.FINISHED, _E.CLOSED): _S.FINISHED,
    (_S.REFUSED, _E.CLOSED): _S.REFUSED,
}
_LINES: Final = frozenset({_S.CHUNK_SIZE, _S.CHUNK_END, _S.TRAILERS})

# Each beginning of a line must match, because bytes are passed on as they come: the next program never gets the start
# of a refused line.
_EXTENSIONS: Final = rb"(?:;%b+(?:=%b+)?)*" % (TOKEN, TOKEN)
_LINE_STARTS: Final = {
    _S.CHUNK_SIZE: re.compile(
        rb"[0-9A-Fa-f]{1,%d}%b(?:;%b*|;%b+=|(?<!;)(?<!=)\r\n?)?" % (MAX_CHUNK_SIZE_DIGITS, _EXTENSIONS, TOKEN, TOKEN)
    ).fullmatch,
    _S.CHUNK_END: re.compile(rb"\r\n?").fullmatch,
    _S.TRAILERS: re.compile(rb"(?:%b+(?::[\t\x20-\x7e\x80-\xff]*(?:\r\n?)?)?|\r\n?)" % TOKEN).fullmatch,
}
_FAULTS: Final = {
    _S.CHUNK_SIZE: "a chunk size that is not a plain hexadecimal number on a line of its own",
    _S.CHUNK_END: "a chunk that is longer than its size",
    _S.TRAILERS: "a trailer that is not a header line",
}
_plain_size: Final = re.compile(rb"([0-9A-Fa-f]{1,%d}+)\r\n" % (MAX_CHUNK_SIZE_DIGITS - 1)).match
# A trailer must not say what only a head may: how long, for whom, by whose right.
_NEVER_TRAILERS: Final = frozenset(
    {
        b"content-length", b"transfer-encoding", b"host", b"connection", b"upgrade", b"trailer", b"te", b"location",
        b"content-encoding", b"content-type", b"content-range", b"authorization", b"cookie", b"set-cookie",
    }
)  # fmt: skip


class BodyKind(StrEnum):
    NONE = "none"
    COUNTED = "counted"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until_close"


_STARTS: Final = {
    BodyKind.NONE: _S.FINISHED,
    BodyKind.COUNTED: _S.COUNTED,
    BodyKind.CHUNKED: _S.CHUNK_SIZE,
    BodyKind.UNTIL_CLOSE: _S.UNTIL_CLOSE,
}


class Progress(NamedTuple):
    consumed: int
    finished: bool


class Decoded(NamedTuple):
    payload: bytes
    consumed: int
    finished: bool


class BodyReader:
    """Reader that finds the end of one body in the bytes of a connection.

    ``receive`` only counts, for a relay that passes the bytes on; ``decode`` also returns the payload. Use one of the
    two for the whole body. Bytes beyond ``consumed`` belong to the next message.
    """

    def __init__(self, kind: BodyKind, length: int = 0, *, trailers: bool = False) -> None:
        self.kind = kind
        self.state = _STARTS[kind] if kind is not BodyKind.COUNTED or length else BodyState.FINISHED
        self._left = length
        self._trailers = trailers
        self._trailer_bytes = 0
        self._line = bytearray()

    @property
    def finished(self) -> bool:
        return self.state is BodyState.FINISHED

    def receive(self, data: bytes) -> Progress:
        if self.state is BodyState.COUNTED:
            consumed = self._count(len(data))
        elif self.state is BodyState.UNTIL_CLOSE:
            consumed = len(data)
        else:
            consumed = self._chunks(data, None)
        return Progress(consumed, self.state is BodyState.FINISHED)

    def decode(self, data: bytes) -> Decoded:
        if self.kind is not BodyKind.CHUNKED:
            consumed, finished = self.receive(data)
            return Decoded(data[:consumed], consumed, finished)
        payload: list[bytes] = []
        consumed = self._chunks(data, payload)
        return Decoded(b"".join(payload), consumed, self.state is BodyState.FINISHED)

    def closed(self) -> None:
        """End the body with the peer's stream. Raise ``MalformedTraffic`` if that cuts it short."""
        self.state = step(TRANSITIONS, self.state, BodyEvent.CLOSED)
        if self.state is BodyState.REFUSED:
            raise MalformedTraffic("a body that ends too early")

    def _count(self, available: int) -> int:
        taken = min(available, self._left)
        self._left -= taken
        if not self._left:
            self.state = step(TRANSITIONS, self.state, BodyEvent.DATA_WHOLE)
        return taken

    def _chunks(self, data: bytes, payload: list[bytes] | None) -> int:
        at, size = 0, len(data)
        while at < size:
            if self.state is BodyState.CHUNK_DATA:
                taken = self._count(size - at)
                if payload is not None:
                    payload.append(data[at : at + taken])
                at += taken
            elif self.state in _LINES:
                at = self._whole_chunks(data, at, payload)
                if at < size:
                    at = self._take_line(data, at)
            else:
                break
        return at

    def _whole_chunks(self, data: bytes, at: int, payload: list[bytes] | None) -> int:
        """Skip complete plain chunks without the table: a flood of tiny ones must not cost much."""
        if self.state is not BodyState.CHUNK_SIZE or self._line:
            return at
        while (found := _plain_size(data, at)) is not None:
            start = found.end()
            end = start + int(found.group(1), 16)
            if end == start or data[end : end + 2] != b"\r\n":
                break
            if payload is not None:
                payload.append(data[start:end])
            at = end + 2
        return at

    def _take_line(self, data: bytes, at: int) -> int:
        """Read one line, or the part of it that has come."""
        end = data.find(b"\n", at) + 1 or len(data)
        line = data[at:end]
        if self._line:
            self._line += line
            line = bytes(self._line)
        if self.state is BodyState.TRAILERS and not self._trailers and line[:1] != b"\r":
            raise self._fail("a request with trailers")
        limit = MAX_TRAILER_BYTES - self._trailer_bytes if self.state is BodyState.TRAILERS else MAX_CHUNK_LINE_BYTES
        if _LINE_STARTS[self.state](line[:limit]) is None:
            raise self._fail(_FAULTS[self.state])
        if len(line) > limit:
            raise self._fail("a line of a chunked body that is too long")
        if line.endswith(b"\n"):
            self._line.clear()
            self._read_line(line)
        elif not self._line:
            self._line += line
        return end

    def _read_line(self, line: bytes) -> None:
        if self.state is BodyState.CHUNK_END:
            event = BodyEvent.LINE_END
        elif self.state is BodyState.CHUNK_SIZE:
            event = self._read_size(line)
        elif line == b"\r\n":
            event = BodyEvent.EMPTY_LINE
        else:
            self._read_trailer(line)
            return
        self.state = step(TRANSITIONS, self.state, event)

    def _read_size(self, line: bytes) -> BodyEvent:
        self._left = int(line.rstrip().partition(b";")[0], 16)
        if self._left > MAX_CHUNK_BYTES:
            raise self._fail(f"a chunk of more than {MAX_CHUNK_BYTES} bytes")
        return BodyEvent.SIZE if self._left else BodyEvent.LAST_SIZE

    def _read_trailer(self, line: bytes) -> None:
        if line.partition(b":")[0].lower().replace(b"_", b"-") in _NEVER_TRAILERS:
            raise self._fail("a trailer that only a head may have")
        self._trailer_bytes += len(line)

    def _fail(self, why: str) -> MalformedTraffic:
        self.state = step(TRANSITIONS, self.state, BodyEvent.MALFORMED)
        return MalformedTraffic(why)


def body_of_request(head: RequestHead) -> BodyReader:
    """Return the reader of a request's body. A request without framing headers has no body."""
    if head.chunked:
        return BodyReader(BodyKind.CHUNKED)
    if head.content_length:
        return BodyReader(BodyKind.COUNTED, head.content_length)
    return BodyReader(BodyKind.NONE)


def body_of_response(head: ResponseHead, request_method: str) -> BodyReader:
    """Return the reader of an answer's body. Without framing headers it lasts until the connection ends.

    Some statuses have no body: raise ``MalformedTraffic`` for one of them whose head announces a body.
    """
    if head.status < 200 or head.status == 204:
        if head.chunked or head.content_length:
            raise MalformedTraffic(f"an answer {head.status} that announces a body")
        return BodyReader(BodyKind.NONE)
    tunnel = request_method == "CONNECT" and head.status < 300
    if tunnel or head.status == 304 or request_method == "HEAD":
        return BodyReader(BodyKind.NONE)
    if head.chunked:
        return BodyReader(BodyKind.CHUNKED, trailers=True)
    if head.content_length is None:
        return BodyReader(BodyKind.UNTIL_CLOSE)
    return BodyReader(BodyKind.COUNTED, head.content_length)
