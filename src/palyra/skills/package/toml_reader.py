"""Strict reading of a manifest's tables. Refusals name the key and the line."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from palyra.config.toml_lines import Path, line_at
from palyra.errors import InvalidInput, PalyraError

T = TypeVar("T")
_LIKENESS: Final = 0.6
_SHOWN_CHARS: Final = 80
# Python does not write out whole numbers of thousands of digits, and no person reads them.
_SHOWN_BITS: Final = 64


class MalformedManifest(InvalidInput):
    """``line`` is in the details too."""

    code = "skill.malformed_manifest"
    hint = "docs/reference/skill-manifest.md lists every key with its type and bounds"


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
            if default is None:
                self.refuse(f"{dotted((*self._path, key))} is missing")
            return default
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
