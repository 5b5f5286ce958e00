"""The line of each key and each item of a TOML document, and strict reading of a manifest's tables.

``tomllib`` keeps no positions. The scanner reads a document once and in linear time, and looks only for where things
begin: their meaning is left to ``tomllib``. It runs first and refuses nesting and numbers that no manifest needs:
``tomllib`` takes a time that grows with the square of a dotted key, and does not report the line of a number of
thousands of digits.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from palyra.errors import InvalidInput, PalyraError

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


class MalformedManifest(InvalidInput):
    """``line`` is in the details too."""

    code = "skill.malformed_manifest"
    hint = "docs/reference/skill-manifest.md lists every key with its type and bounds"


def lines_of(text: str) -> dict[Path, int]:
    """Find line numbers, from 1, by path; an item of an array has its index as the last part of its path.

    Of a text that is not TOML the lines mean nothing. Raises ``MalformedManifest``.
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
        line = self._here()
        raise MalformedManifest(f"line {line}: {message}", line=line)

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


T = TypeVar("T")
_LIKENESS: Final = 0.6
_SHOWN_CHARS: Final = 80
# Python does not write out whole numbers of thousands of digits, and no person reads them.
_SHOWN_BITS: Final = 64


class Form(NamedTuple):
    """The spelling of a text. ``words`` describe it in the refusal of another spelling."""

    pattern: re.Pattern[str]
    words: str


class ManifestTable:
    """Reads one table of a manifest key by key. Refusals name the key and the line. ``finish`` refuses the rest."""

    def __init__(self, values: Mapping[str, Any], lines: dict[Path, int], path: Path = ()) -> None:
        self._values = values
        self._lines = lines
        self._path = path
        self._known: list[str] = []

    def refuse(self, message: str, *path: str | int, hint: str | None = None) -> NoReturn:
        whole = (*self._path, *path)
        line = line_at(self._lines, whole)
        raise MalformedManifest(f"line {line}: {message}", hint=hint, line=line, key=dotted(whole))

    def text(self, key: str, *, most: int, form: Form | None = None, default: str | None = None) -> str:
        value = self._take(key)
        if value is None:
            return self._default(key, default)
        return self._text(value, most, form, key)

    def texts(self, key: str, *, most: int, each: int) -> tuple[str, ...]:
        """Read a list of different strings. An absent one is empty."""
        value = self._take(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(f"{key} is {_kind(value)}, not a list of strings", key)
        if len(value) > most:
            self.refuse(f"{key} has {len(value)} entries; at most {most} are allowed", key)
        found = [self._text(item, each, None, key, index) for index, item in enumerate(value)]
        for index, item in enumerate(found):
            if item in found[:index]:
                self.refuse(f"{key} lists {item!r} twice", key, index)
        return tuple(found)

    def integer(self, key: str, *, least: int, most: int) -> int | None:
        value = self._take(key)
        if value is None:
            return None
        if type(value) is not int:
            self.refuse(f"{key} is {_kind(value)}, not a whole number", key)
        if not least <= value <= most:
            self.refuse(f"{key} is {_render_number(value)}; it must be between {least} and {most}", key)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key)
        if value is None:
            return default
        if type(value) is not bool:
            self.refuse(f"{key} is {_kind(value)}, not true or false", key)
        return value

    def parsed(self, key: str, value: str, parse: Callable[[str], T], *index: int) -> T:
        """Call ``parse`` of another package. Its refusal gets this manifest's line and keeps its own hint."""
        try:
            return parse(value)
        except PalyraError as error:
            self.refuse(f"{key}: {error.message}", key, *index, hint=error.hint)

    def raw(self, key: str) -> Any:
        """Return the value as TOML gave it, or None, for a caller with a reader of its own."""
        return self._take(key)

    def table(self, key: str) -> "ManifestTable":
        """Return the table under the key. An absent one is empty."""
        value = self._take(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            self.refuse(f"{key} is {_kind(value)}, not a table", key)
        return ManifestTable(value, self._lines, (*self._path, key))

    def tables(self, key: str, *, most: int) -> Iterator["ManifestTable"]:
        value = self._take(key)
        if value is None:
            return
        if not isinstance(value, list):
            self.refuse(f"{key} is {_kind(value)}, not a list of tables: write [[{dotted((*self._path, key))}]]", key)
        if len(value) > most:
            self.refuse(f"{key} has {len(value)} tables; at most {most} are allowed", key, most)
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                self.refuse(f"{key} holds {_kind(item)}, not a table", key, index)
            yield ManifestTable(item, self._lines, (*self._path, key, index))

    def finish(self) -> None:
        for key in self._values:
            if key in self._known:
                continue
            near = difflib.get_close_matches(key, self._known, n=1, cutoff=_LIKENESS)
            where = f"[{dotted(self._path)}]" if self._path else "the top level"
            suggestion = f"; did you mean {near[0]}?" if near else f"; it knows {', '.join(sorted(self._known))}"
            self.refuse(f"{where} has no key {key[:_SHOWN_CHARS]!r}{suggestion}", key)

    def _take(self, key: str) -> Any:
        self._known.append(key)
        return self._values.get(key)

    def _default(self, key: str, default: str | None) -> str:
        if default is None:
            self.refuse(f"{dotted((*self._path, key))} is missing")
        return default

    def _text(self, value: Any, most: int, form: Form | None, key: str, *index: int) -> str:
        if not isinstance(value, str):
            self.refuse(f"{key} is {_kind(value)}, not a string", key, *index)
        if not value.strip():
            self.refuse(f"{key} is empty", key, *index)
        if len(value) > most:
            self.refuse(f"{key} has {len(value)} characters; at most {most} are allowed", key, *index)
        odd = invisible_in(value)
        if odd:
            self.refuse(f"{key} has the invisible character U+{ord(odd):04X}", key, *index)
        if form is not None and not form.pattern.fullmatch(value):
            self.refuse(f"{key} may not be {value[:_SHOWN_CHARS]!r}: it is {form.words}", key, *index)
        return value


def invisible_in(value: Any) -> str:
    """Return the first character at any depth that a person would not see and a model would read, or nothing."""
    if isinstance(value, str):
        if value.isprintable():
            return ""
        return next((char for char in value if not char.isprintable() and char not in "\n\t"), "")
    if isinstance(value, dict):
        return next(filter(None, map(invisible_in, [*value, *value.values()])), "")
    return next(filter(None, map(invisible_in, value)), "") if isinstance(value, list) else ""


def dotted(path: Path) -> str:
    """Write a path as ``entrypoints.tools[0].id``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _render_number(value: int) -> str:
    return str(value) if value.bit_length() <= _SHOWN_BITS else f"a number of {value.bit_length()} bits"


def _kind(value: Any) -> str:
    names = {dict: "a table", list: "a list", str: "a string", bool: "true or false", int: "a whole number"}
    return names.get(type(value), "a number" if isinstance(value, float) else "a date or time")
