"""Many known texts looked for at once: each in turn while they are few, by their first characters when they are many.

A vault may hold thousands of values with a dozen spellings each. The time to look through a text then depends on the
text, not on how many there are.
"""

from collections.abc import Iterable, Iterator

from palyra.journal.spellings import MIN_KNOWN_CHARS

# Up to here, asking for each in turn is faster than going through the text once.
FEW = 64


class Needles:
    """Each has at least ``MIN_KNOWN_CHARS`` characters. One thread adds at a time; any may look."""

    def __init__(self) -> None:
        self._few: tuple[str, ...] = ()
        self._by_head: dict[str, tuple[str, ...]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, needles: Iterable[str]) -> None:
        for needle in needles:
            head = needle[:MIN_KNOWN_CHARS]
            same_head = self._by_head.get(head, ())
            if needle in same_head:
                continue
            # Longest first. Replaced whole, so that a reader sees the old ones or the new.
            self._by_head[head] = tuple(sorted((*same_head, needle), key=len, reverse=True))
            if self._count < FEW:
                self._few = (*self._few, needle)
            self._count += 1

    def occur_in(self, text: str) -> bool:
        if self._count <= FEW:
            return any(needle in text for needle in self._few)
        heads = (text[at : at + MIN_KNOWN_CHARS] for at in range(len(text) - MIN_KNOWN_CHARS + 1))
        if self._by_head.keys().isdisjoint(heads):
            return False
        return next(self._found(text), None) is not None

    def replaced(self, text: str, replacement: str, *, broken_off: bool = False) -> str:
        """The text with every stretch that belongs to a needle replaced, also where two of them overlap. The end of a
        text that is ``broken_off`` belongs to the needle it may be the beginning of, from ``MIN_KNOWN_CHARS`` on."""
        if not broken_off and not self.occur_in(text):
            return text
        parts: list[str] = []
        kept_from = 0
        stretch: tuple[int, int] | None = None
        for start, end in self._found(text, broken_off=broken_off):
            if stretch is not None and start < stretch[1]:
                stretch = (stretch[0], max(end, stretch[1]))
                continue
            if stretch is not None:
                parts += (text[kept_from : stretch[0]], replacement)
                kept_from = stretch[1]
            stretch = (start, end)
        if stretch is not None:
            parts += (text[kept_from : stretch[0]], replacement)
            kept_from = stretch[1]
        return "".join((*parts, text[kept_from:]))

    def _found(self, text: str, *, broken_off: bool = False) -> Iterator[tuple[int, int]]:
        """Where they stand, in the order of their starts: at each place the longest."""
        for at in range(len(text) - MIN_KNOWN_CHARS + 1):
            for needle in self._by_head.get(text[at : at + MIN_KNOWN_CHARS], ()):
                if text.startswith(needle, at):
                    yield at, at + len(needle)
                    break
                if broken_off and len(needle) > len(text) - at and needle.startswith(text[at:]):
                    yield at, len(text)
                    break
