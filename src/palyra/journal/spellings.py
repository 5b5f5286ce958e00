"""The ways one value is usually written: itself, escaped for JSON or a URL, in hex, and inside base 64.

Base 64 shifts with what stands before it (``user:`` in a basic-auth header), so a value has three spellings there, of
which only the characters that depend on nothing but the value are searched for.
"""

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

# A shorter value occurs everywhere by chance: it is taken out only where it is the whole string.
MIN_KNOWN_CHARS = 4
# A line of a multi-line secret, such as a private key in PEM, is secret by itself from this length on.
_MIN_LINE_CHARS = 16
_BYTES_PER_GROUP = 3
_CHARS_PER_GROUP = 4


def spellings_of(value: str) -> frozenset[str]:
    # A file's last line feed is hardly ever said with the rest.
    found = {*_spellings(value), *_spellings(value.strip())}
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line.strip()) >= _MIN_LINE_CHARS and not line.startswith("-----"):
                found.update(_spellings(line.strip()))
    return frozenset(needle for needle in found if len(needle) >= MIN_KNOWN_CHARS)


def _spellings(value: str) -> Iterator[str]:
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
