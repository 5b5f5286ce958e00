"""JSON Schema, draft 2020-12, closed to the outside: a schema can't make us fetch anything."""

from collections.abc import Iterable
from typing import Any

import jsonschema_rs

from palyra.errors import Failed
from palyra.limits import KIB, MAX_JSON_DEPTH, MIB
from palyra.tools.schema_weight import (
    MAX_SCHEMA_PATTERNS,
    MAX_SCHEMA_STEPS,
    InvalidSchema,
    SchemaTooHeavy,
    patterns_of,
    steps_by_level,
)

_SHOWN_CHARS = 200
# Of a compiled pattern. Few take more than a few kilobytes: those that count letters of all languages.
MAX_PATTERN_BYTES = 32 * KIB
MAX_LARGE_PATTERN_BYTES = 4 * MIB
MAX_LARGE_PATTERNS = 4
# Steps that one value may take to be checked: some tenths of a second. A schema of few steps is not counted for.
MAX_CHECK_STEPS = 4_000_000
_FEW_STEPS = 512


class SchemaMismatch(Failed):
    code = "schema.mismatch"
    hint = "the value must fit the schema at the place named"

    def __init__(self, message: str, pointer: str) -> None:
        super().__init__(message)
        self.pointer = pointer


class SchemaCheck:
    """One compiled schema. Compiling costs milliseconds and checking microseconds: keep it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        steps = steps_by_level(schema)
        self._steps = steps if steps[-1] > _FEW_STEPS else None
        _require_small_patterns(schema)
        try:
            # The linear-time engine: a schema's pattern may come from a stranger.
            self._validator = jsonschema_rs.Draft202012Validator(
                schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_LARGE_PATTERN_BYTES)
            )
        except ValueError as error:
            raise InvalidSchema(f"not a usable schema: {_first_line(error)}{_place(error)}") from error

    def require(self, value: Any) -> None:
        if self._steps is not None:
            _require_soon_done(self._steps, value)
        if self._validator.is_valid(value):
            return
        first = next(iter(self._validator.iter_errors(value)))
        pointer = _pointer(first.instance_path)
        where = pointer or "the top level"
        raise SchemaMismatch(f"{first.message[:_SHOWN_CHARS]} (at {where})", pointer)


def _pointer(path: Iterable[str | int]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _place(error: ValueError) -> str:
    """Where in the schema: its author knows the value that is wrong only by its place."""
    pointer = _pointer(getattr(error, "instance_path", ()))
    return f" (at {pointer[:_SHOWN_CHARS]})" if pointer else ""


def _first_line(error: ValueError) -> str:
    return str(error).partition("\n")[0][:_SHOWN_CHARS]


def _require_small_patterns(schema: dict[str, Any]) -> None:
    patterns = patterns_of(schema)
    if len(patterns) > MAX_SCHEMA_PATTERNS:
        raise SchemaTooHeavy(f"it has more than {MAX_SCHEMA_PATTERNS} patterns")
    large = [pattern for pattern in sorted(patterns) if not _takes_at_most(pattern, MAX_PATTERN_BYTES)]
    for pattern in large[: MAX_LARGE_PATTERNS + 1]:
        if not _takes_at_most(pattern, MAX_LARGE_PATTERN_BYTES):
            raise InvalidSchema(
                f"the pattern {pattern[:_SHOWN_CHARS]!r} is no regular expression, or one that takes too much memory",
                hint="write it without look-around and back references, and count fewer repetitions",
            )
    if len(large) > MAX_LARGE_PATTERNS:
        raise SchemaTooHeavy(f"it has more than {MAX_LARGE_PATTERNS} patterns that take much memory")


def _takes_at_most(pattern: str, size: int) -> bool:
    try:
        options = jsonschema_rs.RegexOptions(size_limit=size)
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True, pattern_options=options)
    except ValueError:
        return False
    return True


def _require_soon_done(steps: list[int], value: Any) -> None:
    """For a schema that can make much work of a value: whether it does of this one."""
    places, found = 1, [value]
    for most in steps:
        if most > MAX_SCHEMA_STEPS:
            raise SchemaMismatch("nested deeper than this schema can be checked for", "")
        found = [
            part
            for each in found
            if isinstance(each, (dict, list))
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        places += len(found)
        if not found:
            if places * most > MAX_CHECK_STEPS:
                raise SchemaMismatch("of too many parts to be checked against this schema", "")
            return
    raise SchemaMismatch(f"nested deeper than {MAX_JSON_DEPTH} levels", "")
