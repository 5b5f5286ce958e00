"""Server-sent events: bytes in, in pieces of any size; whole events out."""

import re

import msgspec

from palyra.client.protocol import BadAnswer, ResponseTooLarge

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
    """The JSON value an event of this API carries."""
    try:
        return msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"the event {event.kind[:80]!r} carries no JSON") from error
