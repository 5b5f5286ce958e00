"""Protected patterns as a machine that is stepped from one directory name to the next.

The same patterns and the same comparison of names as ``palyra.workspace.protected``, but made for a walk: a directory
carries the patterns that are partly matched, so that a name costs a look-up and not a comparison with every pattern.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from palyra.workspace.protected import ProtectedNames, folded, name_pattern

_WILD: Final = re.compile(r"[*?\[]")

Part = str | re.Pattern[str]
# A pattern and how many of its parts are matched so far.
Progress = tuple["Pattern", int]
State = tuple[Progress, ...]
START: Final[State] = ()


class Pattern:
    """The names of one pattern: a literal is compared folded, a wildcard by its expression."""

    __slots__ = ("parts", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        names = [name for name in source.split("/") if name not in ("", ".")]
        self.parts: tuple[Part, ...] = tuple(
            name_pattern(folded(name)) if _WILD.search(name) else folded(name) for name in names
        )


class ProtectedMachine:
    """``step`` says whether a name completes a pattern, and what its directory's children continue with."""

    def __init__(self, patterns: Iterable[str]) -> None:
        # Refuses what is not a pattern, in the same words as the file tools.
        checked = ProtectedNames(patterns).patterns
        self._literal: dict[str, list[Pattern]] = {}
        self._wild: dict[str, list[Pattern]] = {}
        for source in dict.fromkeys(checked):
            pattern = Pattern(source)
            head = pattern.parts[0]
            if isinstance(head, str):
                self._literal.setdefault(head, []).append(pattern)
            else:
                first = next(name for name in source.split("/") if name not in ("", "."))
                self._wild.setdefault(_WILD.split(folded(first))[0][:1], []).append(pattern)
        self.empty = not checked

    def step(self, state: State, name: str) -> tuple[str | None, State]:
        """The pattern that this name completes, if one, and the patterns that it brings further."""
        plain = name.casefold() if name.isascii() and name[-1:] not in ". " else folded(name)
        begun = self._literal.get(plain, ())
        anywhere, by_letter = self._wild.get("", ()), self._wild.get(plain[:1], ())
        if not (state or begun or anywhere or by_letter):
            return None, START
        onward: list[Progress] = []
        for pattern, position in (*((p, 0) for p in (*begun, *anywhere, *by_letter)), *state):
            if not _same(pattern.parts[position], plain):
                continue
            if position + 1 == len(pattern.parts):
                return pattern.source, START
            onward.append((pattern, position + 1))
        return None, tuple(onward)


@lru_cache(maxsize=64)
def machine_of(patterns: tuple[str, ...]) -> ProtectedMachine:
    """One machine for all walks with these patterns: it is not changed by them."""
    return ProtectedMachine(patterns)


def _same(part: Part, name: str) -> bool:
    return part == name if isinstance(part, str) else part.match(name) is not None
