"""The daemon's listener: the HTTP parser with its bound, and the choice between the API and the console."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from palyra.limits import MAX_HTTP_HEAD_BYTES

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
    """Uvicorn's fast HTTP parser, which closes a connection whose request line and headers pass the limit.

    The parser alone collects headers without end, before any token is checked.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._messages = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        size = sum(len(name) + len(value) for name, value in self.headers)
        if size > MAX_HTTP_HEAD_BYTES:
            self._refuse()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._messages += 1
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        began_in_head, messages = self._in_head, self._messages
        super().data_received(data)
        # Data that ended a message was not all head: what follows in it is bounded by what one read brings.
        if began_in_head and self._in_head and self._messages == messages:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HTTP_HEAD_BYTES:
                self._refuse()

    def _refuse(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()


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
