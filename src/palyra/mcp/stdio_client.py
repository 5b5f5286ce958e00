"""One client on stdio, as `palyra mcp` carries its lines over one request: the opening is answered at once, and what
comes after it by the protocol's library, which is loaded meanwhile."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from palyra.errors import PalyraError
from palyra.mcp.limits import MESSAGES_AHEAD
from palyra.mcp.message_lines import LineSplitter
from palyra.mcp.offered_tool import OfferedTool
from palyra.mcp.opening import ForTheLibrary, Noted, Opening, Reply, ToolsAsked

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Lines = MemoryObjectReceiveStream[bytes | None]
Write = Callable[[bytes], Awaitable[None]]
# Answers lines with the library, once it is there: what was said before, what comes, where the answers go.
Library = Callable[[tuple[bytes, ...], Lines, Write], Awaitable[None]]


class StdioClient:
    """``close`` ends it from outside. Without an ``opening`` everything is the library's."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        opening: Opening | None,
        tools: Callable[[], Awaitable[list[OfferedTool]]],
        library: Callable[[], Awaitable[Library]],
    ) -> None:
        self._receive = receive
        self._send = send
        self._opening = opening
        self._tools = tools
        self._library = library
        self._needed = anyio.Event()
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
                await self._converse(lines)
                # Nothing more will be answered: who still reads what the client says need not.
                group.cancel_scope.cancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def write(self, line: bytes) -> None:
        async with self._writing:
            await self._send({"type": "http.response.body", "body": line + b"\n", "more_body": True})

    async def _listen(self, for_library: MemoryObjectSendStream[bytes | None]) -> None:
        lines = LineSplitter()
        try:
            async with for_library:
                while True:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        # The client is gone, and with it whoever waited for an answer.
                        self._scope.cancel()
                        return
                    for line in lines.feed(message.get("body", b"")):
                        await self._take(line, for_library)
                    if not message.get("more_body", False):
                        return
        finally:
            self._needed.set()

    async def _take(self, line: bytes | None, for_library: MemoryObjectSendStream[bytes | None]) -> None:
        opening = self._opening
        step = ForTheLibrary() if opening is None else opening.take(line)
        match step:
            case Reply():
                await self.write(step.line)
            case ToolsAsked() if opening is not None:
                await self._list_tools(opening, step, line, for_library)
            case Noted():
                return
            case _:
                self._needed.set()
                await for_library.send(line)

    async def _list_tools(
        self,
        opening: Opening,
        asked: ToolsAsked,
        line: bytes | None,
        for_library: MemoryObjectSendStream[bytes | None],
    ) -> None:
        try:
            answer = opening.tools(asked, await self._tools())
        except PalyraError:
            # The library says what it is, as it does later.
            await for_library.send(line)
        else:
            await self.write(answer)
        # A client that has its tools is about to call one.
        self._needed.set()

    async def _converse(self, lines: Lines) -> None:
        await self._needed.wait()
        library = await self._library()
        opening, self._opening = self._opening, None
        await library(() if opening is None else tuple(opening.replay), lines, self.write)
