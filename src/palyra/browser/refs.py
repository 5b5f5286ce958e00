"""What a ref means: one element of one document, with the role and name that it had when it was shown."""

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from palyra.browser.element_errors import UnknownRef
from palyra.browser.page_limits import MAX_ERROR_NAME, MAX_NAMED, MAX_REFS

_REF: Final = re.compile(r"e([1-9][0-9]{0,8})")
# Below this two names have nothing to do with each other.
_ALIKE: Final = 0.4


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """``number`` is the element's own in its document: never another's, and never given again."""

    frame_id: str
    loader_id: str
    number: int
    role: str
    name: str

    def __str__(self) -> str:
        return shown(self.role, self.name)


class RefCounter:
    """The numbers of one session, for all of its tabs: none is ever given twice."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last

    def given(self, number: int) -> bool:
        return number <= self._last


class RefBook:
    """The refs of one tab. The same element with the same role and name keeps its ref."""

    def __init__(self, counter: RefCounter) -> None:
        self._counter = counter
        self._bound: dict[str, Bound] = {}
        self._refs: dict[Bound, str] = {}

    def bind(self, bound: Bound) -> str:
        ref = self._refs.get(bound)
        if ref is None:
            ref = f"e{self._counter.next()}"
            if len(self._bound) >= MAX_REFS:
                oldest = next(iter(self._bound))
                del self._refs[self._bound.pop(oldest)]
            self._refs[bound] = ref
            self._bound[ref] = bound
        return ref

    def get(self, ref: str) -> Bound:
        bound = self._bound.get(ref)
        if bound is not None:
            return bound
        match = _REF.fullmatch(ref)
        if match is None:
            raise UnknownRef("a ref looks like e12")
        if self._counter.given(int(match[1])):
            raise UnknownRef(f"{ref} belongs to another tab, or to a page that is long gone", ref=ref)
        raise UnknownRef(f"{ref} was never given", ref=ref)

    def __len__(self) -> int:
        return len(self._bound)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An element that may have been meant."""

    ref: str
    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.ref} ({shown(self.role, self.name)})"


def nearest(wanted: str, found: Collection[tuple[Bound, str]]) -> tuple[Bound, str] | None:
    """The one whose name is most like what was wanted: the same, one that holds it, or one spelled nearly so."""
    best = ranked(wanted, found)
    return best[0] if best else None


def ranked(wanted: str, found: Collection[tuple[Bound, str]]) -> list[tuple[Bound, str]]:
    scored = [(_likeness(wanted, name), at, pair) for at, pair in enumerate(found) for name in (pair[1],)]
    good = sorted(each for each in ((-score, at, pair) for score, at, pair in scored if score >= _ALIKE))
    return [pair for _, _, pair in good[:MAX_NAMED]]


def _likeness(wanted: str, name: str) -> float:
    ours, theirs = wanted.casefold().strip(), name.casefold().strip()
    if ours == theirs:
        return 1.0
    if not ours or not theirs:
        return 0.0
    if ours in theirs or theirs in ours:
        return 0.9
    return difflib.SequenceMatcher(None, ours[:MAX_ERROR_NAME], theirs[:MAX_ERROR_NAME]).ratio()


def shown(role: str, name: str) -> str:
    """An element in an error's words."""
    cut = name if len(name) <= MAX_ERROR_NAME else name[: MAX_ERROR_NAME - 1] + "…"
    return f"{role} '{cut}'" if cut else role


def listed(candidates: Iterable[Candidate]) -> str:
    return ", ".join(str(each) for each in candidates)
