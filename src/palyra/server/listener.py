"""The daemon's listener: the HTTP parser with its bound, and the choice between the API and the console."""

import asyncio
import resource
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from palyra.limits import MAX_HTTP_HEAD_BYTES

# The time for a request's line and headers, from its first byte, or from the connection's first moment.
HEAD_SECONDS = 10.0
# The time for the rest of a request: the largest body, from the slowest client that still works.
BODY_SECONDS = 120.0
# Connections of all clients of one listener, where the limit of descriptors allows as many.
MAX_CONNECTIONS = 4096

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
    """Uvicorn's fast HTTP parser with bounds on what a stranger sends before any token is checked.

    A head has a size and a time, a body a time. Trailers are refused: the parser would collect them without end. Past
    the bound on connections the one closes that has waited longest for a request: idle ones keep nobody out.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._messages = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_after(HEAD_SECONDS)
        if len(self.connections) > max_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        if self._deadline is None:
            self._close_after(HEAD_SECONDS)
        super().on_message_begin()

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
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._messages += 1
        if self.cycle is not None and self.cycle.response_complete:
            # Answered before its body ended: nobody else sets a time for the next request.
            self._close_after(HEAD_SECONDS)
        else:
            self._stop_deadline()
        super().on_message_complete()

    def _make_room(self) -> None:
        """Close the connection that has waited longest for a request; this one, if all others are at work."""
        waiting = [each for each in self.connections if isinstance(each, BoundedHttpProtocol) and each._in_head]
        oldest = min(waiting, key=BoundedHttpProtocol._waits_until, default=self)
        oldest.transport.abort()

    def _waits_until(self) -> float:
        """Return the time at which this connection closes if no request comes. A busy one has none."""
        timer = self._deadline or self.timeout_keep_alive_task
        return float("inf") if timer is None else timer.when()

    def _close_after(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        began_in_head, messages = self._in_head, self._messages
        super().data_received(data)
        # Data that ended a message was not all head: what follows in it is bounded by what one read brings.
        if began_in_head and self._in_head and self._messages == messages:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HTTP_HEAD_BYTES:
                self._refuse()

    def _refuse(self, status: bytes = b"431 Request Header Fields Too Large") -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()


def max_connections() -> int:
    """Return how many connections to keep: fewer than half of this process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(1, soft // 2 - 1))


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
