"""Attacks through the Model Context Protocol: other people's runs and sessions, broken and giant messages, wrong
revisions, pages of other sites."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from fakes.daemon import Daemon, Place
from fakes.mcp_clients import TRANSPORTS, connected, meta, over_http, words
from palyra.executors.mcp_upstream.limits import MAX_MESSAGE_BYTES

HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Harness:
    def __init__(self, place: Place, daemon: Daemon) -> None:
        self.place = place
        self.daemon = daemon
        with daemon.client() as owner:
            self.bot = owner.create_token("agent:bot").token.reveal()
            self.other = owner.create_token("agent:other").token.reveal()
            self.asked = owner.create_token("agent:asked").token.reveal()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    place = Place(
        tmp_path_factory.mktemp("mcp"),
        '[tools]\npreapproved = ["process.start"]\n[mcp]\ndeciders = {"agent:asked" = "user:operator"}\n',
    )
    (place.policies / "other.cedar").write_text(
        '@id("other-runs-nothing")\nforbid (principal == Agent::"other", action == Action::"tool.execute", '
        'resource == Tool::"process.run");'
    )
    with place.daemon() as daemon:
        yield Harness(place, daemon)


@pytest.mark.promise("P-own-only")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_two_tokens_see_different_tools_and_none_of_the_others_calls(harness: Harness, transport: str) -> None:
    async with (
        connected(transport, harness.place, harness.daemon, harness.bot) as bot,
        connected(transport, harness.place, harness.daemon, harness.other) as other,
    ):
        mine = {tool.name for tool in (await bot.list_tools()).tools}
        theirs = {tool.name for tool in (await other.list_tools()).tools}
        assert mine - theirs == {"process_run"} and not theirs - mine
        started = await bot.call_tool("process_start", {"command": "sleep", "args": ["60"]})
        handle, run = started.structured_content["handle"], meta(started, "run_id")
        # The run by name, the call by name, and the handle: all look like nothing.
        for uri in (f"palyra://calls/{meta(started, 'call_id')}", f"palyra://calls/{meta(started, 'call_id')}/result"):
            with pytest.raises(MCPError, match="no call"):
                await other.read_resource(uri)
        assert json.loads((await other.read_resource(f"palyra://runs/{run}")).contents[0].text)["calls"] == []
        for run_meta in ({}, {"dev.palyra/run_id": run}):
            taken = await other.call_tool("process_stop", {"handle": handle}, meta=run_meta)
            assert taken.is_error and meta(taken, "error")["code"] in ("process.unknown_handle", "run.unknown")
        stopped = await bot.call_tool("process_stop", {"handle": handle})
        assert not stopped.is_error, words(stopped)


@pytest.mark.promise("P-own-only")
async def test_a_session_cannot_be_used_with_another_token(harness: Harness) -> None:
    async with httpx2.AsyncClient(base_url=harness.daemon.url, timeout=60) as http:
        begun = await post(http, HANDSHAKE, harness.bot)
        session = begun.headers["mcp-session-id"]
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        stolen = await post(http, listing, harness.other, **headers)
        assert stolen.status_code == 404
        ended = await http.delete("/mcp", headers={"authorization": f"Bearer {harness.other}", **headers})
        assert ended.status_code == 404
        assert (await post(http, listing, harness.bot, **headers)).status_code == 200


@pytest.mark.promise("P-tokens")
async def test_a_revoked_token_ends_an_open_connection(harness: Harness) -> None:
    with harness.daemon.client() as owner:
        made = owner.create_token("agent:brief")
        async with over_http(harness.daemon, made.token.reveal()) as client:
            assert not (await client.call_tool("echo", {"text": "hi"})).is_error
            owner.revoke_token(made.view.token_id)
            with pytest.raises((MCPError, httpx2.HTTPStatusError)):
                await client.call_tool("echo", {"text": "hi"})


async def test_an_agents_token_cannot_speak_for_somebody_else(harness: Harness) -> None:
    async with httpx2.AsyncClient(base_url=harness.daemon.url, timeout=60) as http:
        refused = await post(http, HANDSHAKE, harness.bot, **{"palyra-principal": "user:operator"})
        assert refused.status_code == 403 and refused.json()["error"]["code"] == "token.scope_missing"
        for token in ("x", "plr_nonsense"):
            assert (await post(http, HANDSHAKE, token)).status_code == 401


@pytest.mark.promise("P-api-local")
async def test_a_page_of_another_site_is_refused(harness: Harness) -> None:
    async with httpx2.AsyncClient(base_url=harness.daemon.url, timeout=60) as http:
        for headers in ({"origin": "https://evil.test"}, {"origin": "null"}, {"origin": "http://["}):
            refused = await post(http, HANDSHAKE, harness.bot, **headers)
            assert refused.status_code == 403 and refused.json()["error"]["code"] == "http.origin_refused"
        rebound = await post(http, HANDSHAKE, harness.bot, host="evil.test")
        assert rebound.status_code == 421


@pytest.mark.promise("P-mcp-client")
@pytest.mark.parametrize(
    "body",
    [
        b"{nonsense",
        b"",
        b"null",
        b"[]",
        b"[" * 50_000,
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":17}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"x"}',
        b"\xff\xfe\x00",
    ],
)
async def test_broken_messages_over_http_are_errors_and_the_server_goes_on(harness: Harness, body: bytes) -> None:
    async with httpx2.AsyncClient(base_url=harness.daemon.url, timeout=60) as http:
        for version in ("2025-11-25", "2026-07-28"):
            answer = await post(http, body, harness.bot, **{"mcp-protocol-version": version})
            assert 400 <= answer.status_code < 500, (version, answer.status_code)
        assert (await post(http, HANDSHAKE, harness.bot)).status_code == 200


@pytest.mark.promise("P-approval-shown")
async def test_an_answer_that_does_not_bring_the_digest_of_the_question_decides_nothing(harness: Harness) -> None:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "fs_write"}
    envelope = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    call = {"name": "fs_write", "arguments": {"path": "a.txt", "content": "x"}, "_meta": envelope}
    yes = {"approval": {"action": "accept", "content": {"decision": "approve"}}}

    async with httpx2.AsyncClient(base_url=harness.daemon.url, timeout=60) as http:

        async def say(**more: Any) -> Any:
            message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {**call, **more}}
            return (await post(http, message, harness.asked, **headers)).json()

        asked = (await say())["result"]
        approval, _, digest = asked["requestState"].partition(":")
        with harness.daemon.client() as owner:
            assert owner.approval(approval).argument_digest == digest
            for state in (approval, f"{approval}:", f"{approval}:{'0' * 64}", f"{approval}:{digest[:-1]}"):
                refused = await say(requestState=state, inputResponses=yes)
                assert refused["error"]["data"]["code"] == "approval.changed_call", refused
                assert owner.approval(approval).state == "pending"
        done = await say(requestState=asked["requestState"], inputResponses=yes)
        assert done["result"]["isError"] is False, done


@pytest.mark.promise("P-limits")
async def test_giant_messages_over_http_are_refused_unread(harness: Harness) -> None:
    async with httpx2.AsyncClient(base_url=harness.daemon.url, timeout=60) as http:
        giant = b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * MAX_MESSAGE_BYTES + b'"}'
        assert (await post(http, giant, harness.bot)).status_code == 413
        assert (await post(http, HANDSHAKE, harness.bot)).status_code == 200


@pytest.mark.promise("P-mcp-client")
async def test_a_revision_that_nobody_knows_is_named_as_such(harness: Harness) -> None:
    async with httpx2.AsyncClient(base_url=harness.daemon.url, timeout=60) as http:
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": dict(ENVELOPE)}}
        listing["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1999-01-01"  # type: ignore[index]
        unknown = await post(http, listing, harness.bot, **{"mcp-protocol-version": "1999-01-01"})
        assert unknown.status_code == 400 and "2026-07-28" in unknown.text
        # A handshake that offers an unknown one is answered with one that we speak.
        odd = {**HANDSHAKE, "params": {**HANDSHAKE["params"], "protocolVersion": "1999-01-01"}}  # type: ignore[dict-item]
        assert "2025-11-25" in (await post(http, odd, harness.bot)).text


@pytest.mark.promise("P-limits")
async def test_broken_and_giant_lines_on_stdio_are_errors_and_the_server_goes_on(harness: Harness) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palyra.cli.main", "mcp"),
        env={**harness.place.environment, "PALYRA_TOKEN": harness.bot},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_MESSAGE_BYTES * 2,
    )
    assert program.stdin is not None and program.stdout is not None
    reader = program.stdout

    async def said() -> Any:
        async with asyncio.timeout(60):
            return json.loads(await reader.readline())

    for line in (b"{nonsense", b"[]", b"\xff\xff", b"[" * 50_000, b"x" * (MAX_MESSAGE_BYTES * 2)):
        program.stdin.write(line + b"\n")
        assert (await said())["error"]["code"] in (-32700, -32600), line[:20]
    listing: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": dict(ENVELOPE)}}
    listing["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1999-01-01"
    program.stdin.write(json.dumps(listing).encode() + b"\n")
    refused = await said()
    assert refused["id"] == 2 and "error" in refused
    listing["params"]["_meta"] = ENVELOPE
    for number, method in ((3, "no/such/method"), (4, "tools/list")):
        program.stdin.write(json.dumps({**listing, "id": number, "method": method}).encode() + b"\n")
        answer = await said()
        assert answer["id"] == number and ("error" in answer) == (number == 3)
    program.stdin.close()
    async with asyncio.timeout(60):
        assert await program.wait() == 0


def test_the_stream_of_lines_is_for_those_with_a_token(harness: Harness) -> None:
    host, port = harness.daemon.url.removeprefix("http://").split(":")
    for headers in (b"", b"authorization: Bearer x\r\n"):
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(
                b"POST /mcp/stdio HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"
                + headers
                + b"transfer-encoding: chunked\r\n\r\n"
            )
            assert b" 401 " in connection.recv(4096)


async def post(http: httpx2.AsyncClient, body: Any, token: str, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    known = {
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-method": "tools/list",
    }
    return await http.post("/mcp", content=content, headers={**known, **headers})
