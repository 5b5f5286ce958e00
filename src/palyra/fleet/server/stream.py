"""One worker's stream: reads its messages batch by batch, sends the waiting commands together, and ends it.

An idle stream costs one task and no timer, because there are a thousand of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc
import msgspec

from palyra.devicelink.limits import CODE_KEY
from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.server import messages
from palyra.fleet.server.messages import Outgoing
from palyra.wire.worker.v1 import worker_pb2 as wire

CLOSED: Final = "worker.closed"
WORKER_TOO_SLOW: Final = "worker.too_slow"
# Handles a batch. Returns the code of the stream's end, if it ends.
OnBatch = Callable[[Any], Awaitable[str | None]]


class WorkerStreamEnd(msgspec.Struct, frozen=True):
    """``cut``: the daemon ended it. ``refusal``: because of a message."""

    code: str
    message: str = ""
    cut: bool = False
    refusal: PalyraError | None = None


class WorkerStream:
    """A ``CommandStream`` over gRPC."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._waiting: list[Any] = []
        self._writing: asyncio.Task[None] | None = None
        self._over: asyncio.Future[WorkerStreamEnd] = asyncio.get_running_loop().create_future()
        self._handling = False
        # Set after the goodbye, which is the last message.
        self._gone = False
        self.sent = 0

    def send(self, message: Outgoing) -> None:
        if self._keep(message):
            self.sent += 1
            if self._writing is None:
                self._writing = asyncio.create_task(self._write(), name="worker stream down")

    def send_along(self, message: Outgoing) -> None:
        self._keep(message)

    def _keep(self, message: Outgoing) -> bool:
        if self._gone:
            return False
        if len(self._waiting) >= limits.MAX_WAITING_COMMANDS:
            self.end(WORKER_TOO_SLOW, "")
            return False
        self._waiting.append(_to_wire(message))
        return True

    def end(self, code: str, message: str) -> None:
        if not self._over.done():
            self._over.set_result(WorkerStreamEnd(code, message, cut=True))

    async def run(self, on_batch: OnBatch) -> WorkerStreamEnd:
        """Read until the worker or the daemon ends the stream, or a message is refused."""
        reading = asyncio.create_task(self._read(on_batch), name="worker stream up")
        try:
            await asyncio.wait((reading, self._over), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not self._over.done():
                self._over.set_result(_worker_stream_end(reading))
            elif self._handling:
                # The batch in progress at the cut still gets its answer.
                await asyncio.wait((reading,), timeout=limits.GOODBYE_SECONDS)
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
            if not self._over.done():
                self._over.set_result(WorkerStreamEnd(CLOSED))
        ending = self._over.result()
        if ending.cut:
            await self._say_goodbye(ending)
        self._gone = True
        if self._writing is not None:
            self._writing.cancel()
        return ending

    async def _read(self, on_batch: OnBatch) -> str:
        while True:
            batch = await self._context.read()
            if batch is grpc.aio.EOF:
                return CLOSED
            self._handling = True
            ended = await on_batch(batch)
            self._handling = False
            if ended is not None or self._over.done():
                return ended or CLOSED

    async def _write(self) -> None:
        try:
            while self._waiting:
                taken, size = 0, 0
                for message in self._waiting[: limits.MAX_COMMANDS_PER_MESSAGE]:
                    size += message.ByteSize()
                    if taken and size > limits.MAX_MESSAGE_DOWN_BYTES:
                        break
                    taken += 1
                batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
                await self._context.write(wire.DaemonBatch(commands=batch))
        except grpc.aio.BaseError:
            if not self._over.done():
                self._over.set_result(WorkerStreamEnd(CLOSED))
        finally:
            self._writing = None

    async def _say_goodbye(self, ending: WorkerStreamEnd) -> None:
        """Send the waiting commands and the goodbye. A worker that does not read gets a second."""
        self._waiting.append(_to_wire(messages.say_goodbye(ending.code, ending.message)))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="worker stream down")
        await asyncio.wait((self._writing,), timeout=limits.GOODBYE_SECONDS)


def _to_wire(message: Outgoing) -> Any:
    fields: dict[str, Any] = {message.kind: message.fields}
    return wire.DaemonCommand(**fields)


def _worker_stream_end(task: "asyncio.Task[str]") -> WorkerStreamEnd:
    error = task.exception()
    if error is None:
        return WorkerStreamEnd(task.result())
    if isinstance(error, PalyraError):
        return WorkerStreamEnd(error.code, refusal=error)
    if isinstance(error, grpc.aio.BaseError):
        return WorkerStreamEnd(CLOSED)
    raise error


async def turn_away(context: Any, code: str) -> NoReturn:
    """End the stream of a known worker whose messages the daemon does not take now."""
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, code, ((CODE_KEY, code),))
    raise AssertionError("abort does not return")
