"""The asyncio transport: HTTP/1.1 over streams, with a small pool of connections."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from palyra.client.address import ServerAddress
from palyra.client.following import Head
from palyra.client.http1 import Body, End, Http1Connection, NeedData, Part, ResponseBuilder
from palyra.client.protocol import (
    BadAnswer,
    ClientLimits,
    ClientTimeout,
    ConnectFailed,
    ConnectionLost,
    Headers,
    Request,
    Response,
)
from palyra.limits import KIB

_RECEIVE_BYTES = 64 * KIB
_MS_PER_SECOND = 1000


@contextlib.asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ClientTimeout(f"no answer within {seconds:g} seconds") from error


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
        self._free = asyncio.Semaphore(limits.max_connections)
        self._idle: list[_Connection] = []
        self._closed = False

    async def exchange(self, request: Request) -> Response:
        async with _deadline(self._timeout + request.patience_ms / _MS_PER_SECOND), self._free:
            kept = await self._take_idle()
            if kept is not None:
                try:
                    return await self._converse(kept, request)
                except ConnectionLost:
                    # As in the blocking transport: nothing heard, so a GET may be repeated, and only a GET.
                    if kept.http.heard or not request.is_repeatable:
                        raise
            return await self._converse(await self._connect(), request)

    async def open_stream(self, request: Request) -> "AsyncStream":
        async with _deadline(self._timeout):
            connection = await self._connect()
            try:
                await connection.send(request)
                head = await connection.next_part()
                if not isinstance(head, Head):
                    raise BadAnswer("the server sent a body before a head")
            except BaseException:
                await connection.close()
                raise
        return AsyncStream(connection, head, self._limits)

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _take_idle(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                return connection
            await connection.close()
        return None

    async def _converse(self, connection: "_Connection", request: Request) -> Response:
        try:
            await connection.send(request)
            builder = ResponseBuilder(self._limits)
            while not isinstance(part := await connection.next_part(), End):
                builder.add(part)
            response = builder.finish()
        except BaseException:
            await connection.close()
            raise
        if connection.http.reusable and not self._closed and len(self._idle) < self._limits.max_idle_connections:
            self._idle.append(connection)
        else:
            await connection.close()
        return response

    async def _connect(self) -> "_Connection":
        address = self._address
        try:
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=self._ssl_context,
                server_hostname=address.host if self._ssl_context is not None else None,
            )
        except OSError as error:
            raise ConnectFailed(f"cannot connect to {address.host_header}: {error.strerror or error}") from error
        return _Connection(reader, writer, Http1Connection(address.host_header, address.prefix, self._limits))


class AsyncStream:
    """An answer read as it comes. ``chunk`` returns bytes, empty at a clean end."""

    def __init__(self, connection: "_Connection", head: Head, limits: ClientLimits) -> None:
        self._connection = connection
        self._idle_seconds = limits.stream_idle_seconds
        self.status: int = head.status
        self.headers: Headers = head.headers

    async def chunk(self) -> bytes:
        async with _deadline(self._idle_seconds):
            while isinstance(part := await self._connection.next_part(), Body):
                if part.data:
                    return part.data
        return b""

    async def close(self) -> None:
        await self._connection.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: Http1Connection) -> None:
        self._reader = reader
        self._writer = writer
        self.http = http

    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def send(self, request: Request) -> None:
        self._writer.write(self.http.start(request))
        # A server may refuse a large body early and close: its answer, if there is one, says more than our error.
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def next_part(self) -> Head | Body | End:
        while True:
            part: Part = self.http.next_part()
            if not isinstance(part, NeedData):
                return part
            try:
                data = await self._reader.read(_RECEIVE_BYTES)
            except OSError as error:
                raise ConnectionLost(f"the connection broke: {error.strerror or error}") from error
            self.http.receive(data)

    async def close(self) -> None:
        # Nothing is left to send, and a TLS farewell from a dead peer could be waited for longer than any deadline.
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
