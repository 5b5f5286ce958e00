"""Reads a TOML settings file and tells on which line each key stands.

``tomllib`` keeps no positions. Every TOML statement is itself a small TOML document, so the text is cut at the points
where ``tomllib`` accepts what was gathered so far, and the line where each statement began is kept.
"""

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from palyra.errors import InvalidInput, Unavailable
from palyra.limits import KIB

# A settings file is written by hand; more is some other file given by mistake.
MAX_SETTINGS_FILE_BYTES: Final = 256 * KIB


class SettingsSyntax(InvalidInput):
    code = "config.syntax"
    hint = "the settings file is TOML; see https://toml.io"


class SettingsUnreadable(Unavailable):
    code = "config.unreadable"
    hint = "check the path and its permissions"


class TomlFile(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    tree: dict[str, Any]
    lines: dict[tuple[str, ...], int]


def read_toml(path: Path) -> TomlFile:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SETTINGS_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsUnreadable(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    if len(raw) > MAX_SETTINGS_FILE_BYTES:
        raise SettingsSyntax(f"{path} is larger than {MAX_SETTINGS_FILE_BYTES} bytes", path=str(path))
    try:
        text = raw.decode()
        tree = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsSyntax(f"{path}: {error}", path=str(path)) from error
    return TomlFile(path=path, tree=tree, lines=lines_of_keys(text))


def lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """Line numbers, from 1, of every table and key of a document that is known to be valid TOML."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    statement, first_line = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        if not statement:
            first_line = number
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith("["):
            table = _path_of_header(parsed)
            for depth in range(1, len(table) + 1):
                found.setdefault(table[:depth], first_line)
        else:
            _note_keys(parsed, table, first_line, found)
        statement = ""
    return found


def _path_of_header(parsed: dict[str, Any]) -> tuple[str, ...]:
    path: tuple[str, ...] = ()
    inner: Any = parsed
    while inner:
        if isinstance(inner, list):
            inner = inner[0]
            continue
        ((name, inner),) = inner.items()
        path += (name,)
    return path


def _note_keys(parsed: dict[str, Any], table: tuple[str, ...], line: int, found: dict[tuple[str, ...], int]) -> None:
    for name, value in parsed.items():
        found.setdefault((*table, name), line)
        if isinstance(value, dict):
            _note_keys(value, (*table, name), line, found)
