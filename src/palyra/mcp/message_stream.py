"""Messages of the protocol as lines of JSON, between a client on stdio and the protocol's library.

A line that is no message gets the error that JSON-RPC has for it, and the next line is read.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from palyra.mcp.limits import MAX_MESSAGE_BYTES, MESSAGES_AHEAD

Lines = MemoryObjectReceiveStream[bytes | None]
Write = Callable[[bytes], Awaitable[None]]
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


def refusal_of(line: bytes | None) -> dict[str, Any]:
    """What JSON-RPC answers to a line that is no message. ``None`` stands for one that was too long."""
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


class MessageStream:
    """One conversation. ``request`` is what its messages come with: who speaks is read from there."""

    def __init__(self, server: Server[Any], request: Any, write: Write) -> None:
        self._server = server
        self._request = request
        self._write_line = write

    async def serve(self, lines: Lines) -> None:
        to_server, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](MESSAGES_AHEAD)
        outbound, from_server = anyio.create_memory_object_stream[SessionMessage](MESSAGES_AHEAD)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, lines, to_server)
            group.start_soon(self._write, from_server)
            await self._server.run(inbound, outbound, self._server.create_initialization_options())
            # Nothing more will be answered: who still reads what the client says need not.
            group.cancel_scope.cancel()

    async def _read(self, lines: Lines, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_server:
            async for each in lines:
                await self._take(each, to_server)

    async def _take(self, line: bytes | None, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        if line is not None:
            try:
                parsed = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                pass
            else:
                await to_server.send(self._carried(parsed))
                return
        await self._write_line(json.dumps(refusal_of(line)).encode())

    def _carried(self, message: Any) -> SessionMessage:
        return SessionMessage(message, ServerMessageMetadata(request_context=self._request))

    async def _write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for each in from_server:
                await self._write_line(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
