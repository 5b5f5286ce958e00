"""The line of each key and each item of a TOML document.

``tomllib`` keeps no positions. The scanner reads a document once and in linear time, and looks only for where things
begin: their meaning is left to ``tomllib``. It refuses nesting and numbers that no document of ours needs, and may run
first: ``tomllib`` takes a time that grows with the square of a dotted key, and does not report the line of a number of
thousands of digits.
"""

import re
import tomllib
from typing import Final, NoReturn

Path = tuple[str | int, ...]

# A schema in a table in a list has a dozen levels.
MAX_DEPTH: Final = 64
# 64 bits in binary are 66; a double written out whole has a few hundred digits.
MAX_SCALAR_CHARS: Final = 1_000
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_GAP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_SCALAR: Final = re.compile(r"[^,\]}\n#]*")
# Either quote, its multi-line form first. A basic string has escapes, a literal one none.
_STRING: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)


class TomlRefused(Exception):
    """A document beyond the bounds here. The error for people is the caller's."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


def lines_of(text: str) -> dict[Path, int]:
    """Find line numbers, from 1, by path; an item of an array has its index as the last part of its path.

    Of a text that is not TOML the lines mean nothing. Raises ``TomlRefused``.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


def line_at(lines: dict[Path, int], path: Path) -> int:
    """Return the line of the path, or of the nearest thing around it that has one."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted_to = 0
        self._line = 1
        self._tables: dict[Path, int] = {}
        self.lines: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while True:
            self._skip(_GAP)
            if self._at >= len(self._text):
                return
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._statement(table)

    def _header(self) -> Path:
        line = self._here()
        repeated = self._text.startswith("[[", self._at)
        self._at += 2 if repeated else 1
        path: Path = ()
        parts = self._key()
        for number, part in enumerate(parts, start=1):
            path += (part,)
            self.lines.setdefault(path, line)
            if repeated and number == len(parts):
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path += (self._tables[path] - 1,)
                self.lines.setdefault(path, line)
        self._skip(_BLANK)
        self._at += 2 if repeated else 1
        return path

    def _statement(self, table: Path) -> None:
        line = self._here()
        path = table
        for part in self._key():
            path += (part,)
            self.lines.setdefault(path, line)
        self._skip(_BLANK)
        self._at += 1
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            found = _STRING.match(self._text, self._at) or _BARE.match(self._text, self._at)
            if found is None:
                return parts
            if len(parts) == MAX_DEPTH:
                self._refuse("nested too deeply")
            self._at = found.end()
            word = found.group()
            parts.append(_unquoted(word) if word[0] in "\"'" else word)
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        if len(path) > MAX_DEPTH:
            self._refuse("nested too deeply")
        self._skip(_BLANK)
        match self._text[self._at : self._at + 1]:
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case _:
                found = _STRING.match(self._text, self._at) or self._scalar()
                # At least one character on, so that no reading of ours could stand still.
                self._at = max(found.end() if found else 0, self._at + 1)

    def _scalar(self) -> re.Match[str] | None:
        found = _SCALAR.match(self._text, self._at)
        if found and len(found.group().rstrip()) > MAX_SCALAR_CHARS:
            self._refuse(f"a value without quotes has more than {MAX_SCALAR_CHARS} characters")
        return found

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_GAP)
            if self._text[self._at : self._at + 1] in ("]", ""):
                self._at += 1
                return
            self.lines.setdefault((*path, index), self._here())
            self._value((*path, index))
            index += 1
            self._skip(_GAP)
            if self._text.startswith(",", self._at):
                self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_GAP)
            if self._text[self._at : self._at + 1] in ("}", ""):
                self._at += 1
                return
            self._statement(path)
            self._skip(_GAP)
            if self._text.startswith(",", self._at):
                self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()

    def _refuse(self, message: str) -> NoReturn:
        raise TomlRefused(self._here(), message)

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._line


def _unquoted(word: str) -> str:
    try:
        text: str = tomllib.loads(f"key = {word}")["key"]
    except tomllib.TOMLDecodeError:
        return word
    return text


def lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """Find the line of every table and key. Tables of a list count as one, at its first line."""
    found: dict[tuple[str, ...], int] = {}
    for path, line in lines_of(text).items():
        found.setdefault(tuple(part for part in path if isinstance(part, str)), line)
    return found
