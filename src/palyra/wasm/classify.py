"""From what the engine says of a guest's end to an error kind. Components report traps as text only."""

import re
from typing import Final

# wasmtime's trap codes that have a kind of their own: interrupted by the epoch, and out of fuel.
_KINDS: Final[dict[int | None, str]] = {10: "timed_out", 11: "fuel_exhausted"}

_PHRASES: Final = (
    ("all fuel consumed", "fuel_exhausted"),
    ("wasm trap: interrupt", "timed_out"),
    ("exceeds memory limits", "memory_exceeded"),
    ("exceeds table limits", "memory_exceeded"),
    ("resource limit exceeded", "memory_exceeded"),
    ("unknown import", "link"),
    ("component imports", "link"),
)
# Near its limit a guest that cannot grow usually traps in its allocator.
_FULL: Final = 7 / 8
_LAST_CAUSE: Final = re.compile(r"(?:wasm trap: )?([^\n]+)\s*\Z")
_CAUSE_LINE: Final = re.compile(r"\n\s*(?:\d+: )?wasm trap: ([^\n]+)")


def kind_of_trap(code: int | None) -> str:
    return _KINDS.get(code, "trap")


def kind_of_error(text: str) -> str:
    """The kind of an error that came as text, ``trap`` when it names none."""
    return next((kind for phrase, kind in _PHRASES if phrase in text), "trap")


def with_memory(kind: str, peak: int, limit: int) -> str:
    """A trap of a guest whose memory was nearly full counts as want of memory."""
    return "memory_exceeded" if kind == "trap" and limit and peak >= limit * _FULL else kind


def cause(text: str) -> str:
    """The line that says why, without the backtrace."""
    found = _CAUSE_LINE.search(text) or _LAST_CAUSE.search(text)
    return found.group(1).strip() if found else text.strip()
