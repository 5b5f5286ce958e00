"""The daemon's listener: the HTTP parser with its bound, and the choice between the API and the console."""

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from palyra.limits import MAX_HTTP_HEAD_BYTES
from palyra.server.context import ADMITTED, STAYS_OPEN

# The time for a request's line and headers, from its first byte, or from the connection's first moment.
HEAD_SECONDS = 10.0
# The time for the rest of a request: the largest body, from the slowest client that still works.
BODY_SECONDS = 120.0
# The time in which a client reads some of an answer: the largest one, for the slowest client that still works.
UNREAD_SECONDS = 120.0
# Requests that a connection sends before their answers. One read brings ten thousand, each with objects of its own.
MAX_PIPELINED = 16
# A stranger is as welcome as everybody else for this long: an honest one has shown its token by then.
STRANGER_SECONDS = 1.0
# Connections of all clients of one listener, where the limit of descriptors allows as many.
MAX_CONNECTIONS = 4096

# Uvicorn warns of each malformed request. A stranger would fill the log with them.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

if TYPE_CHECKING:
    from palyra.server.http.openapi import DescribedRoute

# The first word of every path of the console; all others are the API's.
CONSOLE_PATHS = frozenset(
    (
        *("", "access", "approvals", "browser", "calls", "console", "devices", "doctor", "egress", "journal", "login"),
        *("policy", "runs", "skills", "static", "vault"),
    )
)
API_PATHS = frozenset(("", "v1", "mcp", "healthz", "readyz", "metrics", "openapi.json"))


class BoundedHttpProtocol(HttpToolsProtocol):
    """Uvicorn's fast HTTP parser with bounds on what a stranger does before any token is checked.

    A head, a body and the reading of an answer have a time, a head and pipelined requests a size. Trailers are refused:
    the parser would collect them without end. Past the bound on connections, those close first that showed no token.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._messages = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        # Whom its last valid token names, and when it came. Before the first one: a stranger's, and when it connected.
        self._principal = ""
        self._since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_after(HEAD_SECONDS)
        if len(self.connections) > max_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self._stop_unread()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        if self._deadline is None:
            self._close_after(HEAD_SECONDS)
        super().on_message_begin()
        self.scope[ADMITTED] = self._admit  # type: ignore[typeddict-unknown-key]
        self.scope[STAYS_OPEN] = self._stop_deadline  # type: ignore[typeddict-unknown-key]

    def _admit(self, principal: str) -> None:
        self._principal = principal
        self._since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)
        else:
            self._refuse(b"400 Bad Request")

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._close_after(BODY_SECONDS)
        size = sum(len(name) + len(value) for name, value in self.headers)
        if size > MAX_HTTP_HEAD_BYTES:
            self._refuse()
        elif len(self.pipeline) >= MAX_PIPELINED:
            self.transport.abort()
            # It ends the parsing of what this read brought.
            raise TooManyPipelined
        else:
            super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)
            self._abort_unread()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._messages += 1
        if self._is_answered:
            # Answered before its body ended: nobody else sets a time for the next request.
            self._close_after(HEAD_SECONDS)
        else:
            self._stop_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_unread()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        # While it closes, nothing is written that would start the time again.
        if not self.transport.is_closing():
            self._stop_unread()

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        """Close the oldest connection without a token, else an idle one, else one of whom has more than half of all.

        If there is none of these, this new one closes. A new connection has a moment to show a token.
        """
        others = [each for each in self.connections if isinstance(each, BoundedHttpProtocol) and each is not self]
        since = self.loop.time() - STRANGER_SECONDS
        strangers = [each for each in others if not each._principal and each._since < since]
        idle = [each for each in others if each._principal and each._in_head and each._is_answered]
        held = Counter(each._principal for each in others)
        greedy = [each for each in others if 2 * held[each._principal] > len(others)]
        oldest = min(strangers or idle or greedy, key=lambda each: each._since, default=self)
        oldest.transport.abort()

    def _close_after(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort_unread(self) -> None:
        """Give the client a time to read what was written. A connection that closes waits for that without end."""
        if self._unread is None and self in self.connections:
            self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        began_in_head, messages = self._in_head, self._messages
        super().data_received(data)
        if self._in_head and self._is_answered and self._deadline is None:
            # Empty lines before a request begin none, and the time of an idle connection has ended with them.
            self._close_after(HEAD_SECONDS)
        # Data that ended a message was not all head: what follows in it is bounded by what one read brings.
        if began_in_head and self._in_head and self._messages == messages:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HTTP_HEAD_BYTES:
                self._refuse()

    def _refuse(self, status: bytes = b"431 Request Header Fields Too Large") -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
            self._abort_unread()


class TooManyPipelined(Exception):
    """Ends the parsing of a connection that was closed."""


def max_connections() -> int:
    """Return how many connections to keep: a quarter of this process's descriptors. Devices may take half of them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(1, soft // 4))


def _accepts_html(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


class Front:
    """Sends each request to the API or to the console, by the first word of its path.

    ``build_console`` runs in a thread when a browser opens the first page: templates take a while to load.
    """

    def __init__(self, api: ASGIApp, build_console: Callable[[], ASGIApp]) -> None:
        self._api = api
        self._build_console = build_console
        self._console: ASGIApp | None = None
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/") and self._is_console(scope):
            app = self._console or await self._open()
        else:
            app = self._api
        await app(scope, receive, send)

    @staticmethod
    def _is_console(scope: Scope) -> bool:
        """Return whether the console answers. A browser with a mistyped address gets a page that says so.

        ``//v1/tokens`` is not another spelling of an API path.
        """
        path: str = scope["path"]
        word = path.split("/", 2)[1]
        if word in CONSOLE_PATHS:
            return path == "/" or path[1:2] != "/"
        return word not in API_PATHS and scope["method"] == "GET" and _accepts_html(scope)

    async def _open(self) -> ASGIApp:
        async with self._opening:
            if self._console is None:
                self._console = await asyncio.to_thread(self._build_console)
            return self._console


def console_routes() -> "Iterable[DescribedRoute]":
    """Load the console and return its routes for ``/openapi.json``."""
    from palyra.server.console.app import describe_routes

    return describe_routes()
