"""Paths and names in a workspace: parsed once, rendered harmlessly, matched by globs, and protected from writes.

A ``WorkspacePath`` is relative, has no ``..``, no NUL and no empty name, and fits the kernel's limits. It does not
depend on what is on disk: the descriptor that resolves it follows the links.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, Self

import msgspec

from palyra.errors import Denied, InvalidInput
from palyra.workspace.errors import BadPattern
from palyra.workspace.limits import (
    MAX_GLOB_ALTERNATIVES,
    MAX_GLOB_CHARS,
    MAX_PROTECTED_NAMES,
    NAME_MAX_BYTES,
    PATH_MAX_BYTES,
)
from palyra.workspace.protected_table import how_to_open

_SHOWN_IN_ERRORS = 200
_LAST_C0 = 0x1F
_DELETE = 0x7F
# Controls, format characters (bidirectional overrides among them), surrogates, unassigned, line and paragraph breaks.
_UNSHOWABLE = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})


class BadPath(InvalidInput):
    code = "workspace.bad_path"
    hint = "write a path relative to the workspace, such as src/main.py, without .. and without a leading /"


class PathTooLong(InvalidInput):
    code = "workspace.path_too_long"
    hint = f"a path has fewer than {PATH_MAX_BYTES} bytes and each name in it at most {NAME_MAX_BYTES}"


class WorkspacePath(msgspec.Struct, frozen=True):
    """Names beneath the root, outermost first. No names at all is the root itself."""

    names: tuple[str, ...]

    @classmethod
    def parse(cls, raw: str) -> Self:
        """Accept ``a/b``, ``./a//b/`` (the same path) and ``.`` (the root)."""
        if not raw:
            raise BadPath("the path is empty")
        if "\0" in raw:
            raise BadPath("the path has a NUL character", path=render_name(raw[:_SHOWN_IN_ERRORS]))
        try:
            encoded = raw.encode()
        except UnicodeEncodeError:
            raise BadPath("the path is not valid Unicode", path=render_name(raw[:_SHOWN_IN_ERRORS])) from None
        if len(encoded) >= PATH_MAX_BYTES:
            raise PathTooLong(f"the path has {len(encoded)} bytes", bytes=len(encoded))
        if raw.startswith("/"):
            raise BadPath("the path is absolute", path=render_name(raw[:_SHOWN_IN_ERRORS]))
        names = tuple(name for name in raw.split("/") if name not in ("", "."))
        for name in names:
            if name == "..":
                raise BadPath("the path has a .. component", path=render_name(raw[:_SHOWN_IN_ERRORS]))
            if len(name.encode()) > NAME_MAX_BYTES:
                raise PathTooLong(f"a name in the path has {len(name.encode())} bytes", bytes=len(name.encode()))
        return cls(names)

    def __str__(self) -> str:
        return "/".join(self.names) or "."

    def encoded(self) -> bytes:
        return encode_name(str(self))

    def render(self) -> str:
        return render_name(str(self))


def encode_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def decode_name(raw: bytes) -> str:
    """Decode any bytes losslessly: those that are not UTF-8 become lone surrogates, which ``render_name`` escapes."""
    return raw.decode("utf-8", "surrogateescape")


def is_plain(name: str) -> bool:
    """Whether ``render_name`` leaves the name as it is."""
    if name.isascii():
        return name.isprintable()
    return not any(unicodedata.category(char) in _UNSHOWABLE for char in name)


def render_name(name: str) -> str:
    r"""Render a name in one line of harmless text.

    A harmless name stays as it is, backslashes included. In others, bytes that are not UTF-8 and ASCII controls become
    ``\xNN``, other unshowable characters ``\uNNNN``, and backslashes are doubled.
    """
    return name if is_plain(name) else "".join(map(_escaped, name))


def _escaped(char: str) -> str:
    if char == "\\":
        return "\\\\"
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    if number <= _LAST_C0 or number == _DELETE:
        return f"\\x{number:02x}"
    if unicodedata.category(char) in _UNSHOWABLE:
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
    return char


# Globs over names and paths take time that grows with the product of the two lengths and no faster.
#
# ``fnmatch`` turns one component's pattern into a regular expression. It keeps each ``*`` in an atomic group, so that
# the match never backtracks from one star into another. ``**`` is walked as a set of positions.

