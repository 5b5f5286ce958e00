"""Class *Policies*: an agent names a device or a session that is not its own, and policy or an approval believes it."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from fakes.daemon import Place
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.mcp_clients import connected
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.identity.api_tokens import TokenScope
from palyra.pipeline.domain.approval import ApprovalScope
from palyra.pipeline.store.approval_tables import read_approval
from palyra.server.http.app import create_app

pytestmark = pytest.mark.promise("P-proven-context")

BELIEVING = {
    "its name": 'context has device && context.device == Device::"laptop"',
    "that there is one": "context has device",
    "the session's name": 'context has session && context.session == "nightly"',
    "that there is a session": "context has session",
    "a part of the session's name": 'context has session && context.session like "*nightly"',
}
WORDS = ({"device": "laptop", "session": "nightly"}, {"device": "laptop"}, {"session": "nightly"})


def permit(tmp_path: Path, condition: str) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "own.cedar").write_text(
        '@id("trusted") permit (principal, action == Action::"tool.execute", resource == Tool::"echo")'
        f" when {{ {condition} }};"
    )


async def call(harness: GatewayHarness, token: str, tool: str = "echo", **body: Any) -> RawAnswer:
    asked = {"tool": tool, "arguments": {"text": "x"} if tool == "echo" else {"path": "."}, **body}
    return await ask(create_app(harness.gateway.service), "POST", "/v1/tool-calls", token=token, body=asked)


@pytest.mark.parametrize("condition", BELIEVING.values(), ids=BELIEVING.keys())
async def test_the_word_of_an_agent_is_no_device_and_no_session_to_policy(tmp_path: Path, condition: str) -> None:
    permit(tmp_path, condition)
    async with open_harness(tmp_path, {"tools": {"allowed": []}}) as harness:
        agent = await make_token(harness, "agent:bot", TokenScope.CALL)
        for words in WORDS:
            denied = await call(harness, agent, **words)
            assert denied.code == "call.denied", denied.document
            asked = [each for kind, each in harness.events(call=denied.error["details"]["call_id"])]
            context = next(each["policy_request"]["context"] for each in asked if "policy_request" in each)
            assert not {"device", "session"} & context.keys()
        # The person in front of an operator's client may say where they sit.
        allowed = await call(harness, await operator(harness), principal="agent:bot", **WORDS[0])
        assert allowed.status == 200, allowed.document


@pytest.mark.promise("P-approval-exact")
async def test_a_session_approval_is_reached_from_its_own_token_only(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        mine, stolen = [await make_token(harness, "agent:bot", TokenScope.CALL) for _ in range(2)]
        asked = await call(harness, mine, "fs.list", session="s")
        approval = await harness.approve(asked.error["details"]["approval_id"], scope=ApprovalScope.SESSION)
        for _ in range(2):
            assert (await call(harness, mine, "fs.list", session="s")).status == 200
        for words in ({"session": "s"}, {"session": approval.session}, {"session": f"s/{approval.session}"}, {}):
            for token in (stolen, mine) if words != {"session": "s"} else (stolen,):
                other = await call(harness, token, "fs.list", **words)
                assert other.status == 202 and other.error["details"]["approval_id"] != approval.id, words


async def test_a_session_that_an_mcp_client_makes_up_is_that_of_its_token(tmp_path: Path) -> None:
    """Revisions without a handshake have no sessions, so nothing checks the header."""
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    place = Place(tmp_path / "home", "[tools]\npreapproved = []\n")
    with place.daemon() as daemon:
        with daemon.client() as owner:
            token = owner.create_token("agent:bot").token.reveal()
        async with httpx2.AsyncClient(base_url=daemon.url, timeout=60) as http:
            request = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "fs_list", "arguments": {"path": "."}, "_meta": envelope},
            }
            headers = {
                "authorization": f"Bearer {token}",
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": "fs_list",
                "mcp-session-id": "somebody-elses",
            }
            answer = await http.post("/mcp", json=request, headers=headers)
            assert answer.status_code == 200, answer.text
        with daemon.client() as owner:
            (waiting,) = owner.approvals()
        assert waiting.session is not None and "somebody-elses" not in waiting.session
        token_id = token.split("_")[1]
        assert waiting.session == f"mcp:{token_id}/{token_id}"
        async with connected("stdio", place, daemon, token) as client:
            await client.call_tool("fs_list", {"path": "docs"})
        with daemon.client() as owner:
            of_connection = next(one.session for one in owner.approvals() if one.id != waiting.id)
        assert of_connection is not None and of_connection.startswith(f"mcp:{token_id}/stdio-")


async def test_an_operator_may_name_the_session_and_the_record_has_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        asked = await call(harness, await operator(harness), "fs.list", principal="agent:bot", session="s")
        assert read_approval(harness.gateway.store, asked.error["details"]["approval_id"]).session == "s"
