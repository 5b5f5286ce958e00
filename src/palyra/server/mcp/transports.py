"""The two transports of the protocol in a daemon: streamable HTTP, and the lines that ``palyra mcp`` carries.

The protocol's library takes half a second to load. The first client loads it, or a thread before that.
"""

import asyncio
import importlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from palyra.errors import LimitExceeded
from palyra.executors.mcp_upstream.limits import (
    MAX_MESSAGE_BYTES,
    MAX_SESSIONS,
    MAX_SESSIONS_OF_PRINCIPAL,
    MESSAGES_AHEAD,
    SESSION_IDLE_SECONDS,
)
from palyra.executors.mcp_upstream.messages import LineSplitter
from palyra.ids import PRINCIPAL_HEADER, RunId
from palyra.server.context import bearer_token, note_admitted
from palyra.server.mcp.backend import McpBackend, McpCaller

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from palyra.server.mcp.server import PalyraServer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Lines = MemoryObjectReceiveStream[bytes | None]
Write = Callable[[bytes], Awaitable[None]]
# Answers the lines of a client; ``Write`` sends one answer.
AnswerLines = Callable[[Lines, Write], Awaitable[None]]
SESSION_HEADER: Final = "mcp-session-id"
VERSION_HEADER: Final = "mcp-protocol-version"
REVISION_HEADER: Final = "mcp-protocol-version"
# The key in a request's scope that names a connection on stdio.
CONNECTION: Final = "palyra.connection"
APPROVALS_PAGE: Final = "/approvals"
_LIBRARY: Final = ("palyra.server.mcp.server", "mcp.server.streamable_http_manager")


class TooManySessions(LimitExceeded):
    code = "mcp.too_many_sessions"
    hint = "close clients that are not in use"


class HttpRequest(Protocol):
    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def scope(self) -> Any: ...


def token_of(request: HttpRequest | None) -> str:
    return bearer_token({} if request is None else request.headers)


def named_principal(request: HttpRequest | None) -> str | None:
    return None if request is None else request.headers.get(PRINCIPAL_HEADER)


def session_of(request: HttpRequest | None, token_id: str) -> str:
    """Return the session of a request; a request without one belongs to the session of its token.

    Revisions without a handshake have no sessions: there the header is the client's own word, and does not count.
    """
    if request is None:
        return token_id
    if connection := request.scope.get(CONNECTION):
        return str(connection)
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    revision = request.headers.get(REVISION_HEADER)
    opened = revision is None or revision in HANDSHAKE_PROTOCOL_VERSIONS
    return str((opened and request.headers.get(SESSION_HEADER)) or token_id)


def approvals_page(request: HttpRequest | None) -> str:
    """Return the address of the console's approvals, under the host name that the request used."""
    host = "" if request is None else request.headers.get("host", "")
    return f"{request.scope.get('scheme', 'http')}://{host}{APPROVALS_PAGE}" if request is not None and host else ""


class _Session(msgspec.Struct):
    run_id: RunId
    used: float


class SessionRuns:
    """The run of each session. Its calls share a budget, and the handles that earlier calls returned.

    A session is a connection on stdio, or a session id over HTTP, or the token itself where there is neither.
    ``now`` is a monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sessions: OrderedDict[tuple[str, str, str], _Session] = OrderedDict()

    def run_of(self, caller: McpCaller, session: str) -> RunId:
        """Return the run of the session. A session that is new, or was idle too long, gets a new run."""
        if caller.run_id:
            return RunId.parse(caller.run_id)
        now = self._now()
        self._forget(now)
        # The token and the principal are part of the key: a session id alone is no secret.
        key = (caller.token_id, caller.principal, session)
        known = self._sessions.pop(key, None) or _Session(RunId.new(), now)
        known.used = now
        self._sessions[key] = known
        return known.run_id

    def _forget(self, now: float) -> None:
        while self._sessions and now - next(iter(self._sessions.values())).used >= SESSION_IDLE_SECONDS:
            self._sessions.popitem(last=False)
        if len(self._sessions) > MAX_SESSIONS:
            # The oldest of the principal with the most: a client may name sessions without end.
            largest = Counter(principal for _, principal, _ in self._sessions).most_common(1)[0][0]
            del self._sessions[next(key for key in self._sessions if key[1] == largest)]

    def __len__(self) -> int:
        return len(self._sessions)


def _require_share(caller: McpCaller, holders: Collection[str | None]) -> None:
    own = sum(each == caller.principal for each in holders)
    if own >= MAX_SESSIONS_OF_PRINCIPAL:
        raise TooManySessions(f"{caller.principal} has {own} sessions, all of its share", share=own)


# The least serious first, as the protocol orders them.
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# A request of a newer revision asks for messages under this key of its ``_meta``.
REQUEST_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SessionKey = tuple[str, str, str]


class LogLevels:
    """The least log level that each session asked for. A session that asked for none gets no messages.

    Clients of revisions with a handshake ask once for a session. Later revisions ask in each request, which the
    protocol's library handles.
    """

    def __init__(self) -> None:
        self._least: OrderedDict[SessionKey, str] = OrderedDict()

    def choose(self, session: SessionKey, level: str) -> None:
        self._least.pop(session, None)
        self._least[session] = level
        while len(self._least) > MAX_SESSIONS:
            self._least.popitem(last=False)

    def any_wanted(self, session: SessionKey) -> bool:
        return session in self._least

    def wanted(self, session: SessionKey, level: str) -> bool:
        least = self._least.get(session)
        return least is not None and LEVELS.index(level) >= LEVELS.index(least)


class StdioClient:
    """One client on stdio: the lines of one request's body, and the answers in its response."""

    def __init__(self, receive: Receive, send: Send, load: Callable[[], Awaitable[AnswerLines]]) -> None:
        self._receive = receive
        self._send = send
        self._load = load
        self._scope = anyio.CancelScope()
        self._writing = anyio.Lock()

    def close(self) -> None:
        self._scope.cancel()

    async def serve(self) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        # Send the head at once: `palyra mcp` waits for it.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        received, lines = anyio.create_memory_object_stream[bytes | None](MESSAGES_AHEAD)
        with self._scope, lines:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, received)
                answer_lines = await self._load()
                await answer_lines(lines, self.write)
                # No answer follows, so stop reading.
                group.cancel_scope.cancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def write(self, line: bytes) -> None:
        async with self._writing:
            await self._send({"type": "http.response.body", "body": line + b"\n", "more_body": True})

    async def _listen(self, received: MemoryObjectSendStream[bytes | None]) -> None:
        lines = LineSplitter()
        async with received:
            while True:
                message = await self._receive()
                if message["type"] != "http.request":
                    # The client is gone: cancel the calls that it waits for.
                    self._scope.cancel()
                    return
                for line in lines.feed(message.get("body", b"")):
                    await received.send(line)
                if not message.get("more_body", False):
                    return


