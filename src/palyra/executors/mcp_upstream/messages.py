"""Lines of a server, classified without parsing their content.

A few megabytes of brackets become a million objects and block the event loop for seconds. So id and method are read
first. A message that no request waits for is never parsed, and an awaited one only if it has few lists and objects.
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from palyra.executors.mcp_upstream.limits import MAX_MESSAGE_BYTES

# Length of an id or a method. An id is kept until it was answered.
MAX_NAME_CHARS: Final = 256

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Envelope(msgspec.Struct, frozen=True):
    """The outside of a message: a request has both fields, a notification a method, an answer an id."""

    id: int | Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None
    method: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None

    @property
    def request_id(self) -> str:
        """The id of an answer as text, to compare it with the ids of requests."""
        return str(self.id)


_decode: Final = msgspec.json.Decoder(Envelope).decode


def read_envelope(line: bytes) -> Envelope | None:
    """Return the envelope, or None for a line that is not a message."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None


def count_containers(line: bytes, enough: int) -> int:
    """Count the lists and objects in a line of JSON; exactly only if there may be more than ``enough``."""
    most = line.count(b"[") + line.count(b"{")
    if most <= enough:
        return most
    bare = _STRING.sub(b"", line)
    return bare.count(b"[") + bare.count(b"{")


class LineSplitter:
    """Splits a stream into lines, one message each. ``None`` stands for a line longer than a message may be."""

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        self._held = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        lines: list[bytes | None] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            lines += self._line(data[start:end])
            start = end + 1
        self._hold(data[start:], lines)
        return lines

    def _line(self, rest: bytes) -> list[bytes | None]:
        if self._skipping:
            self._skipping = False
            return []
        line = bytes(self._held) + rest
        self._held.clear()
        if len(line) > self._most:
            return [None]
        return [line] if line.strip() else []

    def _hold(self, rest: bytes, lines: list[bytes | None]) -> None:
        if self._skipping:
            return
        self._held += rest
        if len(self._held) > self._most:
            self._held.clear()
            self._skipping = True
            lines.append(None)
