"""The ways one value is usually written: itself, escaped for JSON or a URL, in hex, and inside base 64.

Base 64 shifts with what stands before it (``user:`` in a basic-auth header), so a value has three spellings there, of
which only the characters that depend on nothing but the value are searched for.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

# A shorter value occurs everywhere by chance: it is taken out only where it is the whole string.
MIN_KNOWN_CHARS = 4
# A line of a multi-line secret, such as a private key in PEM, is secret by itself from this length on.
_MIN_LINE_CHARS = 16
_BYTES_PER_GROUP = 3
_CHARS_PER_GROUP = 4


def list_encodings(value: str) -> frozenset[str]:
    # A file's last line feed is hardly ever said with the rest.
    found = {*_encode(value), *_encode(value.strip())}
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line.strip()) >= _MIN_LINE_CHARS and not line.startswith("-----"):
                found.update(_encode(line.strip()))
    return frozenset(pattern for pattern in found if len(pattern) >= MIN_KNOWN_CHARS)


def _encode(value: str) -> Iterator[str]:
    if len(value) < MIN_KNOWN_CHARS:
        return
    raw = value.encode("utf-8", "backslashreplace")
    text = raw.decode()
    yield text
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    for escaped in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield escaped
        yield _lower_escapes(escaped)
    yield raw.hex()
    yield raw.hex().upper()
    for shift in range(_BYTES_PER_GROUP):
        core = _base64_core(raw, shift)
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _base64_core(raw: bytes, shift: int) -> str:
    """The part of the base 64 of ``shift`` unknown bytes + ``raw`` + more unknown bytes that ``raw`` alone decides."""
    encoded = base64.b64encode(b"\x00" * shift + raw).decode().rstrip("=")
    # Characters that hold bits of a neighbour: those of the shifted-in bytes, and a last partial one.
    first = -(-shift * _CHARS_PER_GROUP // _BYTES_PER_GROUP)
    whole = (shift + len(raw)) * 8 // 6
    return encoded[first:whole]


def _lower_escapes(escaped: str) -> str:
    head, *rest = escaped.split("%")
    return head + "".join("%" + part[:2].lower() + part[2:] for part in rest)


# Many known texts looked for at once: each in turn while they are few, by their first characters when they are many.
#
# A vault may hold thousands of values with a dozen spellings each. The time to look through a text then depends on
# the text, not on how many there are.

# Up to here, asking for each in turn is faster than going through the text once.
FEW = 64


class PatternSet:
    """Each has at least ``MIN_KNOWN_CHARS`` characters. One thread adds at a time; any may look."""

    def __init__(self) -> None:
        self._few: tuple[str, ...] = ()
        self._by_head: dict[str, tuple[str, ...]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            head = pattern[:MIN_KNOWN_CHARS]
            same_head = self._by_head.get(head, ())
            if pattern in same_head:
                continue
            # Longest first. Replaced whole, so that a reader sees the old ones or the new.
            self._by_head[head] = tuple(sorted((*same_head, pattern), key=len, reverse=True))
            if self._count < FEW:
                self._few = (*self._few, pattern)
            self._count += 1

    def match(self, text: str) -> bool:
        if self._count <= FEW:
            return any(pattern in text for pattern in self._few)
        heads = (text[at : at + MIN_KNOWN_CHARS] for at in range(len(text) - MIN_KNOWN_CHARS + 1))
        if self._by_head.keys().isdisjoint(heads):
            return False
        return next(self._find_spans(text), None) is not None

    def replace_in(self, text: str, replacement: str, *, broken_off: bool = False) -> str:
        """The text with every stretch that belongs to a needle replaced, also where two of them overlap. The end of a
        text that is ``broken_off`` belongs to the needle it may be the beginning of, from ``MIN_KNOWN_CHARS`` on."""
        if not broken_off and not self.match(text):
            return text
        parts: list[str] = []
        kept_from = 0
        stretch: tuple[int, int] | None = None
        for start, end in self._find_spans(text, broken_off=broken_off):
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

    def _find_spans(self, text: str, *, broken_off: bool = False) -> Iterator[tuple[int, int]]:
        """Where they stand, in the order of their starts: at each place the longest."""
        for at in range(len(text) - MIN_KNOWN_CHARS + 1):
            for pattern in self._by_head.get(text[at : at + MIN_KNOWN_CHARS], ()):
                if text.startswith(pattern, at):
                    yield at, at + len(pattern)
                    break
                if broken_off and len(pattern) > len(text) - at and pattern.startswith(text[at:]):
                    yield at, len(text)
                    break
