"""One client on stdio, as `palyra mcp` carries its lines over one request. The protocol's library answers them."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from palyra.mcp.limits import MESSAGES_AHEAD
from palyra.mcp.message_lines import LineSplitter

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Lines = MemoryObjectReceiveStream[bytes | None]
Write = Callable[[bytes], Awaitable[None]]
# Answers lines with the library: what comes, and where the answers go.
Library = Callable[[Lines, Write], Awaitable[None]]


class StdioClient:
    """``library`` loads what answers; ``close`` ends the conversation from outside."""

    def __init__(self, receive: Receive, send: Send, library: Callable[[], Awaitable[Library]]) -> None:
        self._receive = receive
        self._send = send
        self._library = library
        self._scope = anyio.CancelScope()
        self._writing = anyio.Lock()

    def close(self) -> None:
        self._scope.cancel()

    async def serve(self) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        # At once: the program on the other side waits for the head.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        for_library, lines = anyio.create_memory_object_stream[bytes | None](MESSAGES_AHEAD)
        with self._scope, lines:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, for_library)
                answer = await self._library()
                await answer(lines, self.write)
                # Nothing more will be answered: who still reads what the client says need not.
                group.cancel_scope.cancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def write(self, line: bytes) -> None:
        async with self._writing:
            await self._send({"type": "http.response.body", "body": line + b"\n", "more_body": True})

    async def _listen(self, for_library: MemoryObjectSendStream[bytes | None]) -> None:
        lines = LineSplitter()
        async with for_library:
            while True:
                message = await self._receive()
                if message["type"] != "http.request":
                    # The client is gone, and with it whoever waited for an answer.
                    self._scope.cancel()
                    return
                for line in lines.feed(message.get("body", b"")):
                    await for_library.send(line)
                if not message.get("more_body", False):
                    return
