from typing import Any

import msgspec
import pytest

from palyra.config.settings import InvalidSetting, Settings, check_together
from palyra.errors import InvalidInput
from palyra.mcp.behind.definition import DefinitionRefused, read_listing
from palyra.mcp.behind.server_plan import BadServer, ServerPlan
from palyra.mcp.limits import MAX_DEFINITION_BYTES, MAX_SERVER_TOOLS


def told(name: str = "getTime", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Tells the time.", "inputSchema": {"type": "object"}, **more}


def test_every_word_of_a_definition_is_in_its_digest() -> None:
    [first] = read_listing("clock", [told()]).definitions
    assert first.name_behind("clock") == "clock.gettime" and first.name == "getTime"
    for other in (
        told(description="Tells the time!"),
        told(title="Time"),
        told(inputSchema={"type": "object", "description": "x"}),
        told(outputSchema={"type": "object"}),
        told(annotations={"readOnlyHint": True}),
    ):
        assert read_listing("clock", [other]).definitions[0].digest != first.digest
    assert read_listing("clock", [told()]).definitions[0].digest == first.digest


@pytest.mark.parametrize(
    "raw",
    [
        told(inputSchema={"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1/s.json"}}}),
        told(inputSchema={"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}}),
        told(inputSchema={"type": "string"}),
        told(inputSchema=None),
        told(inputSchema={"type": 7}),
        told(name=""),
        told(name="Über"),
        told(description=7),
        told(description="x" * MAX_DEFINITION_BYTES),
    ],
)
def test_what_cannot_be_offered_is_refused_with_a_reason(raw: dict[str, Any]) -> None:
    listing = read_listing("clock", [raw, told("ok")])
    assert [each.name for each in listing.definitions] == ["ok"] and len(listing.refused) == 1


def test_two_tools_with_one_name_here_are_one_and_a_refusal() -> None:
    listing = read_listing("clock", [told("Get"), told("get")])
    assert [each.name for each in listing.definitions] == ["Get"] and listing.refused.keys() == {"get"}


def test_listings_are_bounded() -> None:
    with pytest.raises(DefinitionRefused):
        read_listing("clock", [told(str(number)) for number in range(MAX_SERVER_TOOLS + 1)])
    assert read_listing("clock", [told(description="x" * MAX_DEFINITION_BYTES)]).definitions == ()


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
