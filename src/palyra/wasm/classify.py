"""From what the engine says of a guest's end to an error kind. Components report traps as text only.

A backtrace repeats names that the guest chose, with line feeds in them if it likes. The engine's causes come behind it,
so nothing but the last line of the last cause is taken for the engine's word.
"""

import re
from typing import Final

# wasmtime's trap codes that have a kind of their own: interrupted by the epoch, and out of fuel.
_KINDS: Final[dict[int | None, str]] = {10: "timed_out", 11: "fuel_exhausted"}

_PHRASES: Final = (
    ("wasm trap: all fuel consumed", "fuel_exhausted"),
    ("wasm trap: interrupt", "timed_out"),
    ("exceeds memory limits", "memory_exceeded"),
    ("exceeds table limits", "memory_exceeded"),
    ("resource limit exceeded", "memory_exceeded"),
)
_IMPORTS: Final = ("unknown import", "component imports")
# Near its limit a guest that cannot grow usually traps in its allocator.
_FULL: Final = 7 / 8
_CAUSED_BY: Final = "\n\nCaused by:\n"
_NUMBER: Final = re.compile(r"\d+: ")


def kind_of_trap(code: int | None) -> str:
    return _KINDS.get(code, "trap")


def kind_of_error(text: str) -> str:
    """The kind of an error that came as text, ``trap`` when it names none."""
    said = _last_cause(text)
    return next((kind for phrase, kind in _PHRASES if phrase in said), "trap")


def with_memory(kind: str, peak: int, limit: int) -> str:
    """A trap of a guest whose memory was nearly full counts as want of memory."""
    return "memory_exceeded" if kind == "trap" and limit and peak >= limit * _FULL else kind


def cause(text: str) -> str:
    """The line that says why a guest ended, without the backtrace."""
    return _last_cause(text).removeprefix("wasm trap: ")


def _last_cause(text: str) -> str:
    """Causes are numbered where there are several, the deepest last."""
    line = text.rpartition(_CAUSED_BY)[2].strip().rpartition("\n")[2].strip()
    return line[found.end() :] if (found := _NUMBER.match(line)) else line


def is_about_imports(text: str) -> bool:
    """Whether a module was refused for something the host does not have."""
    return text.startswith(_IMPORTS)


def complaint(text: str) -> str:
    """Why a module is refused, in one line and in the engine's order: names in it never stand alone."""
    return " ".join(text.replace(_CAUSED_BY, ": ", 1).split())
