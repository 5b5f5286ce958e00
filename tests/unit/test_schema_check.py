from typing import Any

import pytest

from palyra.executors import builtin
from palyra.json_schema import (
    MAX_LARGE_PATTERNS,
    MAX_SCHEMA_PARTS,
    MAX_SCHEMA_PATTERNS,
    InvalidSchema,
    SchemaCheck,
    SchemaMismatch,
    SchemaTooHeavy,
)
from palyra.limits import MAX_JSON_DEPTH


@pytest.mark.promise("P-one-meaning")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#none"},
        {"$defs": {"a": {"$id": "urn:a", "$defs": {"b": {}}}}, "$ref": "#/$defs/a"},
        {"type": "no-such-type"},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": "(a)\\1"},
    ],
)
def test_schemas_that_reach_out_or_make_no_sense_are_refused(schema: dict[str, object]) -> None:
    with pytest.raises(InvalidSchema):
        SchemaCheck(schema)


def test_a_schema_that_makes_no_sense_is_told_where() -> None:
    with pytest.raises(InvalidSchema, match=r'"strin" .* \(at /properties/a~1b/type\)$'):
        SchemaCheck({"type": "object", "properties": {"a/b": {"type": "strin"}}})


@pytest.mark.promise("P-one-meaning")
def test_a_mismatch_names_the_place() -> None:
    check = SchemaCheck({"properties": {"a/b": {"items": {"type": "integer"}}}})
    with pytest.raises(SchemaMismatch) as refused:
        check.require({"a/b": [1, "x"]})
    assert refused.value.pointer == "/a~1b/1"


def test_references_inside_the_schema_work() -> None:
    check = SchemaCheck({"$defs": {"n": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/n"}}})
    check.require({"x": 1})
    with pytest.raises(SchemaMismatch):
        check.require({"x": "1"})


def doubled(links: int, word: str = "allOf") -> dict[str, Any]:
    """Each part refers to the one before twice: a few kilobytes, and two to the power of ``links`` steps."""
    parts: dict[str, Any] = {"a0": {"type": "string"}}
    for link in range(1, links + 1):
        parts[f"a{link}"] = {word: [{"$ref": f"#/$defs/a{link - 1}"}] * 2}
    return {"$defs": parts, "properties": {"x": {"$ref": f"#/$defs/a{links}"}}}


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply_are_refused_before_anything_is_checked(word: str) -> None:
    SchemaCheck(doubled(5, word))
    with pytest.raises(SchemaTooHeavy, match="steps"):
        SchemaCheck(doubled(60, word))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$dynamicAnchor": "a", "allOf": [{"$dynamicRef": "#a"}]}}, "$ref": "#/$defs/a"},
        {"properties": {f"p{number}": {"type": "string"} for number in range(MAX_SCHEMA_PARTS)}},
        {"allOf": [{"pattern": f"^{number}$"} for number in range(MAX_SCHEMA_PATTERNS + 1)]},
        {"patternProperties": {f"^{number}$": {} for number in range(MAX_SCHEMA_PATTERNS + 1)}},
        {"allOf": [{"pattern": f"^.{{1,50{number}}}$"} for number in range(MAX_LARGE_PATTERNS + 1)]},
    ],
)
def test_schemas_that_may_take_for_ever_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaTooHeavy):
        SchemaCheck(schema)


def test_what_nothing_else_looked_at_is_looked_for_again_at_every_level() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(30):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    with pytest.raises(SchemaTooHeavy):
        SchemaCheck(schema)


def test_a_pattern_that_takes_much_memory_is_refused() -> None:
    SchemaCheck({"pattern": r"^.{1,1000}$"})
    with pytest.raises(InvalidSchema, match="too much memory"):
        SchemaCheck({"pattern": r"^\pL{900}$"})


ANY_JSON: dict[str, Any] = {
    "$defs": {
        "v": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/v"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}},
            ]
        }
    },
    "$ref": "#/$defs/v",
}
TREE: dict[str, Any] = {
    "$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}}}},
    "$ref": "#/$defs/t",
}
SUMS: dict[str, Any] = {
    "$defs": {
        "e": {
            "oneOf": [
                {"type": "integer"},
                *(
                    {"type": "object", "properties": {"op": {"const": sign}, "l": {"$ref": "#/$defs/e"}}}
                    for sign in "+-*/"
                ),
            ]
        }
    },
    "$ref": "#/$defs/e",
}


def nested(name: str, levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {name: value, "op": "+"}
    return value


def test_what_refers_to_itself_below_is_checked_to_the_last_level_where_it_does_not_multiply() -> None:
    SchemaCheck(ANY_JSON).require(nested("a", MAX_JSON_DEPTH - 1))
    SchemaCheck(TREE).require(nested("l", MAX_JSON_DEPTH - 1) | {"r": {}})


def test_a_value_too_deep_for_what_multiplies_at_every_level_is_refused_and_not_checked() -> None:
    check = SchemaCheck(SUMS)
    check.require({"op": "+", "l": {"op": "-", "l": 1}})
    with pytest.raises(SchemaMismatch, match="nested deeper than this schema can be checked for"):
        check.require(nested("l", 40))


def test_a_value_of_too_many_parts_for_a_heavy_schema_is_refused_and_not_checked() -> None:
    check = SchemaCheck({"items": doubled(9)["properties"]["x"] | {"$defs": {}}, "$defs": doubled(9)["$defs"]})
    check.require(["s"] * 100)
    with pytest.raises(SchemaMismatch, match="too many parts"):
        check.require(["s"] * 10_000)


def test_the_tools_that_come_with_palyra_are_light() -> None:
    for spec in builtin.SPECS:
        assert SchemaCheck(spec.input_schema)._steps is None and SchemaCheck(spec.output_schema)._steps is None
