"""The in-process transport: drives an ASGI application without a network.

The command line uses it when no daemon runs, so that it goes through the same API. The application runs in the loop
that uses the transport.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from palyra.client.events import Head
from palyra.client.protocol import (
    BadAnswer,
    ClientLimits,
    ClientTimeout,
    ConnectionLost,
    Headers,
    Request,
    Response,
    ResponseTooLarge,
)
from palyra.errors import Unavailable

log = logging.getLogger("palyra.client.in_process")

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
HOST = "palyra.internal"
_MS_PER_SECOND = 1000
# An application may be this many chunks ahead of its reader, as with a socket's buffer; then it waits.
_MAX_CHUNKS_AHEAD = 64


class StartupFailed(Unavailable):
    code = "client.startup_failed"
    hint = "the embedded daemon could not start; the message says why"


class _Exchange:
    """One request served by one run of the application."""

    def __init__(self, app: App, request: Request) -> None:
        self._request = request
        self._sent_body = False
        self._gone = asyncio.Event()
        self._parts: asyncio.Queue[Head | bytes | None] = asyncio.Queue(_MAX_CHUNKS_AHEAD)
        self._task = asyncio.create_task(self._serve(app), name=f"asgi {request.method} {request.path}")

    async def next_part(self) -> Head | bytes:
        """Return the head, then chunks, then empty bytes. Raise ConnectionLost if the application ends before that."""
        part = await self._parts.get()
        if part is None:
            raise ConnectionLost("the application ended in the middle of its answer")
        return part

    async def head(self) -> Head:
        part = await self.next_part()
        if not isinstance(part, Head):
            raise BadAnswer("the application sent a body before a head")
        return part

    async def close(self) -> None:
        self._gone.set()
        await _end(self._task)

    async def _serve(self, app: App) -> None:
        path, _, query = self._request.path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self._request.method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": query.encode("ascii"),
            "root_path": "",
            "headers": self._request.wire_headers(HOST),
            "client": None,
            "server": (HOST, None),
        }
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            # The same as in a server: the client sees a broken answer, the log has the reason.
            log.exception("the application broke while answering %s %s", self._request.method, path)
        await self._parts.put(None)

    async def _receive(self) -> Message:
        if not self._sent_body:
            self._sent_body = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start":
                headers = tuple(
                    (bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1"))
                    for name, value in message.get("headers", ())
                )
                await self._parts.put(Head(message["status"], headers))
            case "http.response.body":
                if body := bytes(message.get("body", b"")):
                    await self._parts.put(body)
                if not message.get("more_body", False):
                    await self._parts.put(b"")


class AsyncAsgiTransport:
    """Open it before use: that starts the application's lifespan, and ``close`` ends it."""

    def __init__(self, app: App, *, timeout: float, limits: ClientLimits) -> None:
        self._app = app
        self._timeout = timeout
        self._limits = limits
        self._lifespan: _Lifespan | None = None

    async def open(self) -> None:
        if self._lifespan is None:
            lifespan = _Lifespan(self._app)
            await lifespan.start()
            self._lifespan = lifespan

    async def exchange(self, request: Request) -> Response:
        seconds = self._timeout + request.patience_ms / _MS_PER_SECOND
        await self.open()
        exchange = _Exchange(self._app, request)
        try:
            async with asyncio.timeout(seconds):
                return await self._read(exchange)
        except TimeoutError as error:
            raise ClientTimeout(f"no answer within {seconds:g} seconds") from error
        finally:
            await exchange.close()

    async def _read(self, exchange: _Exchange) -> Response:
        head = await exchange.head()
        body = bytearray()
        while chunk := await exchange.next_part():
            if isinstance(chunk, Head):
                raise BadAnswer("the application sent two heads")
            body += chunk
            if len(body) > self._limits.max_response_bytes:
                raise ResponseTooLarge(f"the answer is larger than {self._limits.max_response_bytes} bytes")
        return Response(status=head.status, headers=head.headers, body=bytes(body))

    async def open_stream(self, request: Request) -> "AsyncAsgiStream":
        await self.open()
        exchange = _Exchange(self._app, request)
        try:
            async with asyncio.timeout(self._timeout):
                head = await exchange.head()
        except TimeoutError as error:
            await exchange.close()
            raise ClientTimeout(f"no answer within {self._timeout:g} seconds") from error
        except BaseException:
            await exchange.close()
            raise
        return AsyncAsgiStream(exchange, head, self._limits)

    async def close(self) -> None:
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.stop()


class AsyncAsgiStream:
    def __init__(self, exchange: _Exchange, head: Head, limits: ClientLimits) -> None:
        self._exchange = exchange
        self._idle_seconds = limits.stream_idle_seconds
        self.status: int = head.status
        self.headers: Headers = head.headers

    async def chunk(self) -> bytes:
        try:
            async with asyncio.timeout(self._idle_seconds):
                part = await self._exchange.next_part()
        except TimeoutError as error:
            raise ClientTimeout(f"nothing came for {self._idle_seconds:g} seconds") from error
        return b"" if isinstance(part, Head) else part

    async def close(self) -> None:
        await self._exchange.close()


class _Lifespan:
    """The application's own start and end. An application without a lifespan raises at once, and that is fine."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="asgi lifespan")
        await self._ask("startup")

    async def stop(self) -> None:
        if self._task is None:
            return
        try:
            if not self._task.done():
                await self._ask("shutdown")
        finally:
            await _end(self._task)

    async def _ask(self, step: str) -> None:
        self._to_app.put_nowait({"type": f"lifespan.{step}"})
        answer = await self._from_app.get()
        if answer["type"] == f"lifespan.{step}.failed":
            raise StartupFailed(f"the application's {step} failed: {answer.get('message', '')[:500]}")

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await self._app(scope, self._to_app.get, self._from_app.put)
        except Exception:
            log.debug("the application has no lifespan", exc_info=True)
        self._from_app.put_nowait({"type": "lifespan.ended"})


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancel and wait. ``asyncio.wait`` keeps a cancellation of the caller apart from the task's own."""
    task.cancel()
    await asyncio.wait([task])
