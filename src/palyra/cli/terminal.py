"""Text from outside, made fit to be read by a person.

Tool output, reasons, arguments and file names are written by agents and strangers. What is not a visible character is
spelled out, so that nothing shown can move the cursor, hide a word, reverse the reading order, or look like a line of
ours. Values are shown as JSON, in which the spelled-out form is exact.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

_MAX_BMP = 0xFFFF
_LABEL_GAP = 2


def shown(text: str) -> str:
    """One line: every character that is not visible is spelled out, newlines and tabs too."""
    return text if text.isprintable() else "".join(map(_visible, text))


def shown_block(text: str) -> str:
    """Several lines: newlines and tabs stay."""
    return "".join(char if char in "\n\t" else _visible(char) for char in text)


def pretty_json(value: Any) -> str:
    """JSON for people: letters of any script as they are, everything invisible as a JSON escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return "\n".join(line if line.isprintable() else "".join(map(_json_visible, line)) for line in text.split("\n"))


def labelled(rows: Iterable[tuple[str, str]], indent: int = 0) -> str:
    """Lines of ``label  value``; a value of several lines continues under its first, so it cannot pose as a label."""
    given = [(label, value) for label, value in rows if value]
    width = max((len(label) for label, _ in given), default=0) + _LABEL_GAP
    lines = []
    for label, value in given:
        first, *rest = value.split("\n")
        lines.append(" " * indent + label.ljust(width) + first)
        lines += [" " * (indent + width) + line for line in rest]
    return "\n".join(lines)


def command_line(*words: str) -> str:
    """A command to be copied into a shell, each word quoted where it needs it."""
    return " ".join(word if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", word) else _quoted(word) for word in words)


def _quoted(word: str) -> str:
    return "'" + shown(word).replace("'", "'\"'\"'") + "'"


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code <= 0xFF:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= _MAX_BMP else f"\\U{code:08x}"


def _json_visible(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"
