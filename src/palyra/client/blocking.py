"""Runs any transport for threads without a loop: in a loop of its own, in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from palyra.client.protocol import AsyncByteStream, AsyncTransportPort, Headers, Request, Response

T = TypeVar("T")


class BlockingTransport:
    """Threads may share it. It opens what it runs, and closes it."""

    def __init__(self, inner: AsyncTransportPort) -> None:
        self._inner = inner
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="palyra-client", daemon=True)
        self._closed = False
        self._thread.start()
        try:
            self.run(inner.open())
        except BaseException:
            self.close()
            raise

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Interrupted while waiting: the other side must see that its client is gone.
            future.cancel()
            raise

    def exchange(self, request: Request) -> Response:
        return self.run(self._inner.exchange(request))

    def open_stream(self, request: Request) -> "BlockingStream":
        return BlockingStream(self, self.run(self._inner.open_stream(request)))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self.run(self._inner.close())
            self.run(_finish_work())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


class BlockingStream:
    def __init__(self, transport: BlockingTransport, inner: AsyncByteStream) -> None:
        self._transport = transport
        self._inner = inner
        self.status: int = inner.status
        self.headers: Headers = inner.headers

    def chunk(self) -> bytes:
        return self._transport.run(self._inner.chunk())

    def close(self) -> None:
        self._transport.run(self._inner.close())


async def _finish_work() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
