r"""A pattern over arguments that an operator writes: ``{"path": "docs/**", "mode": "append"}``.

Every key of the pattern must be there and match. Strings match as globs in which ``*`` stops at ``/`` and ``**``
does not; ``\*``, ``\?`` and ``\\`` stand for the characters themselves. A value with a ``..`` segment matches no
glob. Any other JSON value must be equal.

A pattern that names every argument of its call covers calls with these arguments and no other. If it names fewer, the
others are free, and its wording says so.
"""

import re
from typing import Any, Self

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import InvalidInput
from palyra.visible_text import spell, spell_json

MAX_PATTERN_KEYS = 256
# For a glob. An exact value may be as long as the call's.
MAX_PATTERN_CHARS = 1024
# A longer value is content, not a name, and matches no glob.
MAX_MATCHED_CHARS = 4096
# A longer exact value is not repeated in the wording: it is the one of the call.
MAX_WORDED_CHARS = 200
# Format 1 had no escapes: a backslash was an ordinary character.
PATTERN_FORMAT = 2
_TOKEN = re.compile(r"\\[*?\\]|\*\*|.", re.DOTALL)
_WELL_ESCAPED = re.compile(r"(?:\\[*?\\]|[^\\])*", re.DOTALL)
_GLOBS = ("**", "*", "?")


class InvalidPattern(InvalidInput):
    code = "approval.invalid_pattern"
    hint = 'write a JSON object of argument names, such as {"path": "docs/**"}'


class ArgumentPattern(msgspec.Struct, frozen=True):
    fields: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, raw: object) -> Self:
        if not isinstance(raw, dict) or not raw:
            raise InvalidPattern("a pattern is a JSON object that names at least one argument")
        if len(raw) > MAX_PATTERN_KEYS:
            raise InvalidPattern(f"a pattern names at most {MAX_PATTERN_KEYS} arguments")
        for key, value in raw.items():
            if isinstance(value, str):
                _check_text(key, value)
        return cls(tuple(sorted(raw.items())))

    @classmethod
    def from_stored(cls, raw: dict[str, Any]) -> Self:
        """Take a pattern that was checked when it was approved, maybe by an earlier version."""
        return cls(tuple(sorted(raw.items())))

    def matches(self, arguments: dict[str, Any], *, alone: bool = False) -> bool:
        """Match the named arguments. With ``alone``, the call has no others."""
        if alone and len(arguments) != len(self.fields):
            return False
        return all(key in arguments and _matches(wanted, arguments[key]) for key, wanted in self.fields)

    def names_all(self, arguments: dict[str, Any]) -> bool:
        return arguments.keys() <= dict(self.fields).keys()

    def in_words(self, arguments: dict[str, Any]) -> str:
        """Say what the pattern covers, approved for a call with these arguments."""
        named = dict(self.fields)
        clauses = [f"{spell(key)} {_describe(value)}" for key, value in self.fields]
        free = [spell(key) for key in arguments if key not in named]
        rest = (
            f"whatever its other arguments: {', '.join(free)}, and any more" if free else "and it has no other argument"
        )
        return f"where {' and '.join(clauses)}, {rest}"


def exact_pattern(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the pattern that covers calls with exactly these arguments."""
    return {key: escape_glob(value) if isinstance(value, str) else value for key, value in arguments.items()}


def escape_glob(text: str) -> str:
    return re.sub(r"[*?\\]", r"\\\g<0>", text)


def _check_text(key: str, value: str) -> None:
    if not _WELL_ESCAPED.fullmatch(value):
        raise InvalidPattern(
            f"the pattern for {key!r} has a backslash that escapes nothing",
            hint="write \\\\ for a backslash, \\* for a star and \\? for a question mark; JSON doubles each backslash",
        )
    if _is_glob(value) and len(value) > MAX_PATTERN_CHARS:
        raise InvalidPattern(f"the pattern for {key!r} is longer than {MAX_PATTERN_CHARS} characters")


def _describe(value: object) -> str:
    if isinstance(value, str) and _is_glob(value):
        return f"matches {spell(value)}"
    exact = unescape_glob(value) if isinstance(value, str) else value
    text = spell_json(exact, indent=None)
    return f"is {text}" if len(text) <= MAX_WORDED_CHARS else f"is exactly that of this call ({len(text)} characters)"


def unescape_glob(text: str) -> str:
    return "".join(token[-1] for token in _TOKEN.findall(text))


def _is_glob(value: str) -> bool:
    return any(token in _GLOBS for token in _TOKEN.findall(value))


def _matches(wanted: Any, given: Any) -> bool:
    if not isinstance(wanted, str):
        return canonical_json(wanted) == canonical_json(given)
    if not _is_glob(wanted):
        return isinstance(given, str) and unescape_glob(wanted) == given
    return isinstance(given, str) and ".." not in re.split(r"[/\\]", given) and _glob_matches(wanted, given)


def _glob_matches(pattern: str, text: str) -> bool:
    """Match by walking all readings of the pattern at once. A regular expression could backtrack without end."""
    if len(text) > MAX_MATCHED_CHARS:
        return False
    tokens = _TOKEN.findall(pattern)
    alive = _skip_stars(tokens, {0})
    for char in text:
        after: set[int] = set()
        for at in alive:
            if at == len(tokens):
                continue
            piece = tokens[at]
            if piece == "**" or (piece == "*" and char != "/"):
                after.add(at)
            elif (piece == "?" and char != "/") or (piece not in _GLOBS and piece[-1] == char):
                after.add(at + 1)
        alive = _skip_stars(tokens, after)
    return len(tokens) in alive


def _skip_stars(tokens: list[str], positions: set[int]) -> set[int]:
    """Add the positions behind stars, because a star may match nothing."""
    reached = set(positions)
    for at in positions:
        while at < len(tokens) and tokens[at] in ("*", "**"):
            at += 1
            reached.add(at)
    return reached
