"""The queries of a search: literal text, and a regular expression that a child process matches."""

import json
import re
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from palyra.workspace.errors import BadPattern, Cancelled, IoFailed, RegexUnavailable
from palyra.workspace.limits import (
    BINARY_PROBE_BYTES,
    MATCH_TEXT_LEAD_CHARS,
    MAX_LINE_CHARS,
    MAX_MATCH_TEXT_CHARS,
    MAX_QUERY_CHARS,
    POLL_SECONDS,
    REGEX_CPU_SECONDS,
    REGEX_MEMORY_BYTES,
)


class Found(msgspec.Struct, frozen=True):
    """A match: which line and which character of it, both counted from 0."""

    line: int
    column: int


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:BINARY_PROBE_BYTES]


def split_lines(data: bytes) -> list[str]:
    """Split into lines without endings, cut to the searched length. U+FFFD replaces bytes that are not UTF-8."""
    text = data.decode("utf-8", "replace")
    return [line.removesuffix("\r")[:MAX_LINE_CHARS] for line in text.split("\n")]


def check_query(query: str) -> str:
    if not query or len(query) > MAX_QUERY_CHARS:
        raise BadPattern(f"a query has 1 to {MAX_QUERY_CHARS} characters")
    if "\n" in query or "\0" in query:
        raise BadPattern("a query is matched against single lines: it has no newline and no NUL")
    return query


class LiteralQuery:
    """Plain text. Without case it is an escaped regular expression, which has nothing to backtrack into."""

    def __init__(self, query: str, *, case_sensitive: bool) -> None:
        self._query = check_query(query)
        self._pattern = None if case_sensitive else re.compile(re.escape(query), re.IGNORECASE)

    def may_match(self, data: bytes) -> bool:
        """Check the raw bytes, which spares most files the search by lines."""
        if self._pattern is not None or "\ufffd" in self._query:
            return True
        return self._query.encode("utf-8", "surrogatepass") in data

    def find(self, lines: Sequence[str], wanted: int, keep_going: Callable[[], None]) -> list[Found]:
        """Return the first match of each line, at most ``wanted``. ``keep_going`` raises when time is up."""
        found: list[Found] = []
        for number, line in enumerate(lines):
            keep_going()
            column = self._column(line)
            if column >= 0:
                found.append(Found(number, column))
                if len(found) == wanted:
                    break
        return found

    def _column(self, line: str) -> int:
        if self._pattern is None:
            return line.find(self._query)
        match = self._pattern.search(line)
        return -1 if match is None else match.start()


def cut_excerpt(line: str, column: int) -> str:
    if len(line) <= MAX_MATCH_TEXT_CHARS:
        return line
    start = max(0, min(column - MATCH_TEXT_LEAD_CHARS, len(line) - MAX_MATCH_TEXT_CHARS))
    return line[start : start + MAX_MATCH_TEXT_CHARS]


_CHILD = Path(__file__).with_name("regex_child.py").read_text(encoding="utf-8")
_MS = 1000
# A child that ends by itself ran into its processor or memory limit.
_DIED = "the regular expression needs more memory or time than a search may use"


class TimeUp(Exception):
    """Ends a search at its own deadline. A caller does not see it as an error."""


class RegexProcess:
    """A query like ``LiteralQuery``, answered by a child process. Leaving its context kills the child."""

    def __init__(self, query: str, *, case_sensitive: bool, deadline: float, cancelled: threading.Event) -> None:
        """``deadline`` is an instant of ``time.monotonic()``."""
        self._settings = {"pattern": check_query(query), "case_sensitive": case_sensitive}
        self._deadline = deadline
        self._cancelled = cancelled
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._child = self._start()
        try:
            verdict = self._ask(json.dumps(self._settings).encode())
        except BaseException:
            self.close()
            raise
        if verdict["error"] is not None:
            self.close()
            raise BadPattern(f"the regular expression is not usable: {verdict['error']}")
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CHILD, str(REGEX_CPU_SECONDS), str(REGEX_MEMORY_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={},
            )
        except OSError as error:
            raise RegexUnavailable(f"no process for the regular expression: {error.strerror}") from error

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with child:
                child.kill()

    def may_match(self, data: bytes) -> bool:
        return True

    def find(self, lines: Sequence[str], wanted: int, keep_going: Callable[[], None]) -> list[Found]:
        keep_going()
        body = struct.pack(">I", wanted) + "\n".join(lines).encode()
        return [Found(line, column) for line, column in self._ask(body)]

    def _ask(self, body: bytes) -> Any:
        """Send a question and read its answer. The child reads it whole before it works, so no write blocks long."""
        if self._child is None or self._child.stdin is None or self._child.stdout is None:
            raise IoFailed("the regular expression's process is closed")
        try:
            remaining = memoryview(struct.pack(">I", len(body)) + body)
            while remaining:
                remaining = remaining[self._child.stdin.write(remaining) :]
            size = struct.unpack(">I", self._read(4))[0]
            return json.loads(self._read(size))
        except BrokenPipeError:
            raise BadPattern(_DIED) from None

    def _read(self, size: int) -> bytes:
        if self._child is None or self._child.stdout is None:
            raise IoFailed("the regular expression's process is closed")
        stream = self._child.stdout
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        data = bytearray()
        while len(data) < size:
            if self._cancelled.is_set():
                raise Cancelled("the search was cancelled")
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeUp
            if not poll.poll(min(left, POLL_SECONDS) * _MS):
                continue
            part = stream.read(size - len(data))
            if not part:
                raise BadPattern(_DIED)
            data += part
        return bytes(data)
