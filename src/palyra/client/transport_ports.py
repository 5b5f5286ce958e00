"""What the clients need of a transport, blocking and not."""

from typing import Protocol

from palyra.client.protocol import Headers, Request, Response


class Stream(Protocol):
    status: int
    headers: Headers

    def chunk(self) -> bytes: ...

    def close(self) -> None: ...


class Transport(Protocol):
    def exchange(self, request: Request) -> Response: ...

    def open_stream(self, request: Request) -> Stream: ...

    def close(self) -> None: ...


class AsyncByteStream(Protocol):
    status: int
    headers: Headers

    async def chunk(self) -> bytes: ...

    async def close(self) -> None: ...


class AsyncTransportPort(Protocol):
    async def exchange(self, request: Request) -> Response: ...

    async def open_stream(self, request: Request) -> AsyncByteStream: ...

    async def close(self) -> None: ...
