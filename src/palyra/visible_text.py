"""Text that strangers chose, shown so that a person sees every character.

A character is spelled out as an escape if it has no shape of its own, turns its line around, changes its neighbour, or
poses as an ASCII character. ``str.isprintable`` is not enough: variation selectors, fillers and tags pass it.

A word that is wholly of another alphabet stays as it is, so that people can read their languages. It is spelled out if
all its letters have Latin twins, and it is part of a name with Latin letters or no other letter near it tells of the
alphabet.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

# Unicode's Default_Ignorable_Code_Point, whatever their category: soft hyphen, fillers, zero-width and direction marks,
# invisible operators, variation selectors, byte order mark, format characters of shorthand and music, tags.
IGNORED_POINTS: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Blank in fonts: braille, null notehead, Khitan filler, interlinear and object characters, Egyptian marks.
_BLANK_POINTS: Final = "\u2800\ufff9-\ufffc\U0001d159\U00016fe4\U00013440\U00013447-\U00013455"
# Shapes that stand for an ASCII character in most fonts: straight quotes, hyphens, dots, slashes, colons, comma, stars,
# bars, brackets, equals and exclamation signs, letters and digits of mathematics. Curly quotes and dashes are prose.
_POSING_POINTS: Final = (
    "\u01c0\u01c3\u02b9\u02ba\u02c2-\u02c4\u02c8\u02cb-\u02cd\u02d0\u02dc\u02ee\u02f8\u0589\u16ec\u1803\u1809\u201a\u2032\u2033\u2035"
    "\u2039\u203a\u2043\u204e\u205a\u2217\u223c\u23d0\u2571\u2572\u2758\u2768\u2769\u2e3d\u2e40\ua4f8-\ua4ff\ua778\ua78a-\ua78c\uffe8"
    "\u02d7\u2010\u2011\u2024\u2044\u2212\u2215\u2216\u2223\u2236\u29f5\u29f8\u29f9\ua789\ufe68"
    "\u2100-\u217f\U0001d400-\U0001d7ff\U0001fbf0-\U0001fbf9"
)
# Marks that sit on any character. One over ``=`` makes ``≠`` of it, and a composed letter looks like its two parts.
_COMMON_MARKS: Final = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_SPELLED: Final = re.compile(f"[{IGNORED_POINTS}{_BLANK_POINTS}{_POSING_POINTS}{_COMMON_MARKS}]")
# Vowels and finals of Korean, which are letters and join the one before them.
_JOINING: Final = re.compile("[\u1161-\u11ff\ud7b0-\ud7ff]")
_RIGHT_TO_LEFT: Final = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_ASCII_WORD: Final = re.compile("[A-Za-z0-9]")
# Letters and digits of these scripts have the shapes of Latin ones: Armenian, Cherokee, Coptic, Cyrillic, Greek, Lisu,
# those of India and its neighbours, Georgian, Ethiopic, Canadian, Runic, Tifinagh, Vai, Bamum, and ancient ones.
_LIKE_LATIN: Final = (
    "\u0370-\u058f\u0900-\u10ff\u1200-\u17ff\u1c80-\u1cbf\u1d00-\u1d7f\u1f00-\u1fff\u2c80-\u2dff\ua4d0-\ua69f"
    "\ua6a0-\ua6ff\ua731\ua7ae-\ua7ff\uab30-\uabff\u0250-\u02af\u0131\u0237"
    "\U00010280-\U000107ff\U00011000-\U00011fff\U00016800-\U00016fff"
)
# Those of living scripts that no font tells from a Latin letter. A word of nothing else can pose as a Latin word.
_TWINS: Final = (
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0455\u0458\u04bb\u0501\u051b\u051d\u0475\u04cf"
    "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u04ae\u050c\u051c"
    "\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bd\u03bf\u03c1\u03f2\u03f3"
    "\u0555\u054d\u054f\u053c\u0585\u057d\u0570\u0578\u0581\u13a0-\u13f5\ua4d0-\ua4f7\u2c9e\u2c9f\u2ca2-\u2ca5"
)
# An escape of ours, so that its letter is no part of the word behind it, or a word.
_WORD: Final = re.compile(r'\\(?:u[0-9a-f]{4}|U[0-9a-f]{8}|x[0-9a-f]{2}|["\\/bfnrt])|[^\W_]+')
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f]")
_LIKE_LATIN_LETTER: Final = re.compile(f"[{_LIKE_LATIN}]")
_TWINS_ONLY: Final = re.compile(f"[{_TWINS}]+")
_NO_TWIN: Final = re.compile(f"(?![{_TWINS}])[{_LIKE_LATIN}]")
# What a reader takes for one name: a file's, a host's.
_NAME: Final = re.compile(r"""[^\s"'`,;()<>{}\[\]|&=]+""")
_BEYOND_ASCII: Final = re.compile(r"[^\x20-\x7e]+")
# Letters of no living language carry more marks; a pile of them covers the lines above.
MAX_MARKS: Final = 4
# Characters that are looked up once: more than any language has, less than a text of all of Unicode would take.
MAX_KNOWN_CHARS: Final = 32_768
_MAX_BMP: Final = 0xFFFF
_LABEL_GAP: Final = 2

_SHAPE, _LETTER, _MARK, _HIDDEN = range(4)


