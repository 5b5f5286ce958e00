"""The schemas, texts and limits of the browser tools: models and code agree on them."""

from typing import Any, get_args

import pytest

from palyra.browser.domain.action import Action
from palyra.executors.browser import arguments as tool_limits
from palyra.executors.browser.arguments import _ALIASES
from palyra.executors.browser.schemas import ACTION, TOOLS
from palyra.json_schema import SchemaCheck, SchemaMismatch
from palyra.limits import MAX_TOOL_OUTPUT_BYTES


def test_there_are_few_tools_and_each_says_what_it_does() -> None:
    assert list(TOOLS) == [
        f"browser.{name}"
        for name in (
            *("open", "close", "navigate", "snapshot", "find", "act", "wait", "screenshot", "tabs", "logs"),
            *("downloads", "handoff"),
        )
    ]
    for name, text in TOOLS.items():
        assert text.title and len(text.description) > 40, name
        for schema in (text.input_schema, text.output_schema):
            SchemaCheck(schema)
            assert schema["additionalProperties"] is False
        for field, described in text.input_schema["properties"].items():
            inner = described.get("items", described)
            assert described.get("description") or inner.get("properties") or described["type"] == "integer", field


def test_every_action_is_offered_but_those_that_are_tools() -> None:
    known = {str(kind.__struct_config__.tag) for kind in get_args(Action)}
    offered = {_ALIASES.get(name, name) for name in ACTION["properties"]["action"]["enum"]}
    assert known - offered == {"screenshot", "export_pdf"} and offered <= known
    fields = {field for kind in get_args(Action) for field in kind.__struct_fields__}
    # What an agent gives in other words: the value of a secret and the content of files it never holds.
    assert set(ACTION["properties"]) - {"action", "paths"} <= fields
    assert "origins" not in ACTION["properties"] and "files" not in ACTION["properties"]


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("browser.act", {"session": "s", "actions": []}),
        ("browser.act", {"session": "s", "actions": [{"action": "click"}] * (tool_limits.MAX_ACTIONS + 1)}),
        ("browser.act", {"session": "s", "actions": [{"action": "click", "target": 3}]}),
        ("browser.open", {"hosts": ["a.test"], "session_id": "x"}),
        ("browser.snapshot", {}),
        ("browser.screenshot", {"session": "s", "format": "gif"}),
    ],
)
def test_what_does_not_fit_is_refused(tool: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(SchemaMismatch):
        SchemaCheck(TOOLS[tool].input_schema).require(arguments)


def test_a_picture_within_its_limit_fits_into_a_result() -> None:
    most = (MAX_TOOL_OUTPUT_BYTES - tool_limits.RESULT_ROOM_BYTES) * 3 // 4
    assert most * 4 // 3 + tool_limits.RESULT_ROOM_BYTES <= MAX_TOOL_OUTPUT_BYTES
