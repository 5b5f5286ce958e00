"""Which words of a value differ from those of another. A person decides by what is marked, so nothing that differs goes
unmarked, and what is marked can be seen: characters without a shape are written out."""

import re
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final

import msgspec

# Words between the first and the last difference that are set against each other: that takes their square, and an agent
# chooses them.
MAX_COMPARED: Final = 400
# Below this share of words in common, what is left between the marks tells nothing.
LEAST_IN_COMMON: Final = 0.3
# A space, a sign of ASCII by itself, or a run of anything else: what has no shape stays with the word that it hides in.
_WORD: Final = re.compile(r"\s+|[!-/:-@\[-^`{-~]|[^\s!-/:-@\[-^`{-~]+")


class Piece(msgspec.Struct, frozen=True):
    text: str
    changed: bool


Pieces = tuple[Piece, ...]


class Comparison:
    """Of all values of one call: they share what may be compared. A value beyond that is marked from its first
    difference to its last."""

    def __init__(self, words: int = MAX_COMPARED) -> None:
        self._left = words

    def of(self, before: str, after: str) -> tuple[Pieces, Pieces]:
        """Both values in pieces, in their order. Where they have little in common, each is one piece."""
        old, new = _WORD.findall(before), _WORD.findall(after)
        head = _alike(old, new)
        tail = _alike(old[head:][::-1], new[head:][::-1])
        blocks = [(0, 0, head), *self._between(old, new, head, tail), (len(old) - tail, len(new) - tail, tail)]
        same_old = {at + more for at, _, size in blocks for more in range(size)}
        same_new = {at + more for _, at, size in blocks for more in range(size)}
        kept = _shown([old[at] for at in same_old])
        if kept < LEAST_IN_COMMON * min(_shown(old), _shown(new)):
            same_old, same_new = set(), set()
        return _pieces(old, same_old), _pieces(new, same_new)

    def _between(self, old: list[str], new: list[str], head: int, tail: int) -> list[tuple[int, int, int]]:
        """What both have between what they begin and end with. A space alone between differences belongs to them."""
        was, now = old[head : len(old) - tail], new[head : len(new) - tail]
        cost = max(len(was), len(now))
        if cost > self._left or not was or not now:
            return []
        self._left -= cost
        found = SequenceMatcher(None, was, now, autojunk=False).get_matching_blocks()
        return [(head + at, head + there, size) for at, there, size in found if _shown(was[at : at + size])]


def visible(text: str) -> str:
    """With a sign for each character that would not be seen on a coloured ground."""
    if text.isspace():
        text = text.replace(" ", "␣").replace("\n", "↵\n")
    else:
        lines = text.rstrip("\n")
        text = lines + "↵\n" * (len(text) - len(lines))
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\u{{{ord(char):x}}}" for char in text)


def _alike(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _shown(words: list[str]) -> int:
    return sum(len(word) for word in words if word.strip())


def _pieces(words: list[str], same: set[int]) -> Pieces:
    made: list[tuple[list[str], bool]] = []
    for at, word in enumerate(words):
        changed = at not in same
        if made and made[-1][1] is changed:
            made[-1][0].append(word)
        else:
            made.append(([word], changed))
    return tuple(Piece(visible("".join(part)) if changed else "".join(part), changed) for part, changed in made)
