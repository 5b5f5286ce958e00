"""Differences between the arguments of two calls, word by word, for the person who decides on an approval.

Every difference is marked, and every mark is visible: characters without a shape are written out.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import takewhile
from typing import Any, Final

import msgspec

from palyra.canonical import canonical_json
from palyra.pipeline.domain.approval import Approval
from palyra.server.console.limits import MAX_SHOWN_CHARS

# Words that are compared between the first and the last difference. The time is quadratic, and an agent chooses them.
MAX_COMPARED: Final = 400
# With a smaller share of common words, marks word by word are of no use.
LEAST_IN_COMMON: Final = 0.3
# A space, one ASCII sign, or a run of other characters: one without a shape stays with the word that it hides in.
_WORD: Final = re.compile(r"\s+|[!-/:-@\[-^`{-~]|[^\s!-/:-@\[-^`{-~]+")


class Piece(msgspec.Struct, frozen=True):
    text: str
    changed: bool


Pieces = tuple[Piece, ...]


class Comparison:
    """Compares the values of one call, which share the limit of compared words.

    A value beyond the limit is marked from its first difference to its last.
    """

    def __init__(self, words: int = MAX_COMPARED) -> None:
        self._left = words

    def of(self, before: str, after: str) -> tuple[Pieces, Pieces]:
        """Cut both values into pieces. If they have little in common, each value is one piece."""
        old, new = _WORD.findall(before), _WORD.findall(after)
        head = _count_common(old, new)
        tail = _count_common(old[head:][::-1], new[head:][::-1])
        blocks = [(0, 0, head), *self._match_between(old, new, head, tail), (len(old) - tail, len(new) - tail, tail)]
        same_old = {at + more for at, _, size in blocks for more in range(size)}
        same_new = {at + more for _, at, size in blocks for more in range(size)}
        kept = _count_visible([old[at] for at in same_old])
        if kept < LEAST_IN_COMMON * min(_count_visible(old), _count_visible(new)):
            same_old, same_new = set(), set()
        return _cut_pieces(old, same_old), _cut_pieces(new, same_new)

    def _match_between(self, old: list[str], new: list[str], head: int, tail: int) -> list[tuple[int, int, int]]:
        """Find common words between the common head and tail. A lone space between differences counts as different."""
        was, now = old[head : len(old) - tail], new[head : len(new) - tail]
        cost = max(len(was), len(now))
        if cost > self._left or not was or not now:
            return []
        self._left -= cost
        found = SequenceMatcher(None, was, now, autojunk=False).get_matching_blocks()
        return [(head + at, head + there, size) for at, there, size in found if _count_visible(was[at : at + size])]


def make_visible(text: str) -> str:
    """Write a sign for each character that is invisible on a coloured ground."""
    if text.isspace():
        text = text.replace(" ", "␣").replace("\n", "↵\n")
    else:
        lines = text.rstrip("\n")
        text = lines + "↵\n" * (len(text) - len(lines))
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\u{{{ord(char):x}}}" for char in text)


def _count_common(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _count_visible(words: list[str]) -> int:
    return sum(len(word) for word in words if word.strip())


def _cut_pieces(words: list[str], same: set[int]) -> Pieces:
    made: list[tuple[list[str], bool]] = []
    for at, word in enumerate(words):
        changed = at not in same
        if made and made[-1][1] is changed:
            made[-1][0].append(word)
        else:
            made.append(([word], changed))
    return tuple(Piece(make_visible("".join(part)) if changed else "".join(part), changed) for part, changed in made)


# Arguments may be large and deep; a person reads no more of them.
MAX_LEAVES = 400


class Change(StrEnum):
    SAME = "same"
    CHANGED = "changed"
    ADDED = "added"
    GONE = "gone"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    change: Change
    place: str
    before: str = ""
    after: str = ""
    # The same in pieces, with the changed ones marked.
    was: Pieces = ()
    now: Pieces = ()


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The approved call that is most like the waiting one, and their differences."""

    approval: Approval
    lines: tuple[Line, ...]

    @property
    def changes(self) -> int:
        return sum(1 for line in self.lines if line.change is not Change.SAME)


def find_nearest(waiting: Approval, approved: Iterable[Approval]) -> Nearest | None:
    """Return the approved call with the fewest changes, the first among equals, with its differences marked."""
    compared = [
        Nearest(approval=each, lines=compare_arguments(each.arguments, waiting.arguments))
        for each in approved
        if each.id != waiting.id
    ]
    found = min(compared, key=lambda one: one.changes, default=None)
    return None if found is None else msgspec.structs.replace(found, lines=_mark(found.lines))


def _mark(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    comparison = Comparison()

    def mark(line: Line) -> Line:
        match line.change:
            case Change.SAME:
                return line
            case Change.CHANGED:
                was, now = comparison.of(line.before[:MAX_SHOWN_CHARS], line.after[:MAX_SHOWN_CHARS])
            case _:
                was, now = _whole(line.before), _whole(line.after)
        if not any(piece.changed for piece in (*was, *now)):
            # They differ only beyond the shown characters.
            was, now = _whole(line.before), _whole(line.after)
        return msgspec.structs.replace(line, was=was + _rest(line.before), now=now + _rest(line.after))

    return tuple(map(mark, lines))


def _whole(text: str) -> Pieces:
    return (Piece(make_visible(text[:MAX_SHOWN_CHARS]), True),) if text else ()


def _rest(text: str) -> Pieces:
    more = len(text) - MAX_SHOWN_CHARS
    return (Piece(f"\n… {more} more characters", False),) if more > 0 else ()


def compare_arguments(before: dict[str, Any], after: dict[str, Any]) -> tuple[Line, ...]:
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return tuple(_line(place, old, new) for place in {**new, **old})[:MAX_LEAVES]


def _line(place: str, old: dict[str, str], new: dict[str, str]) -> Line:
    if place not in old:
        return Line(change=Change.ADDED, place=place, after=new[place])
    if place not in new:
        return Line(change=Change.GONE, place=place, before=old[place])
    change = Change.SAME if old[place] == new[place] else Change.CHANGED
    return Line(change=change, place=place, before=old[place], after=new[place])


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}[{number}]")
    else:
        yield place, value if isinstance(value, str) else canonical_json(value).decode()
