import pytest

from palyra.tools.schema_check import InvalidSchema, SchemaCheck, SchemaMismatch


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"type": "no-such-type"},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": "(a)\\1"},
    ],
)
def test_schemas_that_reach_out_or_make_no_sense_are_refused(schema: dict[str, object]) -> None:
    with pytest.raises(InvalidSchema):
        SchemaCheck(schema)


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
