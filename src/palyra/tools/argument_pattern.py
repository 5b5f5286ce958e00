"""A pattern over arguments that an operator writes: ``{"path": "docs/**", "mode": "append"}``.

Every key of the pattern must be there and match. Strings match as globs in which ``*`` stops at ``/`` and ``**`` does
not; a value with a ``..`` segment matches no glob. Any other JSON value must be equal. Keys the pattern does not name
are free, and its wording says so.
"""

import json
import re
from typing import Any, Self

import msgspec

from palyra.canonical import canonical_json
from palyra.errors import InvalidInput

MAX_PATTERN_KEYS = 32
MAX_PATTERN_CHARS = 1024
# A longer value is content, not a name, and matches no glob.
MAX_MATCHED_CHARS = 4096


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
            if isinstance(value, str) and len(value) > MAX_PATTERN_CHARS:
                raise InvalidPattern(f"the pattern for {key!r} is longer than {MAX_PATTERN_CHARS} characters")
        return cls(tuple(sorted(raw.items())))

    def matches(self, arguments: dict[str, Any]) -> bool:
        return all(key in arguments and _matches(wanted, arguments[key]) for key, wanted in self.fields)

    def in_words(self) -> str:
        clauses = [
            f"{key} matches {value}" if _is_glob(value) else f"{key} is {json.dumps(value, ensure_ascii=False)}"
            for key, value in self.fields
        ]
        return "where " + " and ".join(clauses) + ", whatever its other arguments"


def _is_glob(value: object) -> bool:
    return isinstance(value, str) and any(mark in value for mark in "*?")


def _matches(wanted: Any, given: Any) -> bool:
    if isinstance(wanted, str) and _is_glob(wanted):
        return isinstance(given, str) and ".." not in re.split(r"[/\\]", given) and _glob_matches(wanted, given)
    return canonical_json(wanted) == canonical_json(given)


def _glob_matches(pattern: str, text: str) -> bool:
    """Walks all readings of the pattern at once: a regular expression could be made to backtrack without end."""
    if len(text) > MAX_MATCHED_CHARS:
        return False
    tokens = re.findall(r"\*\*|\*|\?|[^*?]", pattern, re.DOTALL)
    alive = _skip_stars(tokens, {0})
    for char in text:
        after: set[int] = set()
        for at in alive:
            if at == len(tokens):
                continue
            piece = tokens[at]
            if piece == "**" or (piece == "*" and char != "/"):
                after.add(at)
            elif (piece == "?" and char != "/") or piece == char:
                after.add(at + 1)
        alive = _skip_stars(tokens, after)
    return len(tokens) in alive


def _skip_stars(tokens: list[str], positions: set[int]) -> set[int]:
    """A star may match nothing: whoever stands before one may also stand behind it."""
    reached = set(positions)
    for at in positions:
        while at < len(tokens) and tokens[at] in ("*", "**"):
            at += 1
            reached.add(at)
    return reached
