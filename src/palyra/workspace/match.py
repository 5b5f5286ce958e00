"""What a search looks for in one file's text, and how a match is shown."""

import re
from collections.abc import Callable, Sequence

import msgspec

from palyra.workspace.errors import BadPattern
from palyra.workspace.limits import (
    BINARY_PROBE_BYTES,
    MATCH_TEXT_LEAD_CHARS,
    MAX_LINE_CHARS,
    MAX_MATCH_TEXT_CHARS,
    MAX_QUERY_CHARS,
)


class Found(msgspec.Struct, frozen=True):
    """A match: which line and which character of it, both counted from 0."""

    line: int
    column: int


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:BINARY_PROBE_BYTES]


def searchable_lines(data: bytes) -> list[str]:
    """Lines without their endings, bytes that are not UTF-8 as U+FFFD, each cut to the length that is searched."""
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
        """A quick look at the raw bytes that spares most files the rest."""
        if self._pattern is not None or "\ufffd" in self._query:
            return True
        return self._query.encode("utf-8", "surrogatepass") in data

    def find(self, lines: Sequence[str], wanted: int, keep_going: Callable[[], None]) -> list[Found]:
        """The first match of each line, at most ``wanted``. ``keep_going`` raises when time is up."""
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


def excerpt(line: str, column: int) -> str:
    """The part of a line that shows the match."""
    if len(line) <= MAX_MATCH_TEXT_CHARS:
        return line
    start = max(0, min(column - MATCH_TEXT_LEAD_CHARS, len(line) - MAX_MATCH_TEXT_CHARS))
    return line[start : start + MAX_MATCH_TEXT_CHARS]
