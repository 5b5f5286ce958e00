"""Tables and long lines for a person at a terminal: cells and its width in, lines out.

Nothing is hidden for want of room but what says nothing: a column without values, and the milliseconds of instants.
Prose is folded between its words. What has no words, such as an id, a key or a digest, stays in one piece, so that it
can be marked and copied. Where the columns do not fit beside each other all the same, a row goes on beneath itself.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len, chop_cells, set_cell_size

# Below this lines run over the edge, where a terminal breaks them by itself: an id has 26 characters.
NARROWEST = 40
# In prose a longer word is broken: one long path must not drive its column out of its row.
LONGEST_KEPT_WHOLE = 32
# Prose in a narrower column than this is more tiring than a row of two lines.
LEAST_PROSE = 20
# Beside a label. A narrower terminal breaks the rows by itself.
LEAST_VALUE = 10
_LABEL = re.compile(r"\S+(?: \S+)*  +")
_GAP = 2
_INDENT = 2
_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{3}Z")
# After these a long word without blanks, such as a JSON document, is broken sooner than in the middle of a value.
_AFTER_MARKS = re.compile(r"(?<=[,:])")


@dataclass(frozen=True)
class _Column:
    head: str
    values: Sequence[str]

    @property
    def natural(self) -> int:
        return max(cell_len(cell) for cell in (self.head, *self.values))

    @property
    def least(self) -> int:
        """The width for its words or, if its values are not prose, for whole values."""
        head = max(map(cell_len, self.head.split()), default=1)
        if not any(" " in value for value in self.values):
            return max(head, *(cell_len(value) for value in self.values), 1)
        words = [cell_len(word) for value in self.values for word in value.split()]
        longest = max((length for length in words if length <= LONGEST_KEPT_WHOLE), default=1)
        return max(head, longest, min(self.natural, LEAST_PROSE))


def draw_table(cells: Sequence[Sequence[str]], width: int) -> tuple[list[str], list[str]]:
    """Draw the lines of the head and those of the rows. The first of ``cells`` is the head."""
    width = max(width, NARROWEST)
    columns = [_Column(head, values) for head, *values in zip(*cells, strict=True)]
    if _beside(column.natural for column in columns) > width:
        columns = [_Column(column.head, [_INSTANT.sub(r"\1Z", value) for value in column.values]) for column in columns]
        if len(cells) > 1:
            columns = [column for column in columns if any(column.values)] or columns
    bands = list(_bands(columns, width))
    head = [line for band in bands for line in band.lines([column.head for column in columns])]
    rows = zip(*(column.values for column in columns), strict=True)
    body = [line for row in rows for band in bands for line in band.lines(row)]
    return [*head, "─" * max(map(cell_len, (*head, *body)), default=0)], body


def fold_line(text: str, width: int) -> list[str]:
    """Fold one long line into several, all but the first indented."""
    width = max(width, NARROWEST)
    first, *rest = _fold(text, width, width - _INDENT)
    return [first, *(" " * _INDENT + line for line in rest)]


def fold_fields(text: str, width: int) -> str:
    """Fold lines of ``label  value`` so that every row of a value begins beneath the value.

    A terminal goes on at its left edge, where a value could write a label of its own.
    """
    found = _LABEL.match(text)
    column = found.end() if found else 0
    room = max(width - column, LEAST_VALUE)
    lines = []
    for line in text.split("\n"):
        first, *rest = chop_cells(line[column:], room) or [""]
        lines += [line[:column] + first, *(" " * column + each for each in rest)]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Band:
    """Columns that stand beside each other, from ``start`` to ``end`` of all."""

    start: int
    end: int
    widths: Sequence[int]

    def lines(self, row: Sequence[str]) -> Iterator[str]:
        margin = " " * _INDENT if self.start else ""
        cells = [_fold(cell, width, width) for cell, width in zip(row[self.start : self.end], self.widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            line = (" " * _GAP).join(set_cell_size(part, width) for part, width in zip(parts, self.widths, strict=True))
            if line.strip():
                yield margin + line.rstrip()


def _bands(columns: Sequence[_Column], width: int) -> Iterator[_Band]:
    start = 0
    while start < len(columns):
        room = width - (_INDENT if start else 0)
        end = start + 1
        while end < len(columns) and _beside(column.least for column in columns[start : end + 1]) <= room:
            end += 1
        yield _Band(start, end, _widths(columns[start:end], room))
        start = end


def _widths(columns: Sequence[_Column], room: int) -> list[int]:
    """Give each column its least width, then share the rest; columns that want little come first."""
    widths = [min(column.least, room) for column in columns]
    left = room - _beside(widths)
    wanting = sorted(range(len(columns)), key=lambda each: columns[each].natural - widths[each])
    for served, each in enumerate(wanting):
        more = min(columns[each].natural - widths[each], left // (len(wanting) - served))
        widths[each] += max(more, 0)
        left -= max(more, 0)
    return widths


def _beside(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + _GAP * (len(found) - 1)


def _fold(text: str, first: int, rest: int) -> list[str]:
    """Fold between words, else after marks, else anywhere. The first line has another width than the rest."""
    if cell_len(text) <= first:
        return [text]
    lines, line, room = [], "", first
    for piece in _pieces(text, rest):
        if line and cell_len(line + piece.rstrip()) > room:
            lines.append(line.rstrip())
            line, room = "", rest
        line += piece
    return [*lines, line.rstrip()]


def _pieces(text: str, width: int) -> Iterator[str]:
    """Split the text into pieces that are not broken any further, each with the blank behind it."""
    for word in re.findall(r"\S+\s*", text):
        if cell_len(word.rstrip()) <= width:
            yield word
            continue
        for part in _AFTER_MARKS.split(word):
            yield from [part] if cell_len(part.rstrip()) <= width else chop_cells(part, width)
