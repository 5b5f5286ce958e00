"""Prompts and resources of a server behind a real daemon, and what an argument could be, by the official client."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from fakes import conformance_mcp_server
from fakes.daemon import Daemon, Place
from fakes.mcp_clients import MODES, TRANSPORTS, connected, meta
from palyra.executors.mcp_upstream.spec import DefinitionKind, ToolDefinition
from palyra.server.mcp.resources import PART_TEMPLATE, RUN_TEMPLATE, NothingToComplete, suggestions
from palyra.server.mcp.upstream_offers import match_uri


class Harness:
    def __init__(self, place: Place, daemon: Daemon, home: Path) -> None:
        self.place = place
        self.daemon = daemon
        self.home = home
        with daemon.client() as owner:
            self.tokens = {name: owner.create_token(f"agent:{name}").token.reveal() for name in ("bot", "other")}

    def connected(self, who: str = "bot", transport: str = "http", mode: str = "legacy") -> Any:
        return connected(transport, self.place, self.daemon, self.tokens[who], mode=mode)

    def palyra(self, *words: str) -> Any:
        answer = self.place.palyra("mcp", *words, "--json")
        assert answer.status == 0, answer.stdout
        return answer.data


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    root = tmp_path_factory.mktemp("offers")
    home = root / "server"
    home.mkdir()
    shutil.copy(conformance_mcp_server.__file__, home / "server.py")
    place = Place(
        root / "place",
        f"""
[tools]
allowed = ["echo", "test.*"]
preapproved = ["test.prompt.simple.*", "test.prompt.prompt.with.arguments", "test.resource.*"]
[mcp.servers.test]
command = "/usr/bin/python3"
args = ["server.py", "test"]
workspace = {json.dumps(str(home))}
read_only = true
allow_interpreters = true
offers = ["tools", "prompts", "resources"]
""",
    )
    (place.policies / "other.cedar").write_text(
        '@id("no-texts-for-others")\nforbid (principal == Agent::"other", action == Action::"tool.execute", '
        'resource == Tool::"test.resource.static-text");'
    )
    with place.daemon() as daemon:
        harness = Harness(place, daemon, home)
        harness.palyra("look", "test")
        harness.palyra("approve", "test")
        yield harness


@pytest.mark.promise("P-mcp-servers")
@pytest.mark.parametrize(("transport", "mode"), list(zip(TRANSPORTS, MODES, strict=True)))
async def test_what_a_server_offers_beside_tools_is_asked_for_by_calls(
    harness: Harness, transport: str, mode: str
) -> None:
    async with harness.connected("bot", transport, mode) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert "test_simple_text" in tools and not any("prompt" in name or "static" in name for name in tools)
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert [each.name for each in prompts["test_prompt_with_arguments"].arguments] == ["arg1", "arg2"]
        said = await client.get_prompt("test_prompt_with_arguments", {"arg1": "one", "arg2": "two"})
        assert "one" in said.messages[0].content.text
        assert "test://static-text" in {str(each.uri) for each in (await client.list_resources()).resources}
        read = await client.read_resource("test://static-text")
        assert "static text" in read.contents[0].text
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
        assert {"test://template/{id}/data", RUN_TEMPLATE} <= templates
        assert json.loads((await client.read_resource("test://template/a%20b/data")).contents[0].text)["id"] == "a%20b"
        # Each of these was a call, on record as any other.
        run = meta(await client.call_tool("echo", {"text": "x"}), "run_id")
        timeline = json.loads((await client.read_resource(f"palyra://runs/{run}")).contents[0].text)
        called = [call["tool"] for call in timeline["calls"]]
        assert {"test.prompt.prompt.with.arguments", "test.resource.static-text", "test.resource.data"} <= set(called)


@pytest.mark.promise("P-mcp-servers")
async def test_policy_and_people_decide_about_them_too(harness: Harness) -> None:
    async with harness.connected("bot") as client:
        with pytest.raises(MCPError, match="palyra approvals approve"):
            await client.get_prompt("test_prompt_with_image")
        with pytest.raises(MCPError, match="no prompt"):
            await client.get_prompt("test_nothing")
        with pytest.raises(MCPError, match="no resource"):
            await client.read_resource("test://nothing")
        with pytest.raises(MCPError, match="arg2"):
            await client.get_prompt("test_prompt_with_arguments", {"arg1": "one"})
    async with harness.connected("other") as other:
        assert "test://static-text" not in {str(each.uri) for each in (await other.list_resources()).resources}
        with pytest.raises(MCPError, match="no resource"):
            await other.read_resource("test://static-text")
        # Nor by the name of what asks for it.
        denied = await other.call_tool("test.resource.static-text", {})
        assert meta(denied, "error")["code"] == "call.denied"


def test_whoever_reviews_a_resource_sees_its_address(harness: Harness) -> None:
    shown = harness.place.palyra("mcp", "show", "test").stdout
    assert "resource.data" in shown and "test://template/{id}/data" in shown


async def test_arguments_are_completed_from_what_the_session_has(harness: Harness) -> None:
    async with harness.connected("bot") as client:
        run = meta(await client.call_tool("echo", {"text": "x"}), "run_id")
        own = ResourceTemplateReference(uri=RUN_TEMPLATE)
        completed = await client.complete(own, {"name": "run_id", "value": run[:4]})
        assert completed.completion.values == [run]
        known = PromptReference(name="test_prompt_with_arguments")
        assert (await client.complete(known, {"name": "arg1", "value": ""})).completion.values == []
        for ref in (PromptReference(name="nothing"), ResourceTemplateReference(uri="test://nothing/{x}")):
            with pytest.raises(MCPError, match="there is no"):
                await client.complete(ref, {"name": "x", "value": ""})


@pytest.mark.promise("P-mcp-servers")
async def test_a_prompt_that_changes_is_not_given_until_it_is_reviewed(harness: Harness) -> None:
    async with harness.connected("bot") as client:
        assert (await client.get_prompt("test_simple_prompt")).messages
        (harness.home / "changed").touch()
        for _ in range(2):
            with pytest.raises(MCPError, match="quarantine"):
                await client.get_prompt("test_simple_prompt")
            (harness.home / "changed").unlink(missing_ok=True)
        harness.palyra("look", "test")
        harness.palyra("approve", "test", "prompt.simple.prompt")
        assert (await client.get_prompt("test_simple_prompt")).messages


def test_suggestions_begin_as_the_user_did() -> None:
    found = {"run_id": "R1", "call_ids": ["C1", "C2", "D1"]}
    assert suggestions(PART_TEMPLATE, "call_id", "C", **found) == ["C1", "C2"]
    assert suggestions(PART_TEMPLATE, "part", "re", **found) == ["result", "receipt"]
    assert suggestions(RUN_TEMPLATE, "run_id", "X", **found) == []
    with pytest.raises(NothingToComplete):
        suggestions(RUN_TEMPLATE, "part", "", **found)


def test_an_address_that_cannot_be_taken_apart_does_not_stand_in_the_way_of_others() -> None:
    def template(uri: str) -> ToolDefinition:
        return ToolDefinition(name="t", input_schema={}, kind=DefinitionKind.TEMPLATE, uri=uri)

    for ambiguous in ("clock://{a}{b}", "clock://{a}/{a}", "clock://" + "x" * 9_000):
        assert match_uri(template(ambiguous), "clock://noon") is None
    assert match_uri(template("clock://{a}"), "clock://noon") == {"a": "noon"}
