"""JSON Schema, draft 2020-12, without outside references, and with a bound on the work of a check.

A schema may come from a stranger, and the library that checks it cannot be stopped. Sixty references that each name the
one before twice are a few kilobytes, but more steps than a check could ever finish. So the steps are counted first:
each part of the schema once, then for values of ever more levels.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import jsonschema_rs

from palyra.errors import Failed, InvalidInput
from palyra.limits import KIB, MAX_JSON_DEPTH, MIB

# Parts of one schema, each an object in it, and the ways between them when every reference is followed.
MAX_SCHEMA_PARTS: Final = 4_096
MAX_SCHEMA_WAYS: Final = 20_000
MAX_SCHEMA_PATTERNS: Final = 128
# Parts visited on the way to any one place of a value. Schemas that people write stay far below.
MAX_SCHEMA_STEPS: Final = 32_768

# Keywords that apply to the value itself.
_HERE_ONE: Final = ("not", "if", "then", "else")
_HERE_MANY: Final = ("allOf", "anyOf", "oneOf")
_HERE_NAMED: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords that apply to every member, or to every item.
_EACH_MEMBER: Final = ("propertyNames", "unevaluatedProperties")
_EACH_ITEM: Final = ("contains", "unevaluatedItems", "contentSchema")
_NOTHING: Final[dict[str, Any]] = {}
_TOO_MANY: Final = MAX_SCHEMA_STEPS + 1
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")


class InvalidSchema(InvalidInput):
    code = "schema.invalid"
    hint = "write a self-contained JSON Schema, draft 2020-12: references to other documents are not followed"


class SchemaTooHeavy(InvalidSchema):
    code = "schema.too_heavy"
    hint = "write a smaller schema: fewer parts, fewer patterns, fewer references to the same part"


def steps_by_level(schema: dict[str, Any]) -> list[int]:
    """Return, for values of 0, 1 and more levels, the most parts of the schema visited on the way to one place.

    Counting stops above ``MAX_SCHEMA_STEPS``.
    """
    return _Weight(schema).steps_by_level()


def patterns_of(schema: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for part in _objects(schema):
        if isinstance(part.get("pattern"), str):
            found.add(part["pattern"])
        found.update(_get_object(part, "patternProperties"))
    return found


class _Weight:
    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._parts = list(_objects(schema))
        self._anchors = {
            part[name]: part
            for part in self._parts
            for name in ("$anchor", "$dynamicAnchor")
            if isinstance(part.get(name), str)
        }
        self._based = any(part is not schema and isinstance(part.get("$id"), str) for part in self._parts)
        self._here = {id(part): self._list_here(part) for part in (*self._parts, _NOTHING)}
        self._ways_left = MAX_SCHEMA_WAYS

    def steps_by_level(self) -> list[int]:
        here, ways = self._count_reached()
        steps: list[int] = []
        before = dict.fromkeys(here, 0)
        while len(steps) <= MAX_JSON_DEPTH:
            counted = {
                part: min(here[part] + max(sum(before[each] for each in way) for way in ways[part]), _TOO_MANY)
                for part in here
            }
            steps.append(counted[id(self._root)])
            if steps[-1] == _TOO_MANY or counted == before:
                # Another level changes nothing.
                steps += steps[-1:] * (MAX_JSON_DEPTH + 1 - len(steps))
            before = counted
        return steps

    def _count_reached(self) -> tuple[dict[int, int], dict[int, list[list[int]]]]:
        """Return, for each part that judges a place of a value, how many parts judge that place with it.

        Return also, for each way down from there, the parts that judge the next place.
        """
        here: dict[int, int] = {}
        ways: dict[int, list[list[int]]] = {}
        waiting = [self._root]
        for part in waiting:
            if id(part) in here:
                continue
            together = self._collect_together(part)
            here[id(part)] = len(together)
            found = self._list_ways_down(together)
            waiting.extend(each for way in found for each in way)
            ways[id(part)] = [[id(each) for each in way] for way in found]
        return here, ways

    def _collect_together(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the part and those it applies to the same place, each as often as it is visited."""
        found: list[dict[str, Any]] = []
        around: list[int] = []
        path: list[Any] = [part]
        while path:
            each = path.pop()
            if each is None:
                around.pop()
                continue
            if id(each) in around:
                raise SchemaTooHeavy("a part of it refers to itself, and so to no end")
            found.append(each)
            if len(found) > MAX_SCHEMA_STEPS:
                raise SchemaTooHeavy(f"to check one value may take more than {MAX_SCHEMA_STEPS} steps")
            if self._here[id(each)]:
                around.append(id(each))
                path.append(None)
                path.extend(self._here[id(each)])
        return found

    def _list_ways_down(self, together: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Return the parts for each named member, any other member, each item by its place, and any other item."""
        named = {name for part in together for name in _get_object(part, "properties")}
        places = range(max(len(_get_list(part, "prefixItems")) for part in together))
        self._ways_left -= (len(named) + len(places) + 2) * len(together)
        if self._ways_left < 0:
            raise SchemaTooHeavy(f"its parts lead to others in more than {MAX_SCHEMA_WAYS} ways")
        ways = [[each for part in together for each in _of_member(part, name)] for name in (None, *sorted(named))]
        ways += [[each for part in together for each in _of_item(part, place)] for place in (None, *places)]
        return ways

    def _list_here(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        found = _schemas(part.get(name) for name in _HERE_ONE)
        for name in _HERE_MANY:
            found += _schemas(_get_list(part, name))
        for name in _HERE_NAMED:
            found += _schemas(_get_object(part, name).values())
        for name in _REFERENCES:
            if isinstance(part.get(name), str):
                found.append(self._resolve_reference(part[name]))
        # To know which members are unevaluated, all parts are visited once more.
        return found * 2 if any(name in part for name in _UNEVALUATED) else found

    def _resolve_reference(self, reference: str) -> dict[str, Any]:
        base = self._root.get("$id")
        document, _, fragment = reference.partition("#")
        if (document and document != base) or self._based:
            raise InvalidSchema(
                f"it refers to {reference[:100]!r}, which cannot be resolved here",
                hint="refer to parts of the schema itself, as in #/$defs/NAME, and give none an $id of its own",
            )
        if fragment and not fragment.startswith("/"):
            found: Any = self._anchors.get(fragment)
        else:
            found = _at(self._root, fragment)
        # The library refuses anything but a schema; true and false are not much work.
        return found if isinstance(found, dict) else _NOTHING


def _objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every object at any depth: a reference may name any."""
    waiting: list[Any] = [schema]
    count = 0
    for each in waiting:
        if isinstance(each, dict):
            count += 1
            if count > MAX_SCHEMA_PARTS:
                raise SchemaTooHeavy(f"it has more than {MAX_SCHEMA_PARTS} parts")
            yield each
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def _of_member(part: dict[str, Any], name: str | None) -> list[dict[str, Any]]:
    members = _get_object(part, "properties")
    own = members[name] if name in members else part.get("additionalProperties")
    return _schemas((own, *_get_object(part, "patternProperties").values(), *(part.get(each) for each in _EACH_MEMBER)))


def _of_item(part: dict[str, Any], place: int | None) -> list[dict[str, Any]]:
    first = _get_list(part, "prefixItems")
    items = part.get("items")
    own = [first[place]] if place is not None and place < len(first) else items if isinstance(items, list) else [items]
    return _schemas((*own, part.get("additionalItems"), *(part.get(each) for each in _EACH_ITEM)))


def _schemas(values: Iterable[Any]) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)]


def _get_list(part: dict[str, Any], name: str) -> list[Any]:
    found = part.get(name)
    return found if isinstance(found, list) else []


def _get_object(part: dict[str, Any], name: str) -> dict[str, Any]:
    found = part.get(name)
    return found if isinstance(found, dict) else {}


def _at(root: Any, pointer: str) -> Any:
    """Return the value that a JSON pointer names, or None."""
    from urllib.parse import unquote

    found = root
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


_SHOWN_CHARS = 200
# Size of a compiled pattern. Few take more than a few kilobytes: those that repeat letters of all languages.
MAX_PATTERN_BYTES = 32 * KIB
MAX_LARGE_PATTERN_BYTES = 4 * MIB
MAX_LARGE_PATTERNS = 4
# Steps for the check of one value: some tenths of a second. For a schema of few steps they are not counted.
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
    """Return the place in the schema, by which its author finds the fault."""
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
                f"the pattern {pattern[:_SHOWN_CHARS]!r} is not a regular expression, or takes too much memory",
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
    """Refuse a value whose check by a heavy schema would take too many steps."""
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
