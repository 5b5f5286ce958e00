"""A reader of sed's command line: the words that are scripts, the programs they run and the files they name.

The ``e`` command and the ``e`` flag of ``s`` run programs; ``r R w W`` and the ``w`` flag name files. Seds disagree on
whether a delimiter inside brackets ends a pattern, so a script is read both ways and every reading counts.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

_ADDRESS_FLAGS: Final = "IM"
_TEXT_COMMANDS: Final = "aic"
_LABEL_COMMANDS: Final = ":btT"
_FILE_COMMANDS: Final = "rRwW"
_NUMBER_COMMANDS: Final = "lLqQ"
_PLAIN_COMMANDS: Final = "=dDgGhHnNpPxzF"
_LONG_WITH_VALUE: Final = ("expression", "file", "line-length")
_LONG_FLAGS: Final = ("in-place", "sandbox", "quiet", "silent", "posix", "debug", "regexp-extended", "separate")


class Malformed(Exception):
    """The text is not a script in this reading."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """``runs`` is the first piece of the script that runs a program."""

    runs: str | None = None
    files: tuple[str, ...] = ()


class SedLine(msgspec.Struct, frozen=True, kw_only=True):
    """``positions`` are those arguments that are script text, wholly or after an option's name."""

    script: str
    positions: frozenset[int]
    script_files: tuple[int, ...] = ()
    sandbox: bool = False


def read_line(args: tuple[str, ...]) -> SedLine:
    """Find the arguments that are scripts, as getopt_long with its reordering does."""
    pieces: list[str] = []
    places: set[int] = set()
    files: list[int] = []
    plain: list[int] = []
    sandbox = False
    position = 0
    while position < len(args):
        word = args[position]
        if word == "--":
            plain.extend(range(position + 1, len(args)))
            break
        option, value = _option(word)
        if option is None:
            plain.append(position)
        elif option in ("e", "f", "l"):
            at = position
            if value is None:
                position += 1
                at, value = position, args[position] if position < len(args) else ""
            if option == "e":
                pieces.append(value)
                places.add(at)
            elif option == "f":
                files.append(at)
        elif option == "sandbox":
            sandbox = True
        position += 1
    if not pieces and not files and plain:
        pieces.append(args[plain[0]])
        places.add(plain[0])
    return SedLine(script="\n".join(pieces), positions=frozenset(places), script_files=tuple(files), sandbox=sandbox)


def _option(word: str) -> tuple[str | None, str | None]:
    """Find the one option in a word that matters here, and its attached value."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        for long in (*_LONG_WITH_VALUE, *_LONG_FLAGS):
            if (
                long == name
                or (len(name) > 1 and long.startswith(name))
                or (name in ("e", "f", "l") and long[0] == name)
            ):
                return (long[0] if long in _LONG_WITH_VALUE else long), (value if equals else None)
        return "", None
    if not word.startswith("-") or word == "-":
        return None, None
    for index, letter in enumerate(word[1:], start=1):
        if letter in "efl":
            return letter, word[index + 1 :] or None
        if letter == "i":
            break
    return "", None


@lru_cache(maxsize=16)
def read_script(text: str) -> Script:
    """Join all readings of the script. Raise ``Malformed`` if no reading makes sense."""
    readings = []
    for brackets in (True, False):
        try:
            readings.append(_Reader(text, brackets).read())
        except Malformed:
            continue
    if not readings:
        raise Malformed(text)
    runs = next((reading.runs for reading in readings if reading.runs is not None), None)
    return Script(runs=runs, files=tuple(dict.fromkeys(name for reading in readings for name in reading.files)))


class _Reader:
    def __init__(self, text: str, brackets: bool) -> None:
        self.text = text
        self.brackets = brackets
        self.at = 0
        self.runs: str | None = None
        self.files: list[str] = []

    def read(self) -> Script:
        while True:
            self._skip("; \t\r\n\v\f")
            if self.at >= len(self.text):
                return Script(runs=self.runs, files=tuple(self.files))
            self._addresses()
            self._command()

    def _skip(self, chars: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in chars:
            self.at += 1

    def _take(self) -> str:
        if self.at >= len(self.text):
            raise Malformed
        self.at += 1
        return self.text[self.at - 1]

    def _until_newline(self) -> str:
        end = self.text.find("\n", self.at)
        start, self.at = self.at, len(self.text) if end < 0 else end
        return self.text[start : self.at]

    def _match(self, pattern: str) -> str:
        found = re.compile(pattern).match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()

    def _addresses(self) -> None:
        if self._address():
            self._skip(" \t")
            if self._match(","):
                self._skip(" \t")
                if not self._match(r"[+~]\d+") and not self._address():
                    raise Malformed
        self._match(r"[ \t!]*")

    def _address(self) -> bool:
        if self._match(r"\d+(~\d+)?|\$"):
            return True
        if self._match(r"\\"):
            self._delimited(self._take())
        elif self._match("/"):
            self._delimited("/")
        else:
            return False
        self._match(f"[{_ADDRESS_FLAGS}]*")
        return True

    def _delimited(self, delimiter: str, *, pattern: bool = True) -> None:
        """Move behind the next delimiter that ends this part."""
        while (char := self._take()) != delimiter:
            if char == "\\":
                self._take()
            elif char == "[" and pattern and self.brackets:
                self._match(r"\^?\]?")
                while self._take() != "]":
                    self._match(r"\[([.:=]).*?\1\]")

    def _command(self) -> None:
        start = self.at
        command = self._take()
        if command in "{}" or command in _PLAIN_COMMANDS:
            return
        if command == "#":
            self._until_newline()
        elif command in _TEXT_COMMANDS:
            self._text_argument()
        elif command in _LABEL_COMMANDS or command == "v":
            # Space, semicolon and brace end a label in some seds and belong to it in others: what follows is read as
            # commands.
            self._match(r"[ \t]*[^;\s}]*")
        elif command in _NUMBER_COMMANDS:
            self._match(r"[ \t]*\d*")
        elif command in _FILE_COMMANDS:
            self._skip(" \t")
            self.files.append(self._until_newline())
        elif command == "y":
            delimiter = self._take()
            self._delimited(delimiter, pattern=False)
            self._delimited(delimiter, pattern=False)
        elif command == "s":
            self._substitute(start)
        elif command == "e":
            self._until_newline()
            self._ran(start)
        else:
            raise Malformed

    def _text_argument(self) -> None:
        while True:
            line = self._until_newline()
            ends_open = len(line) - len(line.rstrip("\\"))
            if ends_open % 2 == 0 or self.at >= len(self.text):
                return
            self.at += 1

    def _substitute(self, start: int) -> None:
        delimiter = self._take()
        if delimiter in "\n\\":
            raise Malformed
        self._delimited(delimiter)
        self._delimited(delimiter, pattern=False)
        flags = self._match(r"[gpIiMme\d \t]*")
        if "e" in flags:
            self._ran(start)
        if self._match("w"):
            self._skip(" \t")
            self.files.append(self._until_newline())

    def _ran(self, start: int) -> None:
        if self.runs is None:
            self.runs = self.text[start : self.at]
