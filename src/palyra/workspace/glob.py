"""Globs over names and over paths, in time that grows with the product of the two lengths and no faster.

One component's pattern is turned into a regular expression by ``fnmatch``, whose translation keeps each ``*`` in an
atomic group, so that it never backtracks from one star into another. ``**`` is walked as a set of positions.
"""

import fnmatch
import re
from collections.abc import Sequence
from typing import Final

from palyra.workspace.errors import BadPattern
from palyra.workspace.limits import MAX_GLOB_ALTERNATIVES, MAX_GLOB_CHARS

_ANY_DEPTH: Final = None
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

_Part = re.Pattern[str] | None


def name_pattern(pattern: str) -> re.Pattern[str]:
    """One component's glob: ``*``, ``?``, ``[abc]``, ``[!abc]``. Match it with ``fullmatch`` or ``match``."""
    return re.compile(fnmatch.translate(pattern))


class Glob:
    """A glob over whole paths. Without a slash it is matched against the last name, at any depth."""

    __slots__ = ("_alternatives", "source")

    def __init__(self, source: str) -> None:
        if not source or len(source) > MAX_GLOB_CHARS or "\0" in source:
            raise BadPattern(f"a glob has 1 to {MAX_GLOB_CHARS} characters and no NUL")
        self.source = source
        self._alternatives = tuple(_parts(each) for each in _expand_braces(source))

    def matches(self, names: Sequence[str]) -> bool:
        return any(_walk(parts, names) for parts in self._alternatives)


def _parts(pattern: str) -> tuple[_Part, ...]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise BadPattern("a glob has no .. component")
    parts = tuple(_ANY_DEPTH if name == "**" else name_pattern(name) for name in names)
    return parts if "/" in pattern else (_ANY_DEPTH, *parts)


def _walk(parts: Sequence[_Part], names: Sequence[str]) -> bool:
    places = _skip_any_depth(parts, {0})
    for name in names:
        onward: set[int] = set()
        for place in places:
            if place == len(parts):
                continue
            part = parts[place]
            if part is _ANY_DEPTH:
                onward.add(place)
            elif part.match(name):
                onward.add(place + 1)
        places = _skip_any_depth(parts, onward)
    return len(parts) in places


def _skip_any_depth(parts: Sequence[_Part], places: set[int]) -> set[int]:
    """``**`` may also stand for no names at all."""
    reached = set(places)
    for place in places:
        while place < len(parts) and parts[place] is _ANY_DEPTH:
            place += 1
            reached.add(place)
    return reached


def _expand_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        found = _BRACES.search(current)
        if found is None:
            done.append(current)
        else:
            waiting += [current[: found.start()] + each + current[found.end() :] for each in found[1].split(",")]
        if len(done) + len(waiting) > MAX_GLOB_ALTERNATIVES:
            raise BadPattern(f"a glob has at most {MAX_GLOB_ALTERNATIVES} alternatives in braces")
    return done
