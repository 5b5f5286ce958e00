"""Sends requests over HTTP/1.1 with httpcore2, under the rules of this client.

httpcore2 is the lower half of httpx2: it keeps no cookies, follows no redirects, reads no proxy from the environment
and decodes nothing. This module adds caps on the bytes of an answer, one deadline for the whole answer, and one retry
of a GET that a kept connection lost before any answer.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpcore2

from palyra.client.address import ServerAddress
from palyra.client.events import Head
from palyra.client.protocol import (
    BadAnswer,
    ClientLimits,
    ClientTimeout,
    ConnectFailed,
    ConnectionLost,
    Headers,
    Request,
    Response,
    ResponseTooLarge,
    header_of,
)

_MS_PER_SECOND: Final = 1000
_DIALS: Final = "connection.connect_tcp.started"


class AsyncTransport:
    """Belongs to the event loop that first uses it."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        timeout: float,
        limits: ClientLimits,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._limits = limits
        self._ssl_context = (ssl_context or ssl.create_default_context()) if address.tls else None
        self._pool = self._new_pool(limits.max_connections)

    async def open(self) -> None:
        """Do nothing: requests connect."""

    async def exchange(self, request: Request) -> Response:
        async with _deadline(self._timeout + request.patience_ms / _MS_PER_SECOND):
            dials: list[str] = []
            try:
                answer = await self._send(self._pool, request, dials)
            except ConnectionLost:
                # The server may close a kept connection just as it is used. Anything but a GET might be carried out
                # twice.
                if dials or not request.is_repeatable:
                    raise
                answer = await self._send(self._pool, request, dials)
            try:
                with named_errors(self._address.host_header):
                    return await read_answer(answer, self._limits)
            finally:
                await answer.aclose()

    async def open_stream(self, request: Request) -> "AsyncStream":
        # A connection of its own: a stream takes no place from the exchanges.
        pool = self._new_pool(1)
        try:
            async with _deadline(self._timeout):
                answer = await self._send(pool, request, [])
            return AsyncStream(pool, answer, self._limits)
        except BaseException:
            await pool.aclose()
            raise

    async def close(self) -> None:
        await self._pool.aclose()

    def _new_pool(self, connections: int) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._ssl_context,
            max_connections=connections,
            max_keepalive_connections=self._limits.max_idle_connections,
        )

    async def _send(
        self, pool: httpcore2.AsyncConnectionPool, request: Request, dials: list[str]
    ) -> httpcore2.Response:
        """Return the answer's head. ``dials`` gets an entry for each connection that had to be made."""

        async def note(event: str, _info: Any) -> None:
            if event == _DIALS:
                dials.append(event)

        address = self._address
        asked = new_request(request, address, {"trace": note})
        with named_errors(address.host_header):
            return await pool.handle_async_request(asked)


class AsyncStream:
    def __init__(self, pool: httpcore2.AsyncConnectionPool, answer: httpcore2.Response, limits: ClientLimits) -> None:
        head = head_of(answer, limits)
        self._pool = pool
        self._answer = answer
        self._chunks = answer.aiter_stream()
        self._idle_seconds = limits.stream_idle_seconds
        self.status: int = head.status
        self.headers: Headers = head.headers

    async def chunk(self) -> bytes:
        async with _deadline(self._idle_seconds):
            with named_errors("the stream"):
                async for data in self._chunks:
                    if data:
                        return data
        return b""

    async def close(self) -> None:
        await self._chunks.aclose()
        await self._answer.aclose()
        await self._pool.aclose()


@contextlib.asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ClientTimeout(f"no answer within {seconds:g} seconds") from error


# How the messages of httpcore2 and h11 begin if the peer closed the connection. Others are about malformed answers.
_CLOSED: Final = ("Server disconnected", "peer closed connection")
_DIALLING: Final = "Connect call failed"


def new_request(request: Request, address: ServerAddress, extensions: dict[str, Any]) -> httpcore2.Request:
    return httpcore2.Request(
        request.method,
        httpcore2.URL(
            scheme=b"https" if address.tls else b"http",
            host=address.host.encode("ascii"),
            port=address.port,
            target=(address.prefix + request.path).encode("ascii"),
        ),
        headers=request.wire_headers(address.host_header),
        content=request.body,
        extensions=extensions,
    )


def head_of(answer: httpcore2.Response, limits: ClientLimits) -> Head:
    if sum(len(name) + len(value) for name, value in answer.headers) > limits.max_header_bytes:
        raise BadAnswer(f"the head of the answer is larger than {limits.max_header_bytes} bytes")
    headers = tuple((name.decode("ascii").lower(), value.decode("latin-1")) for name, value in answer.headers)
    if (header_of(headers, "content-encoding") or "identity").lower() != "identity":
        raise BadAnswer("the server compressed an answer that was asked for as it is")
    return Head(answer.status, headers)


async def read_answer(answer: httpcore2.Response, limits: ClientLimits) -> Response:
    head, body, most = head_of(answer, limits), bytearray(), limits.max_response_bytes
    async for chunk in answer.aiter_stream():
        body += chunk
        if len(body) > most:
            raise ResponseTooLarge(f"the answer is larger than {most} bytes", limit=most)
    return Response(status=head.status, headers=head.headers, body=bytes(body))


@contextlib.contextmanager
def named_errors(host: str) -> Iterator[None]:
    """Raise errors of httpcore2 as those of the client."""
    try:
        yield
    except httpcore2.ConnectError as error:
        raise ConnectFailed(f"cannot connect to {host}: {_reason(error)}") from error
    except httpcore2.RemoteProtocolError as error:
        if str(error).startswith(_CLOSED):
            raise ConnectionLost("the server closed the connection before its answer was whole") from error
        raise BadAnswer(f"the server does not speak HTTP/1.1: {error}") from error
    except httpcore2.NetworkError as error:
        raise ConnectionLost(f"the connection broke: {_reason(error)}") from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its cause, and so on to the first."""
    yield error
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper.exceptions[0] if isinstance(deeper, BaseExceptionGroup) else deeper
        yield error


def _reason(error: BaseException) -> str:
    """Return the system's own message; asyncio puts the address in its place."""
    *_, cause = causes(error)
    reason = str(getattr(cause, "strerror", None) or cause)
    number = getattr(cause, "errno", None)
    return os.strerror(number) if number and reason.startswith(_DIALLING) else reason
