"""One device's stream: its messages, each checked; the daemon's commands; and the ways it ends."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import msgspec

from palyra.devicelink.limits import GOODBYE_SECONDS, MAX_WAITING_COMMANDS
from palyra.devicelink.server import connections
from palyra.errors import PalyraError
from palyra.nodes.server.dispatcher import Cancel, CertificateNews, Command, Dispatch, Goodbye
from palyra.wire.node.v1 import node_pb2

NODE_TOO_SLOW = "nodes.too_slow"
_FIELDS = {Dispatch: "dispatch", Cancel: "cancel", CertificateNews: "certificate_news", Goodbye: "goodbye"}
# It handles a message. If the stream must end, it returns the code why.
OnMessage = Callable[[Any], Awaitable[str | None]]


class StreamEnd(msgspec.Struct, frozen=True):
    """The device gets ``message`` in a goodbye. A stream that is cut gets none."""

    code: str
    message: str = ""
    cut: bool = False
    refusal: PalyraError | None = None


class DeviceStream:
    """A ``Line`` to its device. One task reads, one writes, and the first one that ends also ends the other."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._waiting: deque[Command] = deque()
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._over: asyncio.Future[StreamEnd] = asyncio.get_running_loop().create_future()

    def send(self, command: Command) -> None:
        if self._over.done():
            return
        if len(self._waiting) >= MAX_WAITING_COMMANDS:
            self.cut(NODE_TOO_SLOW)
            return
        self._waiting.append(command)
        self._wake.set()

    def end(self, code: str, message: str) -> None:
        self._finish(StreamEnd(code, message))

    def cut(self, code: str) -> None:
        self._finish(StreamEnd(code, cut=True))

    def _finish(self, ending: StreamEnd) -> None:
        if not self._over.done():
            self._over.set_result(ending)

    async def acknowledge(self, sequence: int) -> None:
        await self._write(node_pb2.NodeCommand(heartbeat_ack=node_pb2.HeartbeatAck(sequence=sequence)))

    async def run(self, on_message: OnMessage) -> StreamEnd:
        """Run until the device ends the stream, a message is refused, or the daemon ends it."""
        reading = asyncio.create_task(self._read(on_message), name="device stream up")
        writing = asyncio.create_task(self._drain(), name="device stream down")
        try:
            await asyncio.wait((reading, writing, self._over), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, writing):
                if task.done() and not self._over.done():
                    self._over.set_result(_stream_end(task))
        finally:
            reading.cancel()
            writing.cancel()
            await asyncio.wait((reading, writing))
        ending = self._over.result()
        if ending.message:
            await self._say_goodbye(ending)
        return ending

    async def _read(self, on_message: OnMessage) -> str:
        while True:
            message = await self._context.read()
            if message is grpc.aio.EOF:
                return connections.CLOSED
            ended = await on_message(message)
            if ended is not None:
                return ended

    async def _drain(self) -> str:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._write(to_wire(self._waiting.popleft()))

    async def _write(self, message: Any) -> None:
        async with self._turn:
            await self._context.write(message)

    async def _say_goodbye(self, ending: StreamEnd) -> None:
        """Send a goodbye, if the device still reads."""
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._write(to_wire(Goodbye(ending.code, ending.message)))
        except (TimeoutError, grpc.aio.BaseError):
            return


def _stream_end(task: "asyncio.Task[str]") -> StreamEnd:
    error = task.exception()
    if error is None:
        return StreamEnd(task.result())
    if isinstance(error, PalyraError):
        return StreamEnd(error.code, cut=True, refusal=error)
    if isinstance(error, grpc.aio.BaseError):
        return StreamEnd(connections.CLOSED)
    raise error


def to_wire(command: Command) -> Any:
    return node_pb2.NodeCommand(**{_FIELDS[type(command)]: msgspec.structs.asdict(command)})
