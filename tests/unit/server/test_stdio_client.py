"""A client on stdio, from its first words to its last."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from fakes.gateway_harness import open_harness
from fakes.raw_http import make_token
from palyra.executors.mcp_upstream.limits import MAX_MESSAGE_BYTES
from palyra.server.mcp.transports import McpTransport

MODERN_REVISION = MODERN_PROTOCOL_VERSIONS[0]
CLIENT = {"name": "x", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN_REVISION,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


def request(method: str, number: int | str = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params else {})}


def handshake(revision: str = "2025-11-25", **more: Any) -> dict[str, Any]:
    known = {"capabilities": {"roots": {"listChanged": True}, "elicitation": {}}, "clientInfo": CLIENT}
    return request("initialize", **{"protocolVersion": revision, **known, **more})


DEEP = "[" * 250 + "]" * 250
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Speaker:
    """A client on stdio that says a line and waits for the answer."""

    def __init__(self) -> None:
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(self) -> dict[str, Any]:
        return await self._outgoing.get()

    async def send(self, message: Any) -> None:
        for line in message.get("body", b"").splitlines():
            self._incoming.put_nowait(json.loads(line))

    def say(self, *messages: dict[str, Any] | bytes) -> None:
        lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        self._outgoing.put_nowait(
            {"type": "http.request", "body": b"".join(b"%s\n" % line for line in lines), "more_body": True}
        )

    async def received(self) -> Any:
        async with asyncio.timeout(60):
            return await self._incoming.get()

    async def ask(self, message: dict[str, Any]) -> Any:
        self.say(message)
        return await self.received()

    def hang_up(self) -> None:
        self._outgoing.put_nowait({"type": "http.request", "body": b"", "more_body": False})


class Caller:
    def __init__(self, token: str) -> None:
        self.headers = {"authorization": f"Bearer {token}"}
        self.scope: dict[str, Any] = {}


@asynccontextmanager
async def talking(transport: McpTransport, token: str) -> AsyncIterator[Speaker]:
    speaker = Speaker()
    serving = asyncio.create_task(
        transport.stream(Caller(token), "stdio-1", speaker.receive, speaker.send, principal="agent:bot")
    )
    try:
        yield speaker
        speaker.hang_up()
        async with asyncio.timeout(60):
            await serving
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def said(speaker: Speaker, message: dict[str, Any]) -> Any:
    if "id" in message:
        return await speaker.ask(message)
    speaker.say(message)
    return None


OPENINGS = [
    *([handshake(revision), INITIALIZED, request("ping", "a")] for revision in HANDSHAKE_PROTOCOL_VERSIONS),
    [handshake("1999-01-01"), INITIALIZED],
    [handshake(MODERN_REVISION), INITIALIZED],
    [request("server/discover", _meta=ENVELOPE)],
    # As editors and agents say it, with more than anybody here understands.
    [
        handshake(
            capabilities={"tools": True, "logging": False, "elicitation": {}, "roots": {"listChanged": False}},
            clientInfo={
                **CLIENT,
                "title": "Y",
                "websiteUrl": "https://y.test",
                "icons": [{"src": "data:,", "sizes": ["any"]}],
            },
        ),
        {**INITIALIZED, "params": {}},
    ],
]


async def test_every_revision_lists_tools_and_calls_them(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        token = await make_token(harness, "agent:bot")
        for messages in OPENINGS:
            transport = harness.gateway.mcp.transport()
            async with talking(transport, token) as speaker:
                for message in messages:
                    await said(speaker, message)
                meta = {"_meta": ENVELOPE} if "_meta" in messages[0].get("params", {}) else {}
                listed = await speaker.ask(request("tools/list", 8, **meta))
                assert "echo" in {tool["name"] for tool in listed["result"]["tools"]}
                call = await speaker.ask(request("tools/call", 9, name="echo", arguments={"text": "hi"}, **meta))
                assert call["id"] == 9 and call["result"]["structuredContent"] == {"text": "hi"}


async def test_what_is_said_before_the_library_is_loaded_is_answered(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        transport = harness.gateway.mcp.transport()
        async with talking(transport, await make_token(harness, "agent:bot")) as speaker:
            speaker.say(handshake(), INITIALIZED, request("resources/list", 2), request("tools/list", 3))
            received = {message["id"]: message for message in [await speaker.received() for _ in range(3)]}
            assert received.keys() == {1, 2, 3}
            assert received[2]["result"]["resources"] and received[3]["result"]["tools"]


async def test_a_line_that_is_no_message_is_an_error_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        transport = harness.gateway.mcp.transport()
        async with talking(transport, await make_token(harness, "agent:bot")) as speaker:
            speaker.say(handshake(), b"{nonsense", b"x" * (MAX_MESSAGE_BYTES + 1), request("tools/list", 3))
            received = [await speaker.received() for _ in range(4)]
            assert sorted(each["error"]["code"] for each in received if "error" in each) == [-32700, -32600]
            assert {each["id"] for each in received if "result" in each} == {1, 3}


async def test_a_handshake_that_is_nested_too_deep_is_an_error_and_the_client_may_begin_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        transport = harness.gateway.mcp.transport()
        async with talking(transport, await make_token(harness, "agent:bot")) as speaker:
            deep = json.dumps(handshake(capabilities={"experimental": {"a": {"b": "?"}}})).replace('"?"', DEEP)
            speaker.say(deep.encode(), request("tools/list", 7))
            assert "error" in await speaker.received()
            assert "error" in await speaker.received()
            assert (await speaker.ask(handshake()))["result"]["serverInfo"]["name"] == "palyra"


async def test_a_client_that_leaves_at_once_is_gone(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        transport = harness.gateway.mcp.transport()
        speaker = Speaker()
        speaker._outgoing.put_nowait({"type": "http.disconnect"})
        async with asyncio.timeout(60):
            caller = Caller(await make_token(harness, "agent:bot"))
            await transport.stream(caller, "stdio-1", speaker.receive, speaker.send, principal="agent:bot")
        assert transport.connections == 0
