"""The conversation, with a server made of a few lines. Real ones are in tests/security/test_mcp_servers_behind.py."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from palyra.mcp.behind.server_session import MAX_WAITING_MESSAGES, ServerFailed, ServerGone, ServerPipes, conversing
from palyra.mcp.limits import MAX_SERVER_MESSAGE_BYTES


def answering(answers: Callable[[str, dict[str, Any]], Any]) -> ServerPipes:
    """``answers`` gives the result to a method; None closes the pipe instead."""

    async def write(line: bytes) -> None:
        asked = json.loads(line)
        if "id" not in asked:
            return
        if asked["method"] == "initialize":
            result: Any = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            }
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
        async with conversing(answering(answers)) as session:
            assert [tool["name"] for _, tool in await session.offered(("tools", "prompts"))] == ["t0", "t1", "t2"]
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
        async with conversing(answering(lambda method, _: answer if method == "tools/list" else NO_METHOD)) as session:
            with pytest.raises(error):
                await session.offered(("tools",))


async def test_what_a_server_says_is_bounded_and_greetings_are_passed_over() -> None:
    async def write(_: bytes) -> None: ...

    pipes = ServerPipes(write)
    pipes.take(b"hello\n\n[]\n")
    assert pipes.failure is None
    note = b'{"jsonrpc":"2.0","method":"notifications/x"}\n'
    pipes.take(note * MAX_WAITING_MESSAGES)
    assert pipes.failure is None
    pipes.take(note)
    assert pipes.failure is not None
    giant = ServerPipes(write)
    giant.take(b"x" * (MAX_SERVER_MESSAGE_BYTES + 1))
    assert giant.failure is not None
    for each in (pipes, giant):
        each.close()
