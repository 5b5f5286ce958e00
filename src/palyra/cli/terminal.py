"""Everything that a command prints and reads: data on stdout, prose on stderr, and with ``--json`` one document.

Agents and strangers write tool output, reasons, arguments and file names. Characters that are not visible are spelled
out, so that no text can move the cursor, hide a word, recolour a verdict, reverse the reading order, or pose as a line
of ours. Values are shown as JSON, in which the spelled-out form is exact.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO

import click

from palyra.errors import InvalidInput, LimitExceeded, PalyraError
from palyra.visible_text import IGNORED_POINTS, escape, short_escape

# C0 except tab and newline, DEL, C1, line and paragraph separators, surrogates, and what has no shape.
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufff9-\ufffb{IGNORED_POINTS}]")
_UNSAFE_OR_OUR_STYLE = re.compile(rf"\x1b\[(?:0|1|31|32|33|36)m|{_UNSAFE.pattern}")
_STYLES: Final = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def printable(text: str) -> str:
    r"""Spell out every character that could steer a terminal, as in ``\\x1b``."""
    return _UNSAFE.sub(lambda match: short_escape(match[0]), text)


def one_line(text: str) -> str:
    """Make a field printable: like ``printable``, with newlines and tabs spelled out too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def to_json_values(value: Any) -> Any:
    """Convert structs, dates, bytes, ids, paths and redacted secrets to plain JSON values."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True, enc_hook=_value_msgspec_does_not_know)


def _value_msgspec_does_not_know(value: Any) -> Any:
    if hasattr(value, "__json__"):
        return value.__json__()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


class Output:
    """One per invocation. ``json`` may be switched on while options are being parsed."""

    def __init__(
        self, json: bool = False, *, color: bool = True, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.json = json
        self.color = color and not os.environ.get("NO_COLOR")
        self._stdout = stdout
        self._stderr = stderr
        self._answered = False

    def data(self, value: Any, render: Callable[[Any], str | None] | None = None) -> None:
        """Print the command's one answer.

        With ``--json`` it is ``{"ok": true, "data": value}``. Otherwise ``render(value)`` gives the text; a render that
        prints by itself (with ``text`` and ``table``) returns None. Without a render the value is shown as JSON.
        """
        if self._answered:
            raise RuntimeError("a command answers once: output.data() was called a second time")
        if self.json:
            self._document({"ok": True, "data": value})
            return
        self._answered = True
        rendered = _as_json(value, pretty=True) if render is None else render(value)
        if rendered is not None:
            self.text(rendered)

    def listing(
        self, name: str, found: Iterable[Any], columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Answer with a list of views: their documents under ``name`` with ``--json``, else a table."""
        self.data({name: [one.document for one in found]}, lambda _: self.table(columns, rows))

    def text(self, text: str) -> None:
        """Print a part of a rendered answer on stdout, and nothing with ``--json``."""
        if not self.json:
            self._write(self._out, text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows on stdout: drawn on a terminal, aligned columns in a pipe; nothing with ``--json``."""
        if self.json:
            return
        cells = [[one_line(str(cell)) for cell in row] for row in (columns, *rows)]
        if _is_terminal(self._out):
            self._draw(cells)
        else:
            self._write(self._out, align(cells))

    def lines(self, lines: Iterable[str]) -> None:
        """Print long lines on stdout: folded on a terminal, unchanged in a pipe; nothing with ``--json``."""
        if self.json:
            return
        for line in map(one_line, lines):
            if _is_terminal(self._out):
                from palyra.cli.table import fold_line

                line = "\n".join(fold_line(line, _width()))
            self._write(self._out, line)

    def fold_fields(self, text: str, *, on_stderr: bool = False) -> str:
        """Fold lines of ``label  value`` for a terminal; leave them as they are in a pipe."""
        stream = self._err if on_stderr else self._out
        if not _is_terminal(stream):
            return text
        from palyra.cli.table import fold_fields

        return fold_fields(text, _width(stream))

    def note(self, text: str) -> None:
        """Print prose on stderr, in both modes."""
        self._write(self._err, text)

    def warning(self, text: str) -> None:
        self._write(self._err, f"{self.style('warning', 'yellow', 'bold', stream=self._err)}: {text}")

    def error(self, error: PalyraError) -> None:
        """Print the document on stdout with ``--json`` unless the answer is already there, else prose on stderr."""
        if self.json and not self._answered:
            self._document({"ok": False, "error": error.as_dict()})
        else:
            self._write(self._err, f"{self.style('error', 'red', 'bold', stream=self._err)}: {error.diagnostics()}")

    def style(self, text: str, *styles: str, stream: TextIO | None = None) -> str:
        """Make the text bold, red, green, yellow or cyan if the stream shows colour."""
        safe = printable(text)
        if not self._shows_color(stream or self._out):
            return safe
        return "".join(f"\x1b[{_STYLES[style]}m" for style in styles) + safe + "\x1b[0m"

    @contextmanager
    def working(self, message: str) -> Iterator[None]:
        """Show a spinner on stderr while long work goes on, if a person is watching."""
        if self.json or not _is_terminal(self._err):
            yield
            return
        from rich import markup
        from rich.console import Console

        with Console(file=self._err, no_color=not self.color).status(markup.escape(one_line(message))):
            yield

    def flush(self) -> None:
        self._out.flush()
        self._err.flush()

    @property
    def _out(self) -> TextIO:
        return self._stdout or sys.stdout

    @property
    def _err(self) -> TextIO:
        return self._stderr or sys.stderr

    def _shows_color(self, stream: TextIO) -> bool:
        return self.color and _is_terminal(stream) and os.environ.get("TERM") != "dumb"

    def _document(self, document: dict[str, Any]) -> None:
        text = _as_json(document, pretty=_is_terminal(self._out))
        self._answered = True
        click.echo(text, file=self._out)

    def _write(self, stream: TextIO, text: str) -> None:
        if self._shows_color(stream):
            text = _UNSAFE_OR_OUR_STYLE.sub(
                lambda match: match[0] if len(match[0]) > 1 else short_escape(match[0]), text
            )
        else:
            text = printable(text)
        click.echo(text, file=stream, nl=not text.endswith("\n"), color=True)

    def _draw(self, cells: Sequence[Sequence[str]]) -> None:
        from palyra.cli.table import draw_table

        head, rows = draw_table(cells, _width())
        self._write(self._out, "\n".join([*(self.style(line, "bold") for line in head), *rows]))


def _width(stream: TextIO | None = None) -> int:
    import shutil

    if stream is not None:
        with suppress(OSError, ValueError):
            if columns := os.get_terminal_size(stream.fileno()).columns:
                return columns
    return shutil.get_terminal_size().columns


def align(rows: Sequence[Sequence[str]]) -> str:
    """Pad columns with spaces, without trailing blanks."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _as_json(value: Any, *, pretty: bool) -> str:
    """Write ASCII only, so that the document is safe on a terminal and survives any locale."""

    return json.dumps(value, indent=2 if pretty else None, ensure_ascii=True, allow_nan=False, default=to_json_values)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


NAME_A_FILE: Final = "name a file that is there and that you may read"


class SourceUnreadable(InvalidInput):
    code = "cli.source_unreadable"
    hint = "write the JSON itself, @FILE for a file's content, or - for standard input"


class SourceTooLarge(LimitExceeded):
    code = "cli.source_too_large"
    hint = "put large content in a workspace file and pass its path"


def read_text_argument(word: str, max_bytes: int) -> str:
    """Read standard input for ``-``, a file for ``@FILE``, and take anything else as the text itself."""
    if word == "-":
        return _decoded(read_stdin(max_bytes), "standard input")
    if word.startswith("@"):
        return _decoded(_read(Path(word[1:]), max_bytes), word[1:])
    return word


def read_file_or_stdin(word: str, max_bytes: int, *, hint: str = NAME_A_FILE) -> bytes:
    return read_stdin(max_bytes) if word == "-" else read_file(Path(word), max_bytes, hint=hint)


def read_stdin(max_bytes: int) -> bytes:
    return _bounded(sys.stdin.buffer.read(max_bytes + 1), max_bytes, "standard input")


def read_file(path: Path, max_bytes: int, *, hint: str = NAME_A_FILE) -> bytes:
    """Read a file that a command line names. ``hint`` names the file that the command wants."""
    try:
        return _read(path, max_bytes)
    except (SourceUnreadable, SourceTooLarge) as error:
        error.hint = hint
        raise


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return _bounded(file.read(max_bytes + 1), max_bytes, str(path))
    except OSError as error:
        raise SourceUnreadable(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SourceUnreadable("a file name has no NUL characters") from error


def _bounded(data: bytes, max_bytes: int, name: str) -> bytes:
    if len(data) > max_bytes:
        raise SourceTooLarge(f"{name} holds more than {max_bytes} bytes", limit=max_bytes)
    return data


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceUnreadable(f"{name} is not UTF-8 at byte {error.start}") from error


def command_line(*words: str) -> str:
    """Write a command to be copied into a shell, each word quoted where it needs it."""
    return " ".join(shlex.quote(escape(word)) for word in words)
