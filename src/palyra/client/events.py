"""Following a call's events to their end, over as many connections as that takes.

A script of steps, without I/O: a client performs each step and sends back what came of it, or throws in what went
wrong. A broken or silent connection is opened again after the last whole event; a clean end is the end.
"""

import re
from collections.abc import Generator
from typing import Any, TypeAlias

import msgspec

from palyra.client.protocol import (
    BadAnswer,
    BadRequestValue,
    ClientLimits,
    ClientTimeout,
    ConnectFailed,
    ConnectionLost,
    Headers,
    Request,
    Response,
    ResponseTooLarge,
    header_of,
    path_of,
    read_answer,
)
from palyra.client.views import CallEvent

_LINE_END = re.compile(rb"[\r\n]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DEFAULT_KIND = "message"


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """``id`` is the last id the stream gave, which may be an earlier event's."""

    id: str
    kind: str
    data: str


class EventParser:
    """One per connection; ``last_event_id`` is what to resume after, ``retry_ms`` what the server asked for."""

    def __init__(self, max_event_bytes: int, last_event_id: str = "") -> None:
        self.last_event_id = last_event_id
        self.retry_ms: int | None = None
        self._max = max_event_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._skip_newline = False
        self._at_start = True
        self._kind = ""
        self._data: list[str] = []
        self._data_bytes = 0
        self._pending_id = last_event_id

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        self._buffer += chunk
        events = []
        while (line := self._next_line()) is not None:
            event = self._take(line)
            if event is not None:
                events.append(event)
        if len(self._buffer) + self._data_bytes > self._max:
            raise ResponseTooLarge(f"one event is larger than {self._max} bytes", limit=self._max)
        return events

    def _next_line(self) -> bytes | None:
        # A carriage return ends a line at once; the newline that may follow in the next chunk belongs to it.
        if self._skip_newline and self._buffer:
            self._skip_newline = False
            if self._buffer[0] == ord("\n"):
                del self._buffer[0]
        if self._at_start and len(self._buffer) >= len(_BYTE_ORDER_MARK):
            self._at_start = False
            if self._buffer.startswith(_BYTE_ORDER_MARK):
                del self._buffer[: len(_BYTE_ORDER_MARK)]
        end = _LINE_END.search(self._buffer, self._scanned)
        if end is None:
            self._scanned = len(self._buffer)
            return None
        line = bytes(self._buffer[: end.start()])
        self._skip_newline = self._buffer[end.start()] == ord("\r")
        del self._buffer[: end.end()]
        self._scanned = 0
        self._at_start = False
        return line

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if not name:
            return None
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        match name:
            case b"event":
                self._kind = text
            case b"data":
                self._data_bytes += len(value) + 1
                self._data.append(text)
            case b"id" if "\0" not in text:
                self._pending_id = text
            case b"retry" if value.strip().isdigit():
                self.retry_ms = int(value.strip()[:9])
            case _:
                pass
        if self._data_bytes > self._max:
            raise ResponseTooLarge(f"one event is larger than {self._max} bytes", limit=self._max)
        return None

    def _dispatch(self) -> ServerEvent | None:
        # The id counts only once its event is whole: resuming after half an event would lose it.
        self.last_event_id = self._pending_id
        kind, data = self._kind or _DEFAULT_KIND, self._data
        self._kind, self._data, self._data_bytes = "", [], 0
        if not data:
            return None
        return ServerEvent(id=self.last_event_id, kind=kind, data="\n".join(data))


def event_data(event: ServerEvent) -> object:
    """Decode the JSON value that an event of this API carries."""
    try:
        return msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"the event {event.kind[:80]!r} carries no JSON") from error


# Following a call's events to their end, over as many connections as that takes.

_FIRST_DELAY_SECONDS = 0.1
_MS_PER_SECOND = 1000


class OpenStream(msgspec.Struct, frozen=True):
    """Open a stream, close any earlier one, and send back the response's Head."""

    request: Request


class ReadChunk(msgspec.Struct, frozen=True):
    """Send back bytes, which are empty at a clean end."""


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Emit(msgspec.Struct, frozen=True):
    event: CallEvent


class Head(msgspec.Struct, frozen=True):
    status: int
    headers: Headers


Step: TypeAlias = OpenStream | ReadChunk | Pause | Emit
Script: TypeAlias = Generator[Step, Any, None]


def follow_call(call_id: str, *, after: str | None, limits: ClientLimits) -> Script:
    """Give the steps that emit every event of the call after the event with the id ``after``."""
    path = path_of("v1", "tool-calls", call_id, "events")
    parser = EventParser(limits.max_event_bytes, after or "")
    lost = 0
    opened = False
    while True:
        parser = EventParser(limits.max_event_bytes, parser.last_event_id)
        try:
            head = yield OpenStream(_stream_request(path, parser.last_event_id))
            if head.status != 200 or not _is_event_stream(head):
                yield from _refuse(head, limits)
            opened = True
            while chunk := (yield ReadChunk()):
                for event in parser.feed(chunk):
                    lost = 0
                    yield Emit(CallEvent(id=event.id, kind=event.kind, data=event_data(event)))
            return
        except ClientTimeout:
            # Silence after a good start: the network may have dropped the connection without telling either end.
            if not opened:
                raise
        except (ConnectionLost, ConnectFailed):
            lost += 1
            if not opened or lost > limits.max_stream_resumes:
                raise
            yield Pause(_delay(lost, parser.retry_ms, limits))


def _stream_request(path: str, last_event_id: str) -> Request:
    headers = [("accept", "text/event-stream"), ("cache-control", "no-store")]
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isprintable()):
            raise BadRequestValue("an event id that is not printable ASCII cannot be resumed after")
        headers.append(("last-event-id", last_event_id))
    return Request(method="GET", path=path, headers=tuple(headers))


def _is_event_stream(head: Head) -> bool:
    return (header_of(head.headers, "content-type") or "").partition(";")[0].strip().lower() == "text/event-stream"


def _refuse(head: Head, limits: ClientLimits) -> Script:
    body = b""
    while chunk := (yield ReadChunk()):
        body += chunk
        if len(body) > limits.max_response_bytes:
            raise ResponseTooLarge(f"the answer is larger than {limits.max_response_bytes} bytes")
    read_answer(Response(status=head.status, headers=head.headers, body=body))
    raise BadAnswer("the server answered with a document where events were asked for")


def _delay(lost: int, retry_ms: int | None, limits: ClientLimits) -> float:
    asked = _FIRST_DELAY_SECONDS * 2 ** (lost - 1) if retry_ms is None else retry_ms / _MS_PER_SECOND
    return min(asked, limits.max_resume_delay_seconds)
