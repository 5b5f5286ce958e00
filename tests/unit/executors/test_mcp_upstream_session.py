"""The conversation, with a server made of a few lines. Real ones are in tests/security/test_mcp_servers_behind.py."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from fakes.eventually import eventually
from palyra.executors.mcp_upstream.instance import ServerFailed, ServerGone, ServerPipes, open_session
from palyra.executors.mcp_upstream.limits import (
    MAX_SERVER_CONTAINERS,
    MAX_SERVER_LINES_A_SECOND,
    MAX_SERVER_MESSAGE_BYTES,
    MAX_SERVER_REQUESTS,
)

INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "x", "version": "1"},
}


def answering(answers: Callable[[str, dict[str, Any]], Any]) -> ServerPipes:
    """``answers`` gives the result to a method; None closes the pipe instead."""

    async def write(line: bytes) -> None:
        asked = json.loads(line)
        if "id" not in asked:
            return
        if asked["method"] == "initialize":
            result: Any = INITIALIZED
        else:
            result = answers(asked["method"], asked.get("params") or {})
        if result is None:
            pipes.end()
            return
        answer = {"error": result} if "code" in result else {"result": result}
        pipes.take(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}).encode() + b"\n")

    pipes = ServerPipes(write)
    return pipes


NO_METHOD = {"code": -32601, "message": "no such method"}


async def test_tools_come_in_pages_and_calls_as_they_are_told() -> None:
    def answers(method: str, params: dict[str, Any]) -> Any:
        if method == "tools/list":
            page = int(params.get("cursor") or 0)
            tool = {"name": f"t{page}", "inputSchema": {"type": "object"}}
            return {"tools": [tool], **({"nextCursor": str(page + 1)} if page < 2 else {})}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": params["name"]}]}
        return NO_METHOD

    with anyio.fail_after(60):
        async with open_session(answering(answers)) as session:
            assert [tool["name"] for _, tool in await session.list_offers(("tools", "prompts"))] == ["t0", "t1", "t2"]
            assert (await session.call("t1", {}))["content"][0]["text"] == "t1"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (NO_METHOD, ServerFailed),
        ({"tools": "nonsense"}, ServerFailed),
        ({"tools": [], "nextCursor": "again"}, ServerFailed),
        (None, ServerGone),
    ],
)
async def test_a_server_that_answers_badly_has_failed(answer: Any, error: type[Exception]) -> None:
    with anyio.fail_after(60):
        async with open_session(
            answering(lambda method, _: answer if method == "tools/list" else NO_METHOD)
        ) as session:
            with pytest.raises(error):
                await session.list_offers(("tools",))


@pytest.mark.promise("P-limits")
async def test_what_a_server_says_is_bounded_and_greetings_are_passed_over() -> None:
    async def write(_: bytes) -> None: ...

    now = [0.0]
    giant = ServerPipes(write)
    giant.take(b"x" * (MAX_SERVER_MESSAGE_BYTES + 1))
    note = b'{"jsonrpc":"2.0","method":"notifications/x"}\n'
    answer = b'{"jsonrpc":"2.0","id":7,"result":{}}\n'
    broken = [giant]
    for line in (note, answer, b"hello\n", b"[]\n", b"\n"):
        pipes = ServerPipes(write, clock=lambda: now[0])
        for _ in range(3):
            pipes.take(line * MAX_SERVER_LINES_A_SECOND)
            now[0] += 1.0
        assert pipes.failure is None
        pipes.take(line * (MAX_SERVER_LINES_A_SECOND + 1))
        broken.append(pipes)
    for pipes in broken:
        assert pipes.failure is not None
        # It may go on: nobody looks at it any more.
        pipes.take(answer * 2)
        pipes.close()


@pytest.mark.promise("P-mcp-servers")
async def test_what_a_server_tells_unasked_reaches_nobody_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    notifications = [{"method": "notifications/message", "params": {"level": "info"}}, {"method": "notifications/\\n"}]

    def answers(method: str, _: dict[str, Any]) -> Any:
        for each in notifications:
            pipes.take(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n")
        return {"content": []} if method == "tools/call" else NO_METHOD

    pipes = answering(answers)
    with anyio.fail_after(60):
        async with open_session(pipes) as session:
            assert (await session.call("x", {}))["content"] == []
            await anyio.wait_all_tasks_blocked()
    assert caplog.records == []


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(("lists", "taken"), [(MAX_SERVER_CONTAINERS // 2, True), (MAX_SERVER_CONTAINERS, False)])
async def test_an_answer_of_nothing_but_brackets_is_a_flood(lists: int, taken: bool) -> None:
    answer = {"content": [{"type": "text", "text": "[" * lists}], "structuredContent": {"a": [[]] * lists}}
    pipes = answering(lambda method, _: answer if method == "tools/call" else NO_METHOD)
    with anyio.fail_after(60):
        async with open_session(pipes) as session:
            if taken:
                assert (await session.call("x", {}))["structuredContent"] == answer["structuredContent"]
            else:
                with pytest.raises(ServerGone):
                    await session.call("x", {})
    assert (pipes.failure is None) == taken


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize("listens", [True, False])
async def test_a_server_that_asks_and_does_not_listen_is_flooding(listens: bool) -> None:
    """Each of its requests would otherwise be kept until it does."""
    answered: list[Any] = []

    async def write(line: bytes) -> None:
        asked = json.loads(line)
        if asked.get("method") == "initialize":
            pipes.take(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": INITIALIZED}).encode() + b"\n")
        elif "method" not in asked:
            if not listens:
                await anyio.sleep_forever()
            answered.append(asked["id"])
        elif "id" in asked:
            pipes.take(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": NO_METHOD}).encode() + b"\n")

    pipes = ServerPipes(write, clock=lambda: 0.0)
    numbers = list(range(4 * MAX_SERVER_REQUESTS))
    with anyio.fail_after(60):
        async with open_session(pipes):
            for number in numbers:
                pipes.take(json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode() + b"\n")
                await eventually(lambda number=number: not listens or len(answered) > number, every=0)
    assert (pipes.failure is None) == listens and answered == (numbers if listens else [])


async def test_answers_are_no_flood_however_many_ask() -> None:
    def answers(method: str, params: dict[str, Any]) -> Any:
        return {"content": [{"type": "text", "text": "x"}]} if method == "tools/call" else {"tools": []}

    pipes = answering(answers)
    pipes._clock = lambda: 0.0
    with anyio.fail_after(60):
        async with open_session(pipes) as session:
            for _ in range(MAX_SERVER_LINES_A_SECOND + 10):
                await session.call("t", {})
    assert pipes.failure is None
