import threading
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from palyra.executors.files.spec import FILE_TOOLS
from palyra.workspace.root import open_workspace


def objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [each for item in schema for each in objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [each for item in schema.values() for each in objects(item)]


@pytest.mark.parametrize("name", FILE_TOOLS)
def test_schemas_are_valid_closed_and_described(name: str) -> None:
    for schema in (FILE_TOOLS[name].spec.input_schema, FILE_TOOLS[name].spec.output_schema):
        jsonschema_rs.meta.validate(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        for each in objects(schema):
            assert each["additionalProperties"] is False
            assert all(value.get("description") for value in each["properties"].values())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("fs.write", {"path": "d/new", "content": "x", "create_parents": True}),
        ("fs.read", {"path": "f"}),
        ("fs.read", {"path": "f", "encoding": "base64", "offset": 1, "limit": 1}),
        ("fs.list", {"recursive": True}),
        ("fs.search", {"query": "one"}),
        ("fs.search", {"query": "o.e", "regex": True, "max_matches": 1}),
        ("fs.patch", {"path": "f", "edits": [{"old": "one", "new": "1"}]}),
        ("fs.patch", {"path": "f", "diff": "@@ -1 +1 @@\n-one\n+1\n"}),
    ],
)
def test_real_calls_fit_their_schemas(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    (tmp_path / "f").write_text("one\ntwo\none more\n".replace("one more", "more"))
    (tmp_path / "l").symlink_to("f")
    tool = FILE_TOOLS[name]
    jsonschema_rs.validate(tool.spec.input_schema, arguments)
    with open_workspace(tmp_path, ()) as workspace:
        jsonschema_rs.validate(tool.spec.output_schema, tool.run(arguments, workspace, threading.Event()))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("fs.read", {}),
        ("fs.read", {"path": ""}),
        ("fs.read", {"path": "f", "limit": 0}),
        ("fs.read", {"path": "f", "offset": -1}),
        ("fs.read", {"path": "f", "offset": 2**53}),
        ("fs.read", {"path": "f", "other": 1}),
        ("fs.list", {"max_entries": 10**9}),
        ("fs.search", {"query": ""}),
        ("fs.write", {"path": "f", "content": "", "mode": "truncate"}),
        ("fs.write", {"path": "f", "content": "", "expected_sha256": "x"}),
        ("fs.patch", {"path": "f"}),
        ("fs.patch", {"path": "f", "edits": []}),
        ("fs.patch", {"path": "f", "edits": [{"old": "a", "new": "b"}], "diff": "x"}),
    ],
)
def test_bad_arguments_do_not_fit(name: str, arguments: dict[str, Any]) -> None:
    assert not jsonschema_rs.is_valid(FILE_TOOLS[name].spec.input_schema, arguments)
