"""Differences between the arguments of two calls, word by word, for the person who decides on an approval.

Every difference is marked, and every mark is visible: characters without a shape are spelled out.
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
from palyra.visible_text import spell, spell_block, spell_json

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
    """Spell out text on a coloured ground, with a sign for blanks that nothing follows."""
    text = spell_block(text).replace("\t", "\\t").replace("␣", "\\u2423").replace("↵", "\\u21b5")
    if text.isspace():
        return text.replace(" ", "␣").replace("\n", "↵\n")
    lines = text.rstrip("\n")
    return lines + "↵\n" * (len(text) - len(lines))


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
    return tuple(Piece((make_visible if changed else spell_block)("".join(part)), changed) for part, changed in made)


# Lines that are marked and shown. All are compared and counted; the call itself is shown whole.
MAX_LINES = 400


class Change(StrEnum):
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
    same: bool = False

    @property
    def changes(self) -> int:
        return len(self.lines)

    @property
    def unmarked(self) -> int:
        """How many differences are not among the shown lines."""
        return max(0, len(self.lines) - MAX_LINES)

    def list_other_differences(self, asked: Approval) -> list[str]:
        """Say what else than the arguments is not as it was then: the same words can run another script."""
        was, now = self.approval.binding, asked.binding
        same = (
            ("its program and the files that it names", was.files == now.files),
            ("where it runs", (was.place, was.tier, was.workspace) == (now.place, now.tier, now.workspace)),
            ("where its paths lead", was.places == now.places),
            ("its limits", was.obligations == now.obligations),
        )
        return [what for what, is_same in same if not is_same]


def find_nearest(waiting: Approval, approved: Iterable[Approval]) -> Nearest | None:
    """Return the approved call with the fewest changes, the first among equals, with its differences marked."""
    compared = [
        Nearest(
            approval=each,
            lines=compare_arguments(each.arguments, waiting.arguments),
            same=canonical_json(each.arguments) == canonical_json(waiting.arguments),
        )
        for each in approved
        if each.id != waiting.id and not each.dropped_bytes
    ]
    found = min(compared, key=lambda one: one.changes, default=None)
    return None if found is None else msgspec.structs.replace(found, lines=_mark(found.lines))


def _mark(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    comparison = Comparison()

    def mark(line: Line) -> Line:
        if line.change is Change.CHANGED:
            was, now = comparison.of(line.before, line.after)
        else:
            was, now = _whole(line.before), _whole(line.after)
        return msgspec.structs.replace(line, was=was, now=now)

    return (*map(mark, lines[:MAX_LINES]), *lines[MAX_LINES:])


def _whole(text: str) -> Pieces:
    return (Piece(make_visible(text), True),) if text else ()


# A key or a number in each object or array on the way to a value. Names that a dot joins could be those of another way.
Place = tuple[str | int, ...]


def compare_arguments(before: dict[str, Any], after: dict[str, Any]) -> tuple[Line, ...]:
    """Return a line for each value that differs."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return tuple(_line(place, old, new) for place in {**new, **old} if old.get(place) != new.get(place))


class _Leaf(msgspec.Struct, frozen=True):
    text: str
    is_text: bool

    def write(self, other: "_Leaf | None") -> str:
        """Write text as it is, and in quotes beside a value of another kind."""
        return f'"{self.text}"' if self.is_text and other is not None and not other.is_text else self.text


def _line(place: Place, old: dict[Place, _Leaf], new: dict[Place, _Leaf]) -> Line:
    was, now, name = old.get(place), new.get(place), _name(place)
    change = Change.ADDED if was is None else Change.GONE if now is None else Change.CHANGED
    before, after = was.write(now) if was else "", now.write(was) if now else ""
    return Line(change=change, place=name, before=before, after=after)


def _name(place: Place) -> str:
    """Write ``env.PATH`` or ``args[0]``. A key that could be read as more than one is quoted."""
    written = ""
    for step in place:
        if isinstance(step, int):
            written += f"[{step}]"
        else:
            key = spell(step) if not any(char in ".[]" for char in step) else spell_json(step)
            written += f".{key}" if written else key
    return written


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, _Leaf]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*place, key))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, (*place, number))
    elif isinstance(value, str):
        yield place, _Leaf(value, True)
    else:
        yield place, _Leaf(canonical_json(value).decode(), False)
