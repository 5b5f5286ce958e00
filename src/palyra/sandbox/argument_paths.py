"""The paths that one word of a command line may name, in every spelling that programs understand.

``--opt=path``, ``-Cpath``, ``k=path``, ``@file``, ``a:b:c``, ``-Wl,-rpath,/x`` and ``file:`` URLs are taken apart.
Nothing is rewritten: these are readings of a word, and all of them are judged. A reading that is a plain relative name
does no harm, it lies beneath the working directory; so ``origin/main``, ``text/html`` and ``1/2/2026`` pass.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from palyra.sandbox.guard_limits import MAX_ARGUMENT_NESTING, MAX_CLUSTERED_LETTERS

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)
_FILE_SCHEMES: Final = frozenset({"file", "unix", "local", "fd", "path"})
_KEY: Final = re.compile(r"(--?)?[A-Za-z0-9_.+\[\]-]+(:[A-Za-z0-9_.-]+)?=")
_LETTERS: Final = re.compile(r"-[A-Za-z0-9]+(?=/)")
_BEFORE_URL: Final = re.compile(r"(.*[=,\s])?[A-Za-z][A-Za-z0-9+.-]*", re.DOTALL)
_QUOTES: Final = "\"'`"
_HOME: Final = re.compile(r"~[A-Za-z0-9_.-]*(/|$)")


class NamedPath(msgspec.Struct, frozen=True):
    """``guess`` marks a reading that is unlikely: it counts only where its first name is really there."""

    text: str
    guess: bool = False


class RemoteFile(msgspec.Struct, frozen=True):
    """A ``file:`` URL that names another machine."""

    text: str


Named = NamedPath | RemoteFile


def named_paths(word: str) -> tuple[Named, ...]:
    """All readings of a word, breadth first, so that a piece that occurs often is taken apart once."""
    named: dict[Named, None] = {}
    seen = {word}
    level = [word]
    for _ in range(MAX_ARGUMENT_NESTING):
        below: dict[str, None] = {}
        for piece in level:
            for reading in _readings(piece):
                if isinstance(reading, str):
                    below[reading] = None
                else:
                    named[reading] = None
        level = [piece for piece in below if piece and piece not in seen]
        seen.update(level)
    return tuple(named)


def _readings(word: str) -> Iterator[Named | str]:
    """What a word names, and the shorter words in it."""
    if not word:
        return
    if word[0] in _QUOTES:
        yield word.strip(_QUOTES)
    if found := _URL.fullmatch(word):
        scheme, slashes, rest = found.groups()
        if scheme.lower().rpartition("+")[2] in _FILE_SCHEMES:
            yield from _file_url(rest, authority=bool(slashes))
            return
        # A URL with a host names nothing on this machine; without one (unix:///run/x) the rest is a path.
        if slashes:
            yield NamedPath(word, guess=True)
            if rest.startswith("/"):
                yield NamedPath("/" + _decoded(rest).lstrip("/"))
            return
    if word.startswith("-"):
        yield from _option(word)
    else:
        yield NamedPath(word)
    if word.startswith("@"):
        yield word[1:]
    if found := _KEY.match(word):
        yield word[found.end() :]
    for pieces in (_colon_pieces(word), word.split(",")):
        if len(pieces) > 1:
            yield from pieces


def _colon_pieces(word: str) -> list[str]:
    """Split at colons, but for those of URLs: /usr/bin://etc is a list, a=https://x is none."""
    pieces: list[str] = []
    for piece in word.split(":"):
        if pieces and piece.startswith("//") and _BEFORE_URL.fullmatch(pieces[-1]):
            pieces[-1] += ":" + piece
        else:
            pieces.append(piece)
    return pieces


def _option(word: str) -> Iterator[Named | str]:
    if word.startswith("--"):
        # Some programs take a path glued to a long option.
        if "/" in word and "=" not in word:
            yield NamedPath(word[2:])
        return
    # -C/etc, -C../x, -C~/x, -f@list: the value starts right after the letter.
    if word[2:3] != "-":
        yield word[2:]
    if found := _LETTERS.match(word):
        yield NamedPath(word[found.end() :], guess=len(found.group()) > len("-x"))
    letters = word[1 : MAX_CLUSTERED_LETTERS + 1]
    for index, letter in enumerate(letters[1:], start=3):
        if not letter.isalnum():
            rest = word[index - 1 :]
            if rest.startswith(("..", "~")):
                yield NamedPath(rest)
            break
        # -xzfNAME: any of these may be NAME, and NAME may be a link that leads out.
        yield NamedPath(word[index - 1 :])


def _file_url(rest: str, *, authority: bool) -> Iterator[Named]:
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    if authority:
        host, slash, tail = path.replace("\\", "/").partition("/")
        if _decoded(host).lower() not in ("", "localhost", "127.0.0.1", "::1", "[::1]", "."):
            yield RemoteFile(host)
        path = slash + tail
    # With and without decoding: programs differ, and a doubly encoded name is decoded once by each of them.
    for reading in (path, _decoded(path), _decoded(_decoded(path))):
        yield NamedPath(reading or "/")


def _decoded(text: str) -> str:
    return (
        unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape").replace("\0", "")
    )


def names_home(path: str) -> bool:
    """Programs that expand ``~`` themselves would leave the workspace; a file called ``~`` is nothing one needs."""
    return _HOME.match(path) is not None and ("/" in path or path == "~")
