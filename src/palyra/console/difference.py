"""How the arguments of one call differ from those of another, leaf by leaf."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from palyra.canonical import canonical_json
from palyra.console.changed_words import Comparison, Piece, Pieces, visible
from palyra.console.limits import MAX_SHOWN_CHARS
from palyra.tools.approval import Approval

# Arguments may be large and deep; what a person reads of them is not.
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
    # The same in pieces, where a person looks at it: what was changed is marked.
    was: Pieces = ()
    now: Pieces = ()


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The approved call that is most like the one that waits, and what is different."""

    approval: Approval
    lines: tuple[Line, ...]

    @property
    def changes(self) -> int:
        return sum(1 for line in self.lines if line.change is not Change.SAME)


def nearest(waiting: Approval, approved: Iterable[Approval]) -> Nearest | None:
    """The first among equals: the newest, when they come newest first. What differs is marked in it."""
    compared = [
        Nearest(approval=each, lines=difference(each.arguments, waiting.arguments))
        for each in approved
        if each.id != waiting.id
    ]
    found = min(compared, key=lambda one: one.changes, default=None)
    return None if found is None else msgspec.structs.replace(found, lines=_marked(found.lines))


def _marked(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    comparison = Comparison()

    def marked(line: Line) -> Line:
        match line.change:
            case Change.SAME:
                return line
            case Change.CHANGED:
                was, now = comparison.of(line.before[:MAX_SHOWN_CHARS], line.after[:MAX_SHOWN_CHARS])
            case _:
                was, now = _whole(line.before), _whole(line.after)
        if not any(piece.changed for piece in (*was, *now)):
            # They differ only past what is shown.
            was, now = _whole(line.before), _whole(line.after)
        return msgspec.structs.replace(line, was=was + _rest(line.before), now=now + _rest(line.after))

    return tuple(map(marked, lines))


def _whole(text: str) -> Pieces:
    return (Piece(visible(text[:MAX_SHOWN_CHARS]), True),) if text else ()


def _rest(text: str) -> Pieces:
    more = len(text) - MAX_SHOWN_CHARS
    return (Piece(f"\n… {more} more characters", False),) if more > 0 else ()


def difference(before: dict[str, Any], after: dict[str, Any]) -> tuple[Line, ...]:
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