class McpTransport:
    """Both transports of one event loop. The protocol's library is loaded with the first client."""

    def __init__(self, backend: McpBackend, version: str) -> None:
        self._backend = backend
        self._version = version
        self._server: PalyraServer | None = None
        self._manager: StreamableHTTPSessionManager | None = None
        self._loading = asyncio.Lock()
        self._hosting: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self._stop = asyncio.Event()
        # The clients on stdio, each with its principal.
        self._clients: dict[StdioClient, str] = {}
        self._clients_changed = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._clients)

    def admit(self, request: HttpRequest) -> McpCaller:
        caller = self._backend.admit(token_of(request), named_principal(request))
        note_admitted(request.scope, caller.actor)
        return caller

    async def prepare(self) -> None:
        """Load the protocol's library in a thread."""
        async with self._loading:
            if self._server is None:
                for name in _LIBRARY:
                    await asyncio.to_thread(importlib.import_module, name)
                self._create_server()

    def _create_server(self) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from palyra.server.mcp.server import PalyraServer

        self._server = PalyraServer(self._backend, SessionRuns(time.monotonic), self._version)
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

    async def http(self, caller: McpCaller, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request of streamable HTTP. A session belongs to the token that opened it."""
        await self.prepare()
        assert self._manager is not None
        if self._hosting is None:
            self._hosting = asyncio.create_task(self._host(self._manager), name="mcp sessions")
        # Requests that arrive while the first one starts the task wait here too.
        await self._open.wait()
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        token = AccessToken(token="", client_id=caller.token_id, scopes=[], subject=caller.principal)
        scope["user"] = AuthenticatedUser(token)
        await self._manager.handle_request(scope, receive, send)

    async def stream(
        self, request: HttpRequest, connection: str, receive: Receive, send: Send, *, principal: str
    ) -> None:
        request.scope[CONNECTION] = connection

        async def load() -> AnswerLines:
            await self.prepare()
            return lambda lines, write: self._answer_lines(request, lines, write)

        client = StdioClient(receive, send, load)
        self._clients[client] = principal
        self._clients_changed.set()
        try:
            await client.serve()
        finally:
            del self._clients[client]
            self._clients_changed.set()

    async def _answer_lines(self, request: HttpRequest, lines: Lines, write: Write) -> None:
        from palyra.server.mcp.server import MessageStream

        assert self._server is not None
        await MessageStream(self._server.protocol, request, write).serve(lines)

    async def wait_until_idle(self, seconds: float) -> None:
        """Return when no client on stdio was connected for this long."""
        while True:
            self._clients_changed.clear()
            try:
                async with asyncio.timeout(None if self._clients else seconds):
                    await self._clients_changed.wait()
            except TimeoutError:
                return

    def require_room(self, caller: McpCaller) -> None:
        """Refuse one more client on stdio beyond all, or beyond its principal's share."""
        if len(self._clients) >= MAX_SESSIONS:
            raise TooManySessions(f"{len(self._clients)} clients are connected")
        _require_share(caller, self._clients.values())

    def require_session(self, caller: McpCaller, request: HttpRequest) -> None:
        """Refuse a request that opens one more session over HTTP beyond its principal's share."""
        if self._manager is None or SESSION_HEADER in request.headers:
            return
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

        version = request.headers.get(VERSION_HEADER)
        if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
            _require_share(caller, [owner["subject"] for owner in self._manager._session_owners.values()])

    def close_streams(self) -> None:
        """End the streams that clients hold open, so that the daemon can stop."""
        self._stop.set()
        for client in tuple(self._clients):
            client.close()

    async def close(self) -> None:
        self.close_streams()
        if self._hosting is not None:
            await asyncio.wait([self._hosting])
