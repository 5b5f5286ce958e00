"""Where in a source text something is wrong, shown so that a person finds it at once.

Cedar's own messages carry no position, so positions are ours: an offset into a named text becomes a file, a line, a
column, the line itself and a caret.
"""

import msgspec

from palyra.policy.limits import MAX_SHOWN_SOURCE_CHARS

_TAB = "\t"


class Location(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Lines and columns count from 1; columns count characters."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing wrong in a bundle. ``source`` is the whole line it is on."""

    file: str
    line: int
    column: int
    message: str
    source: str = ""
    policy: str = ""

    @property
    def location(self) -> Location:
        return Location(file=self.file, line=self.line, column=self.column)

    def render(self) -> str:
        heading = f"{self.location}: {self.message}"
        if not self.source:
            return heading
        shown, caret = _window(self.source, self.column - 1)
        number = str(self.line)
        margin = " " * len(number)
        padding = "".join(_TAB if character == _TAB else " " for character in shown[:caret])
        return f"{heading}\n  {number} | {shown}\n  {margin} | {padding}^"


class SourceText(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str

    def locate(self, offset: int) -> Location:
        before = self.text[:offset]
        line_start = before.rfind("\n") + 1
        return Location(file=self.name, line=before.count("\n") + 1, column=offset - line_start + 1)

    def line_at(self, offset: int) -> str:
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")

    def problem(self, offset: int, message: str, *, policy: str = "") -> Problem:
        place = self.locate(offset)
        return Problem(
            file=place.file,
            line=place.line,
            column=place.column,
            message=message,
            source=self.line_at(offset),
            policy=policy,
        )


def _window(source: str, caret: int) -> tuple[str, int]:
    """The part of a long line around the caret, and where the caret is in it; what cannot be printed is replaced."""
    start = max(0, min(caret - MAX_SHOWN_SOURCE_CHARS // 2, len(source) - MAX_SHOWN_SOURCE_CHARS))
    part = source[start : start + MAX_SHOWN_SOURCE_CHARS]
    shown = "".join(c if c.isprintable() or c == _TAB else "\N{REPLACEMENT CHARACTER}" for c in part)
    return shown, min(caret - start, len(shown))
