"""Bytes of a stream as lines, one message each."""

from palyra.mcp.limits import MAX_MESSAGE_BYTES


class LineSplitter:
    """Bytes in, lines out. ``None`` stands for a line that was longer than a message may be."""

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
