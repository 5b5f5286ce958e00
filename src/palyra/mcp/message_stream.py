"""Messages of the protocol as lines of JSON over one request and its answer: what a client says on stdio, as
`palyra mcp` carries it to the daemon.

A line that is no message gets the error that JSON-RPC has for it, and the next line is read. One that is too long is
skipped to its end.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from palyra.mcp.limits import MAX_MESSAGE_BYTES, MESSAGES_AHEAD
from palyra.mcp.message_lines import LineSplitter

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


def refusal_of(line: bytes | None) -> dict[str, Any]:
    """What JSON-RPC answers to a line that is no message."""
    if line is None:
        return _error(None, INVALID_REQUEST, f"a message has at most {MAX_MESSAGE_BYTES} bytes")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, PARSE_ERROR, "this line is not JSON")
    asked = value.get("id") if isinstance(value, dict) else None
    known = asked if isinstance(asked, str | int) and not isinstance(asked, bool) else None
    return _error(known, INVALID_REQUEST, "this is not one JSON-RPC request, notification or response")


def _error(request_id: str | int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


class StreamedConnection:
    """One client on one request. ``close`` ends it from outside."""

    def __init__(self, server: Server[Any], request: Any, receive: Receive, send: Send) -> None:
        self._server = server
        self._request = request
        self._receive = receive
        self._send = send
        self._scope = anyio.CancelScope()
        self._writing = anyio.Lock()

    def close(self) -> None:
        self._scope.cancel()

    async def serve(self) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        # At once: the program on the other side waits for the head.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        to_server, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](MESSAGES_AHEAD)
        outbound, from_server = anyio.create_memory_object_stream[SessionMessage](MESSAGES_AHEAD)
        with self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, to_server)
                group.start_soon(self._write, from_server)
                await self._server.run(inbound, outbound, self._server.create_initialization_options())
                # Nothing more will be answered: who still reads what the client says need not.
                group.cancel_scope.cancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _read(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        lines = LineSplitter()
        async with to_server:
            while True:
                message = await self._receive()
                if message["type"] != "http.request":
                    # The client is gone, and with it whoever waited for an answer.
                    self._scope.cancel()
                    return
                for line in lines.feed(message.get("body", b"")):
                    await self._take(line, to_server)
                if not message.get("more_body", False):
                    return

    async def _take(self, line: bytes | None, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        if line is not None:
            try:
                parsed = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                pass
            else:
                metadata = ServerMessageMetadata(request_context=self._request)
                await to_server.send(SessionMessage(parsed, metadata))
                return
        await self._write_line(json.dumps(refusal_of(line)).encode())

    async def _write(self, from_server: Any) -> None:
        async with from_server:
            async for each in from_server:
                await self._write_line(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def _write_line(self, line: bytes) -> None:
        async with self._writing:
            await self._send({"type": "http.response.body", "body": line + b"\n", "more_body": True})