_ANY_DEPTH: Final = None
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

_GlobPart = re.Pattern[str] | None


def name_pattern(pattern: str) -> re.Pattern[str]:
    """One component's glob: ``*``, ``?``, ``[abc]``, ``[!abc]``. Match it with ``fullmatch`` or ``match``."""
    return re.compile(fnmatch.translate(pattern))


class Glob:
    """A glob over whole paths. Without a slash it is matched against the last name, at any depth."""

    __slots__ = ("_alternatives", "source")

    def __init__(self, source: str) -> None:
        if not source or len(source) > MAX_GLOB_CHARS or "\0" in source:
            raise BadPattern(f"a glob has 1 to {MAX_GLOB_CHARS} characters and no NUL")
        self.source = source
        self._alternatives = tuple(_parts(each) for each in _expand_braces(source))

    def matches(self, names: Sequence[str]) -> bool:
        return any(_walk(parts, names) for parts in self._alternatives)


def _parts(pattern: str) -> tuple[_GlobPart, ...]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise BadPattern("a glob has no .. component")
    parts = tuple(_ANY_DEPTH if name == "**" else name_pattern(name) for name in names)
    return parts if "/" in pattern else (_ANY_DEPTH, *parts)


def _walk(parts: Sequence[_GlobPart], names: Sequence[str]) -> bool:
    places = _skip_any_depth(parts, {0})
    for name in names:
        onward: set[int] = set()
        for place in places:
            if place == len(parts):
                continue
            part = parts[place]
            if part is _ANY_DEPTH:
                onward.add(place)
            elif part.match(name):
                onward.add(place + 1)
        places = _skip_any_depth(parts, onward)
    return len(parts) in places


def _skip_any_depth(parts: Sequence[_GlobPart], places: set[int]) -> set[int]:
    """``**`` may also stand for no names at all."""
    reached = set(places)
    for place in places:
        while place < len(parts) and parts[place] is _ANY_DEPTH:
            place += 1
            reached.add(place)
    return reached


def _expand_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        found = _BRACES.search(current)
        if found is None:
            done.append(current)
        else:
            waiting += [current[: found.start()] + each + current[found.end() :] for each in found[1].split(",")]
        if len(done) + len(waiting) > MAX_GLOB_ALTERNATIVES:
            raise BadPattern(f"a glob has at most {MAX_GLOB_ALTERNATIVES} alternatives in braces")
    return done


# Names that the file tools never write: hooks, configuration that runs programs, credentials.
#
# A pattern such as ``.git/hooks`` matches those consecutive names at any depth, and everything beneath them. ``**``
# between two names stands for any number of names. A pattern also matches a *file* in the place of one of its own
# parents: a file named ``.git`` can point git at the hooks of another directory. Names are compared as the laxest file
# system would compare them: without case, compatibility forms, invisible characters, trailing dots or trailing spaces.

_WILD: Final = re.compile(r"[*?\[]")
_VARIATION_SELECTORS: Final = range(0xFE00, 0xFE10)
_COMBINING_GRAPHEME_JOINER: Final = "\u034f"

_Part = str | re.Pattern[str] | None
# A pattern and how many of its parts are matched so far.
Progress = tuple["ProtectedPattern", int]
State = tuple[Progress, ...]
START: Final[State] = ()


class ProtectedName(Denied):
    code = "workspace.protected_name"
    hint = "it can be read, not written; an operator chooses such names in [workspace]"


class BadProtectedName(InvalidInput):
    code = "workspace.bad_protected_name"
    hint = "write names relative to any directory, such as .git/hooks or .env*, with ** only between two names"


def _protected_part(name: str) -> _Part:
    if name == "**":
        return _ANY_DEPTH
    return name_pattern(normalize_name(name)) if _WILD.search(name) else normalize_name(name)


class ProtectedPattern:
    __slots__ = ("key", "parts", "source")

    def __init__(self, source: str) -> None:
        names = [name for name in source.split("/") if name not in ("", ".")]
        outer = {names[0], names[-1]} if names else {"**"}
        if source.startswith("/") or ".." in names or "**" in outer or "\0" in source:
            raise BadProtectedName(f"{render_name(source)!r} is not a name to protect")
        names = [name for before, name in zip((None, *names), names, strict=False) if not before == name == "**"]
        self.source = source
        self.parts: tuple[_Part, ...] = tuple(map(_protected_part, names))
        head = self.parts[0]
        # The index keeps a literal under its whole first name, a wildcard under the letter it starts with, if any.
        self.key = head if isinstance(head, str) else _WILD.split(normalize_name(names[0]))[0][:1]


