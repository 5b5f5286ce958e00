"""Text a person hands to a command: typed, in a file, or on standard input."""

import sys
from pathlib import Path
from typing import Final

from palyra.errors import InvalidInput, LimitExceeded

NAME_A_FILE: Final = "name a file that is there and that you may read"


class SourceUnreadable(InvalidInput):
    code = "cli.source_unreadable"
    hint = "write the JSON itself, @FILE for a file's content, or - for standard input"


class SourceTooLarge(LimitExceeded):
    code = "cli.source_too_large"
    hint = "put large content in a workspace file and pass its path"


def read_text_argument(word: str, max_bytes: int) -> str:
    """``-`` is standard input, ``@FILE`` a file, anything else the text itself. Nothing is parsed here."""
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
    """For a command that takes a file's name as it is. ``hint`` tells which file it wants."""
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
