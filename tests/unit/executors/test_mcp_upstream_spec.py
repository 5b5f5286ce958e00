from typing import Any

import msgspec
import pytest

from palyra.config.setting_types import InvalidSetting
from palyra.daemon.settings import Settings, check_together
from palyra.errors import InvalidInput
from palyra.executors.mcp_upstream.limits import MAX_DEFINITION_BYTES, MAX_SERVER_TOOLS
from palyra.executors.mcp_upstream.settings import BadServer, ServerPlan
from palyra.executors.mcp_upstream.spec import DefinitionKind, DefinitionRefused, read_listing

TOOL = DefinitionKind.TOOL


def tool_of(name: str = "getTime", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Tells the time.", "inputSchema": {"type": "object"}, **more}


def test_every_word_of_a_definition_is_in_its_digest() -> None:
    [first] = read_listing("clock", [(TOOL, tool_of())]).definitions
    assert first.name_behind("clock") == "clock.gettime" and first.name == "getTime"
    for other in (
        tool_of(description="Tells the time!"),
        tool_of(title="Time"),
        tool_of(inputSchema={"type": "object", "description": "x"}),
        tool_of(outputSchema={"type": "object"}),
        tool_of(annotations={"readOnlyHint": True}),
    ):
        assert read_listing("clock", [(TOOL, other)]).definitions[0].digest != first.digest
    assert read_listing("clock", [(TOOL, tool_of())]).definitions[0].digest == first.digest


@pytest.mark.parametrize(
    "raw",
    [
        tool_of(inputSchema={"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1/s.json"}}}),
        tool_of(inputSchema={"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}}),
        tool_of(inputSchema={"type": "string"}),
        tool_of(inputSchema=None),
        tool_of(inputSchema={"type": 7}),
        tool_of(name=""),
        tool_of(name="Über"),
        tool_of(description=7),
        tool_of(description="x" * MAX_DEFINITION_BYTES),
    ],
)
def test_what_cannot_be_offered_is_refused_with_a_reason(raw: dict[str, Any]) -> None:
    listing = read_listing("clock", [(TOOL, raw), (TOOL, tool_of("ok"))])
    assert [each.name for each in listing.definitions] == ["ok"] and len(listing.refused) == 1


def test_two_tools_with_one_name_here_are_one_and_a_refusal() -> None:
    listing = read_listing("clock", [(TOOL, tool_of("Get")), (TOOL, tool_of("get"))])
    assert [each.name for each in listing.definitions] == ["Get"] and listing.refused.keys() == {"get"}


def test_prompts_and_resources_are_definitions_of_their_own_kind() -> None:
    arguments = [{"name": "city", "description": "Where.", "required": True}, {"name": "unit"}]
    listing = read_listing(
        "clock",
        [
            (TOOL, {**tool_of("greet"), "kind": "prompt", "uri": "palyra://runs/x"}),
            (DefinitionKind.PROMPT, {"name": "greet", "description": "Greets.", "arguments": arguments}),
            (DefinitionKind.RESOURCE, {"name": "Now", "uri": "clock://now", "mimeType": "text/plain"}),
            (DefinitionKind.TEMPLATE, {"name": "zone", "uriTemplate": "clock://zone/{area}/{city}"}),
        ],
    )
    assert listing.refused == {}
    tool, prompt, resource, template = listing.definitions
    assert [each.name_behind("clock") for each in listing.definitions] == [
        *("clock.greet", "clock.prompt.greet", "clock.resource.now", "clock.resource.zone")
    ]
    # What a server says of a tool does not make it something else.
    assert (tool.kind, tool.uri) == (TOOL, "")
    assert prompt.input_schema["required"] == ["city"] and prompt.input_schema["properties"].keys() == {"city", "unit"}
    assert resource.input_schema["properties"] == {} and resource.media_type == "text/plain"
    assert template.input_schema["required"] == ["area", "city"]
    assert len({each.digest for each in listing.definitions}) == 4


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (DefinitionKind.RESOURCE, {"name": "mine", "uri": "palyra://runs/x"}),
        (DefinitionKind.TEMPLATE, {"name": "mine", "uriTemplate": "PALYRA://runs/{run_id}"}),
        (DefinitionKind.TEMPLATE, {"name": "query", "uriTemplate": "clock://zone{?area}"}),
        (DefinitionKind.TEMPLATE, {"name": "twice", "uriTemplate": "clock://{area}/{area}"}),
        (DefinitionKind.TEMPLATE, {"name": "beside", "uriTemplate": "clock://{area}{city}"}),
        (DefinitionKind.TEMPLATE, {"name": "long", "uriTemplate": "clock://" + "x" * 9_000}),
        (DefinitionKind.TEMPLATE, {"name": "none"}),
        (DefinitionKind.PROMPT, {"name": "odd", "arguments": [{}]}),
    ],
)
def test_a_resource_cannot_be_one_of_palyras_own(kind: DefinitionKind, raw: dict[str, Any]) -> None:
    listing = read_listing("clock", [(kind, raw)])
    assert listing.definitions == () and listing.refused.keys() == {raw["name"]}


@pytest.mark.promise("P-limits")
def test_listings_are_bounded() -> None:
    with pytest.raises(DefinitionRefused):
        read_listing("clock", [(TOOL, tool_of(str(number))) for number in range(MAX_SERVER_TOOLS + 1)])
    assert read_listing("clock", [(TOOL, tool_of(description="x" * MAX_DEFINITION_BYTES))]).definitions == ()


@pytest.mark.parametrize("name", ["fs", "process", "browser", "a.b", "Clock", "", "x" * 40, "a_b"])
def test_a_server_has_a_name_of_its_own(name: str) -> None:
    with pytest.raises(BadServer):
        ServerPlan(command="x").check(name)


@pytest.mark.parametrize(
    "more", [{"secrets": {"A": "nonsense"}}, {"env": {"A": "x"}, "secrets": {"A": "global/k"}}, {"tool_roots": ["x"]}]
)
def test_what_a_server_is_given_makes_sense(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        msgspec.convert({"command": "x", **more}, ServerPlan).check("clock")


def test_a_servers_hosts_are_within_the_ceiling() -> None:
    def settings(*allowed: str) -> Settings:
        servers = {"clock": {"command": "x", "hosts": ["time.test"]}}
        return msgspec.convert({"mcp": {"servers": servers}, "egress": {"allowed_hosts": list(allowed)}}, Settings)

    check_together(settings("time.test"))
    with pytest.raises(InvalidSetting, match=r"mcp\.servers"):
        check_together(settings())