class ProtectedNames:
    """An index of patterns: a check costs the length of the path, not the number of patterns."""

    __slots__ = ("_by_suffix", "_literal", "_suffixes", "_wild", "patterns")

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        if len(self.patterns) > MAX_PROTECTED_NAMES:
            raise BadProtectedName(f"at most {MAX_PROTECTED_NAMES} names can be protected")
        self._literal: dict[str, list[ProtectedPattern]] = {}
        self._wild: dict[str, list[ProtectedPattern]] = {}
        # ``*.pth``: every name is compared with these, so all of them are one look.
        self._by_suffix: dict[str, str] = {}
        for source in dict.fromkeys(self.patterns):
            pattern = ProtectedPattern(source)
            ending = normalize_name(source[1:]) if source[:1] == "*" else ""
            if ending and len(pattern.parts) == 1 and not _WILD.search(ending):
                self._by_suffix[ending] = source
                continue
            index = self._literal if isinstance(pattern.parts[0], str) else self._wild
            index.setdefault(pattern.key, []).append(pattern)
        self._suffixes = tuple(self._by_suffix)

    def refuse(self, names: Sequence[str]) -> None:
        """Raise ``ProtectedName`` if a file written at this path would touch a protected name."""
        found = self.match(names)
        if found is not None:
            path = render_name("/".join(names))
            raise ProtectedName(
                f"{path} is protected by {render_name(found)!r}",
                hint=f"it can be read, not written; {how_to_open(found)}",
                path=path,
                pattern=render_name(found),
            )

    def match(self, names: Sequence[str]) -> str | None:
        """Return the pattern that protects this path, if one does."""
        state = START
        for name in names:
            pattern, state = self.step(state, name)
            if pattern is not None:
                return pattern
        return self.parent_of(state)

    @staticmethod
    def parent_of(state: State, *, link: bool = False) -> str | None:
        """Return the pattern that a file within it stands in the way of, as a file named ``.git`` does.

        A file where ``**`` may go on is nothing special. A link there can lead to a directory.
        """
        return next((each.source for each, place in state if link or each.parts[place] is not _ANY_DEPTH), None)

    def step(self, state: State, name: str) -> tuple[str | None, State]:
        """Advance a walk by one name: return the pattern that it completes, and the state for what lies beneath.

        A directory carries the patterns that are partly matched. So a name costs a look-up, not a comparison with
        every pattern.
        """
        plain = name.casefold() if name.isascii() and name[-1:] not in ". " else normalize_name(name)
        if plain.endswith(self._suffixes):
            return next(source for ending, source in self._by_suffix.items() if plain.endswith(ending)), START
        begun = self._literal.get(plain, ())
        anywhere, by_letter = self._wild.get("", ()), self._wild.get(plain[:1], ())
        if not (state or begun or anywhere or by_letter):
            return None, START
        onward: dict[Progress, None] = {}
        for pattern, position in (*((each, 0) for each in (*begun, *anywhere, *by_letter)), *state):
            place = position
            if pattern.parts[place] is _ANY_DEPTH:
                onward[pattern, place] = None
                place += 1
            if not _same(pattern.parts[place], plain):
                continue
            if place + 1 == len(pattern.parts):
                return pattern.source, START
            onward[pattern, place + 1] = None
        return None, tuple(onward)


@lru_cache(maxsize=64)
def protected_names_of(patterns: tuple[str, ...]) -> ProtectedNames:
    return ProtectedNames(patterns)


def _same(part: _Part, name: str) -> bool:
    return part == name if isinstance(part, str) else part is not None and part.match(name) is not None


@lru_cache(maxsize=4096)
def normalize_name(name: str) -> str:
    """Return the spelling under which names are compared."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    visible = "".join(char for char in plain if not _invisible(char))
    return visible.rstrip(". ") or visible


def _invisible(char: str) -> bool:
    return unicodedata.category(char) == "Cf" or ord(char) in _VARIATION_SELECTORS or char == _COMBINING_GRAPHEME_JOINER
