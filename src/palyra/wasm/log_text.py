"""Text that a guest wrote, made fit to be shown: no control characters, no direction changes, never long."""

import unicodedata
from typing import Final

CUT: Final = "…"
# Beside what Python calls printable: that excludes every space but the plain one.
_KEPT: Final = "\t"
_SPACES: Final = "Zs"


def shown(text: str, limit: int) -> str:
    """The same text in at most ``limit`` characters, with unfit ones as ``\\u{…}``."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(_visible(character) for character in cut)
    if len(cut) > limit or len(text) > limit:
        return cut[: max(0, limit - 1)] + CUT
    return cut


def _visible(character: str) -> str:
    if character in _KEPT or character.isprintable() or unicodedata.category(character) == _SPACES:
        return character
    return f"\\u{{{ord(character):x}}}"