class _Kinds(dict[str, int]):
    def __missing__(self, char: str) -> int:
        import unicodedata

        if not char.isprintable() or _SPELLED.match(char) or not unicodedata.is_normalized("NFC", char):
            kind = _HIDDEN
        elif unicodedata.category(char)[0] == "M" or _JOINING.match(char):
            kind = _MARK
        else:
            kind = _LETTER if char.isalpha() else _SHAPE
        if len(self) >= MAX_KNOWN_CHARS:
            self.clear()
        self[char] = kind
        return kind


_kinds = _Kinds()


def is_visible(text: str) -> bool:
    return _replace_hidden(text, json_escape) == text


def escape(text: str) -> str:
    """Make one line: every character that is not visible is spelled out, newlines and tabs too."""
    return _replace_hidden(text, short_escape)


def escape_block(text: str) -> str:
    """Make several lines visible: newlines and tabs stay."""
    return _replace_hidden(text, short_escape, keep="\n\t")


def spell(text: str) -> str:
    """Write one value on one line: as it is, or as a JSON string if a reader could take it for anything else.

    No two values are written alike.
    """
    if text and not any(char in ' "\\' for char in text) and is_visible(text):
        return text
    return spell_json(text)


def spell_json(value: Any, *, indent: int | None = 2) -> str:
    """Write JSON that parses to the value and has visible characters only."""
    return spell_json_text(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False))


def spell_json_text(text: str) -> str:
    return _replace_hidden(text, json_escape, keep="\n")


def respell_json(text: str) -> str:
    """Lay JSON text out in lines, with visible characters only. What is not JSON keeps its one line."""
    try:
        return spell_json(json.loads(text))
    except ValueError:
        return spell_json_text(text)


def spell_block(text: str) -> str:
    """Write text of several lines with the escapes of JSON, but with its own lines and tabs."""
    return _replace_hidden(text.replace("\\", "\\\\"), json_escape, keep="\n\t")


def render_fields(rows: Iterable[tuple[str, str]], indent: int = 0) -> str:
    """Write lines of ``label  value``. A value of several lines is indented, so it cannot pose as a label."""
    given = [(label, value) for label, value in rows if value]
    width = max((len(label) for label, _ in given), default=0) + _LABEL_GAP
    lines = []
    for label, value in given:
        first, *rest = value.split("\n")
        lines.append(" " * indent + label.ljust(width) + first)
        lines += [" " * (indent + width) + line for line in rest]
    return "\n".join(lines)


def json_escape(char: str) -> str:
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


def short_escape(char: str) -> str:
    """Write one character as ``\\x1b`` or ``\\u202e``."""
    code = ord(char)
    if code <= 0xFF:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= _MAX_BMP else f"\\U{code:08x}"


def _replace_hidden(text: str, spelled: Callable[[str], str], keep: str = "") -> str:
    if text.isascii() and (text.isprintable() or (keep and all(map(str.isprintable, re.split(f"[{keep}]", text))))):
        return text

    def spell_run(found: "re.Match[str]") -> str:
        import unicodedata

        run, written = found[0], []
        most = MAX_MARKS if unicodedata.is_normalized("NFC", run) else 0
        # None of the kept marks belongs on an ASCII character.
        marks = most
        for char in run:
            kind = _kinds[char]
            hidden = kind == _HIDDEN or (kind == _MARK and marks >= most)
            written.append(spelled(char) if hidden and char not in keep else char)
            marks = 0 if kind == _LETTER else marks + 1 if kind == _MARK else most
        return "".join(written)

    text = _BEYOND_ASCII.sub(spell_run, text)
    if _LIKE_LATIN_LETTER.search(text):
        text = "\n".join(_spell_posing(line, spelled) for line in text.split("\n"))
    if _RIGHT_TO_LEFT.search(text):
        text = "\n".join(_spell_reordered(line, spelled) for line in text.split("\n"))
    return text


def _spell_posing(line: str, spelled: Callable[[str], str]) -> str:
    line = _WORD.sub(lambda word: _spell_mixed(word[0], spelled), line)
    if not _LIKE_LATIN_LETTER.search(line):
        return line
    # A sentence of another alphabet has letters without a Latin twin; its words of twins only deceive nobody.
    if not _NO_TWIN.search(line):
        return _spell_twins(line, spelled)
    return _NAME.sub(lambda name: _spell_twins(name[0], spelled) if _ASCII_WORD.search(name[0]) else name[0], line)


def _spell_twins(text: str, spelled: Callable[[str], str]) -> str:
    """Spell out words that consist of twins of Latin letters."""
    return _WORD.sub(lambda word: "".join(map(spelled, word[0])) if _TWINS_ONLY.fullmatch(word[0]) else word[0], text)


def _spell_mixed(word: str, spelled: Callable[[str], str]) -> str:
    """Spell out letters with a Latin shape, where they would pose as the neighbours of Latin letters."""
    is_mixed = word[0] != "\\" and _LATIN.search(word)
    return _LIKE_LATIN_LETTER.sub(lambda char: spelled(char[0]), word) if is_mixed else word


def _spell_reordered(line: str, spelled: Callable[[str], str]) -> str:
    """Spell out letters that run from right to left, where they would reorder what else is on their line."""
    return _RIGHT_TO_LEFT.sub(lambda char: spelled(char[0]), line) if _ASCII_WORD.search(line) else line
