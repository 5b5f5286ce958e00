"""One client on stdio, as `palyra mcp` carries its lines over one request. The protocol's library answers them."""

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from palyra.errors import LimitExceeded
from palyra.executors.mcp_upstream.limits import MAX_MESSAGE_BYTES, MAX_SESSIONS, MESSAGES_AHEAD, SESSION_IDLE_SECONDS
from palyra.executors.mcp_upstream.messages import LineSplitter
from palyra.server.mcp.request_context import CONNECTION, DoorRequest, SessionRuns, speaks_for, token_of
from palyra.server.mcp.service import Desk, Visitor

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from palyra.server.mcp.server import PalyraServer

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


# The protocol's two doors into a daemon: streamable HTTP, and the lines that `palyra mcp` carries.
#
# The library behind them takes half a second to load. It is loaded by the first client, or ahead of one in a thread.

_LIBRARY: Final = ("palyra.server.mcp.server", "palyra.server.mcp.server", "mcp.server.streamable_http_manager")


class TooManySessions(LimitExceeded):
    code = "mcp.too_many_sessions"
    hint = "close clients that are not in use"


class ProtocolDoor:
    """Belongs to one event loop. Nothing of the library exists before the first client."""

    def __init__(self, desk: Desk, version: str) -> None:
        self._desk = desk
        self._version = version
        self._runs = SessionRuns(time.monotonic)
        self._server: PalyraServer | None = None
        self._manager: StreamableHTTPSessionManager | None = None
        self._loading = asyncio.Lock()
        self._hosting: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self._stop = asyncio.Event()
        self._streams: set[StdioClient] = set()
        self._moved = asyncio.Event()

    @property
    def connections(self) -> int:
        """Clients on stdio that are there now."""
        return len(self._streams)

    def admit(self, request: DoorRequest) -> Visitor:
        return self._desk.admit(token_of(request), speaks_for(request))

    async def prepare(self) -> None:
        """Loads the library beside other work, before somebody waits for it."""
        async with self._loading:
            if self._server is None:
                for name in _LIBRARY:
                    await asyncio.to_thread(importlib.import_module, name)
                self._make()

    def _make(self) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from palyra.server.mcp.server import PalyraServer

        self._server = PalyraServer(self._desk, self._runs, self._version)
        self._manager = StreamableHTTPSessionManager(
            self._server.protocol,
            session_idle_timeout=SESSION_IDLE_SECONDS,
            max_sessions=MAX_SESSIONS,
            max_request_body_size=MAX_MESSAGE_BYTES,
        )

    async def _host(self, manager: "StreamableHTTPSessionManager") -> None:
        try:
            async with manager.run():
                self._open.set()
                await self._stop.wait()
        finally:
            self._open.set()

    async def http(self, visitor: Visitor, scope: Any, receive: Receive, send: Send) -> None:
        """One request of streamable HTTP. A session is its token's alone."""
        await self.prepare()
        assert self._manager is not None
        if self._hosting is None:
            self._hosting = asyncio.create_task(self._host(self._manager), name="mcp sessions")
        # Also for those who come while the first one still waits.
        await self._open.wait()
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        token = AccessToken(token="", client_id=visitor.token_id, scopes=[], subject=visitor.principal)
        scope["user"] = AuthenticatedUser(token)
        await self._manager.handle_request(scope, receive, send)

    async def stream(self, request: DoorRequest, connection: str, receive: Receive, send: Send) -> None:
        """A client on stdio, for as long as it is there."""
        request.scope[CONNECTION] = connection

        async def library() -> Library:
            await self.prepare()
            return lambda lines, write: self._answered(request, lines, write)

        stream = StdioClient(receive, send, library)
        self._streams.add(stream)
        self._moved.set()
        try:
            await stream.serve()
        finally:
            self._streams.discard(stream)
            self._moved.set()

    async def _answered(self, request: DoorRequest, lines: Lines, write: Write) -> None:
        from palyra.server.mcp.server import MessageStream

        assert self._server is not None
        await MessageStream(self._server.protocol, request, write).serve(lines)

    async def left_alone(self, seconds: float) -> None:
        """Returns when there has been no client on stdio for this long."""
        while True:
            self._moved.clear()
            try:
                async with asyncio.timeout(None if self._streams else seconds):
                    await self._moved.wait()
            except TimeoutError:
                return

    def require_room(self) -> None:
        if len(self._streams) >= MAX_SESSIONS:
            raise TooManySessions(f"{len(self._streams)} clients are connected")

    def close_streams(self) -> None:
        """Ends what clients hold open: the daemon stops."""
        self._stop.set()
        for stream in tuple(self._streams):
            stream.close()

    async def close(self) -> None:
        self.close_streams()
        if self._hosting is not None:
            await asyncio.wait([self._hosting])
