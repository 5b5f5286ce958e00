"""The first words of a conversation are answered without the library exactly as the library answers them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from fakes.house import open_house
from fakes.raw_http import make_token
from palyra.mcp.limits import MAX_MESSAGE_BYTES
from palyra.mcp.message_stream import OpeningRefused
from palyra.mcp.opening import (
    HANDSHAKE_REVISIONS,
    MODERN_REVISION,
    ForTheLibrary,
    Noted,
    Opening,
    Reply,
    ToolsAsked,
)
from palyra.mcp.protocol_door import ProtocolDoor

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
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._heard: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(self) -> dict[str, Any]:
        return await self._said.get()

    async def send(self, message: Any) -> None:
        for line in message.get("body", b"").splitlines():
            self._heard.put_nowait(json.loads(line))

    def say(self, *messages: dict[str, Any] | bytes) -> None:
        lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        self._said.put_nowait(
            {"type": "http.request", "body": b"".join(b"%s\n" % line for line in lines), "more_body": True}
        )

    async def heard(self) -> Any:
        async with asyncio.timeout(60):
            return await self._heard.get()

    async def ask(self, message: dict[str, Any]) -> Any:
        self.say(message)
        return await self.heard()

    def hang_up(self) -> None:
        self._said.put_nowait({"type": "http.request", "body": b"", "more_body": False})


class Caller:
    def __init__(self, token: str) -> None:
        self.headers = {"authorization": f"Bearer {token}"}
        self.scope: dict[str, Any] = {}


@asynccontextmanager
async def talking(door: ProtocolDoor, token: str) -> AsyncIterator[Speaker]:
    speaker = Speaker()
    serving = asyncio.create_task(door.stream(Caller(token), "stdio-1", speaker.receive, speaker.send))
    try:
        yield speaker
        speaker.hang_up()
        async with asyncio.timeout(60):
            await serving
    finally:
        serving.cancel()
        await asyncio.wait([serving])


def loaded(door: ProtocolDoor) -> bool:
    return door._server is not None


OPENINGS = [
    *(
        [handshake(revision), INITIALIZED, request("ping", "a"), request("tools/list", 2)]
        for revision in HANDSHAKE_REVISIONS
    ),
    [handshake("1999-01-01"), request("tools/list", 2)],
    [handshake(MODERN_REVISION), INITIALIZED, request("tools/list", 2)],
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
        request("tools/list", 2) | {"params": {}},
    ],
    [
        handshake(
            capabilities={
                "roots": {"listChanged": True},
                "sampling": {"tools": {}},
                "elicitation": {"form": {}, "url": {}},
                "tasks": {"list": {}, "cancel": {}, "requests": {"elicitation": {"create": {}}}},
                "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}},
            }
        ),
        INITIALIZED,
        request("tools/list", 2),
    ],
    [request("server/discover", _meta=ENVELOPE), request("tools/list", 2, _meta=ENVELOPE)],
    [request("tools/list", _meta=ENVELOPE), request("server/discover", 2, _meta=ENVELOPE)],
]


def test_the_revisions_are_those_of_the_library() -> None:
    assert HANDSHAKE_REVISIONS == HANDSHAKE_PROTOCOL_VERSIONS and (MODERN_REVISION,) == MODERN_PROTOCOL_VERSIONS


@pytest.mark.promise("P-mcp-client")
async def test_an_opening_is_answered_as_the_library_answers_it_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        token = await make_token(house, "agent:bot")
        told = []
        for messages in OPENINGS:
            # A door that nobody has come through: each conversation opens it anew.
            house.gateway.mcp.__dict__.pop("_door", None)
            door = house.gateway.mcp.door()
            async with talking(door, token) as speaker:
                answers = [await said(speaker, message) for message in messages[:-1]]
                assert not loaded(door) or messages[0]["method"] == "tools/list"
                answers.append(await said(speaker, messages[-1]))
                # From here on it is the library that speaks, and it knows what was said before.
                meta = {"_meta": ENVELOPE} if "_meta" in messages[0].get("params", {}) else {}
                call = await speaker.ask(request("tools/call", 9, name="echo", arguments={"text": "hi"}, **meta))
                assert call["id"] == 9 and call["result"]["structuredContent"] == {"text": "hi"}
                assert loaded(door)
                told.append(answers)
        for messages, answers in zip(OPENINGS, told, strict=True):
            async with talking(door, token) as speaker:
                assert [await said(speaker, message) for message in messages] == answers


async def said(speaker: Speaker, message: dict[str, Any]) -> Any:
    if "id" in message:
        return await speaker.ask(message)
    speaker.say(message)
    return None


async def test_what_the_opening_does_not_know_waits_for_the_library_and_keeps_nobody_from_their_tools(
    tmp_path: Path,
) -> None:
    async with open_house(tmp_path) as house:
        door = house.gateway.mcp.door()
        async with talking(door, await make_token(house, "agent:bot")) as speaker:
            speaker.say(handshake(), INITIALIZED, request("resources/list", 2), request("tools/list", 3))
            heard = {message["id"]: message for message in [await speaker.heard() for _ in range(3)]}
            assert heard.keys() == {1, 2, 3}
            assert heard[2]["result"]["resources"] and heard[3]["result"]["tools"]


async def test_a_line_that_is_no_message_is_an_error_and_the_opening_goes_on(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        door = house.gateway.mcp.door()
        async with talking(door, await make_token(house, "agent:bot")) as speaker:
            speaker.say(handshake(), b"{nonsense", b"x" * (MAX_MESSAGE_BYTES + 1), request("tools/list", 3))
            heard = [await speaker.heard() for _ in range(4)]
            assert sorted(each["error"]["code"] for each in heard if "error" in each) == [-32700, -32600]
            assert {each["id"] for each in heard if "result" in each} == {1, 3}


@pytest.mark.parametrize(
    "line",
    [
        b"{nonsense",
        b"[]",
        b"\xff",
        b"[" * 10_000,
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        json.dumps({**INITIALIZED, "id": None}).encode(),
        json.dumps(INITIALIZED).encode(),
        json.dumps(request("ping")).encode(),
        json.dumps(handshake(_meta={"traceparent": "x"})).encode(),
        json.dumps(handshake(capabilities={"roots": []})).encode(),
        json.dumps(handshake(clientInfo={"name": "x"})).encode(),
        # The library follows lists into each other as far as that, and no further.
        json.dumps(handshake(capabilities={"experimental": {"a": {"b": "?"}}})).replace('"?"', DEEP).encode(),
        json.dumps(request("initialize")).encode(),
        json.dumps(request("tools/list")).encode(),
        json.dumps(request("tools/list", _meta={**ENVELOPE, "progressToken": 1})).encode(),
        json.dumps(request("tools/call", _meta=ENVELOPE)).encode(),
        None,
    ],
)
def test_whatever_is_out_of_the_ordinary_is_the_librarys(line: bytes | None) -> None:
    opening = Opening("1")
    assert opening.take(line) == ForTheLibrary() and opening.replay == []
    # The library answers the handshake then, too.
    assert opening.take(json.dumps(handshake()).encode()) == ForTheLibrary()


def test_what_the_library_must_hear_is_kept() -> None:
    lines = [json.dumps(each).encode() for each in (handshake(), INITIALIZED, request("tools/list", "b"))]
    opening = Opening("1")
    steps = [opening.take(line) for line in lines]
    assert isinstance(steps[0], Reply) and steps[1:] == [Noted(), ToolsAsked("b", modern=False)]
    assert opening.replay == lines[:2]
    assert opening.take(lines[1]) == ForTheLibrary()


async def test_a_handshake_that_is_nested_too_deep_is_an_error_and_the_client_may_begin_again(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        door = house.gateway.mcp.door()
        async with talking(door, await make_token(house, "agent:bot")) as speaker:
            deep = json.dumps(handshake(capabilities={"experimental": {"a": {"b": "?"}}})).replace('"?"', DEEP)
            speaker.say(deep.encode(), request("tools/list", 7))
            assert "error" in await speaker.heard()
            assert "error" in await speaker.heard()
            assert (await speaker.ask(handshake()))["result"]["serverInfo"]["name"] == "palyra"


async def test_a_client_that_was_let_in_too_easily_is_asked_to_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = Opening._shake_hands

    def too_easily(self: Opening, line: bytes, number: int | str, said: Any) -> Any:
        return answered(self, line.replace(b'"clientInfo"', b'"nobody"'), number, said)

    monkeypatch.setattr(Opening, "_shake_hands", too_easily)
    async with open_house(tmp_path) as house:
        speaker = Speaker()
        caller = Caller(await make_token(house, "agent:bot"))
        serving = house.gateway.mcp.door().stream(caller, "stdio-1", speaker.receive, speaker.send)
        speaker.say(handshake(), request("resources/list", 2))
        async with asyncio.timeout(60):
            with pytest.raises(BaseExceptionGroup) as ended:
                await serving
        assert ended.group_contains(OpeningRefused)


async def test_a_client_that_leaves_at_once_loads_nothing_it_did_not_ask_for(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        door = house.gateway.mcp.door()
        speaker = Speaker()
        speaker._said.put_nowait({"type": "http.disconnect"})
        async with asyncio.timeout(60):
            await door.stream(Caller(await make_token(house, "agent:bot")), "stdio-1", speaker.receive, speaker.send)
        assert not loaded(door) and door.connections == 0
