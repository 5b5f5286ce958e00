import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.executors.files.spec import FILE_TOOLS
from palyra.executors.tool_set import builtin_catalog
from palyra.json_schema import SchemaCheck, SchemaMismatch
from palyra.pipeline.domain.spec import ToolCapability, ToolSpec
from palyra.skills.build.generation import (
    Needs,
    RecordedCall,
    host_and_path,
    infer_needs,
    infer_object_schema,
    infer_schema,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-10, 10) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, min_size=1, max_size=4))
def test_every_recorded_value_fits_the_schema_made_of_it(values):
    check = SchemaCheck(infer_schema(values))
    for value in values:
        check.require(value)


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=4), min_size=1, max_size=4))
def test_objects_give_a_schema_of_objects(values):
    schema = infer_object_schema(values)
    assert schema["type"] == "object"
    for value in values:
        SchemaCheck(schema).require(value)


def test_what_is_always_there_is_required_and_nothing_else_is_let_in():
    schema = infer_object_schema([{"a": 1, "b": "x"}, {"a": 2.5}])
    assert schema["required"] == ["a"]
    assert schema["properties"]["a"] == {"type": "number"}
    with pytest.raises(SchemaMismatch):
        SchemaCheck(schema).require({"a": 1, "c": 1})
    with pytest.raises(SchemaMismatch):
        SchemaCheck(schema).require({"b": "x"})


def test_without_examples_any_object_fits():
    assert infer_object_schema([None, 3]) == {"type": "object"}


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://api.example.com/v1?x=1#y", ("api.example.com", "/v1?x=1")),
        ("https://api.example.com:8443/", ("api.example.com:8443", "/")),
        ("https://api.example.com", ("api.example.com", "/")),
        ("https://api.example.com?q", ("api.example.com", "/?q")),
        ("http://api.example.com/", None),
        ("https://10.0.0.1/", None),
        ("https://user@api.example.com/", None),
        (7, None),
    ],
)
def test_hosts_are_named_and_reached_over_https(url, found):
    assert host_and_path(url) == found


@pytest.mark.parametrize("spec", builtin_catalog().specs(), ids=lambda spec: str(spec.name))
def test_every_tool_with_capabilities_is_a_need_or_beyond_a_skill(spec: ToolSpec) -> None:
    """A new tool that no case of ``infer_needs`` names would give a skill less than its calls used."""
    needs, capabilities = infer_needs([RecordedCall(tool=spec.name, arguments={})]), spec.metadata.capabilities
    assert (needs != Needs()) is bool(capabilities)
    if spec.name in FILE_TOOLS:
        writes = ToolCapability.FILESYSTEM_WRITE in capabilities
        assert (bool(needs.read_roots), bool(needs.write_roots)) == (not writes, writes)


def test_needs_are_what_the_calls_used():
    calls = (
        RecordedCall(tool="http.fetch", arguments={"url": "https://b.example/x"}),
        RecordedCall(tool="http.fetch", arguments={"url": "https://a.example/"}),
        RecordedCall(tool="http.fetch", arguments={"url": "http://c.example/"}),
        RecordedCall(tool="fs.read", arguments={"path": "a"}),
        RecordedCall(tool="process.run", arguments={}),
        RecordedCall(tool="echo", arguments={}),
    )
    needs = infer_needs(calls)
    assert needs.hosts == ("a.example", "b.example")
    assert (needs.read_roots, needs.write_roots) == (("files",), ())
    assert [one.partition(":")[0] for one in needs.beyond] == ["http.fetch", "process.run"]
    writing = infer_needs((*calls, RecordedCall(tool="fs.write", arguments={})))
    assert (writing.read_roots, writing.write_roots) == ((), ("files",))
