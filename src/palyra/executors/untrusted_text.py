"""Removal of characters that a person does not see: control, direction, zero-width and tag characters.

They hide instructions from the reader of a page and not from a model, and turn a line of a terminal around.
"""

import re
from typing import Final

from palyra.visible_text import IGNORED_POINTS

# C0 but tab and line ends, DEL and C1; line separators; surrogates; interlinear characters; those without a shape.
_HIDDEN: Final = re.compile(
    f"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufff9-\ufffb{IGNORED_POINTS}]+"
)
# Joiners and the two presentation selectors shape letters and pictures when exactly one stands between or after them.
_SHAPING: Final = frozenset("\u200c\u200d\ufe0e\ufe0f")
_LINE_ENDS: Final = re.compile("\r\n|\r|\u2028|\u2029|\x85")


def remove_hidden(text: str) -> tuple[str, int]:
    """Return the text and the number of removed characters. Line ends become line feeds and do not count."""
    text = _LINE_ENDS.sub("\n", text)
    taken = 0

    def replace(found: "re.Match[str]") -> str:
        nonlocal taken
        run, start, end = found.group(), found.start(), found.end()
        before = text[start - 1] if start else " "
        after = text[end] if end < len(text) else " "
        if len(run) == 1 and run in _SHAPING and not before.isascii() and (run > "\u200d" or not after.isascii()):
            return run
        # A selector before a joiner, as in many pictures of people.
        if run == "\ufe0f\u200d" and not before.isascii() and not after.isascii():
            return run
        taken += len(run)
        return ""

    return _HIDDEN.sub(replace, text), taken


def to_one_line(text: str, most: int) -> str:
    """Put a stranger's short text on one line of at most ``most`` characters."""
    clean = " ".join(remove_hidden(text[: most * 2])[0].split())
    return clean if len(clean) <= most else clean[: most - 1] + "…"
