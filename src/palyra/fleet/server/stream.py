"""One worker's stream: what it says read batch by batch, what it is told sent as it gathers, and the ways it ends.

A stream that says nothing costs one task and no timer: there are a thousand of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc
import msgspec

from palyra.errors import InvalidInput, LimitExceeded, PalyraError
from palyra.fleet import limits
from palyra.fleet.server import messages
from palyra.fleet.server.messages import Outgoing, error_code
from palyra.wire.worker.v1 import worker_pb2 as wire

CLOSED: Final = "worker.closed"
WORKER_TOO_SLOW: Final = "worker.too_slow"
CODE_KEY: Final = "palyra-code"
# Says what to do with a batch; returns why the stream is over, if it is.
Hear = Callable[[Any], Awaitable[str | None]]


class WorkerStreamEnd(msgspec.Struct, frozen=True):
    """``cut``: ended from here. ``refusal``: because of what was said."""

    code: str
    message: str = ""
    cut: bool = False
    refusal: PalyraError | None = None


class WorkerStream:
    """A ``Line`` to its worker."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._waiting: list[Any] = []
        self._writing: asyncio.Task[None] | None = None
        self._over: asyncio.Future[WorkerStreamEnd] = asyncio.get_running_loop().create_future()
        self._hearing = False
        # Nothing more is sent: the goodbye was the last.
        self._gone = False
        self.sent = 0

    def send(self, told: Outgoing) -> None:
        if self._keep(told):
            self.sent += 1
            if self._writing is None:
                self._writing = asyncio.create_task(self._write(), name="worker stream down")

    def send_along(self, told: Outgoing) -> None:
        self._keep(told)

    def _keep(self, told: Outgoing) -> bool:
        if self._gone:
            return False
        if len(self._waiting) >= limits.MAX_WAITING_COMMANDS:
            self.end(WORKER_TOO_SLOW, "")
            return False
        self._waiting.append(_wire(told))
        return True

    def end(self, code: str, message: str) -> None:
        if not self._over.done():
            self._over.set_result(WorkerStreamEnd(code, message, cut=True))

    async def run(self, hear: Hear) -> WorkerStreamEnd:
        """Until the worker ends it, something it says is refused, or somebody here ends it."""
        reading = asyncio.create_task(self._read(hear), name="worker stream up")
        try:
            await asyncio.wait((reading, self._over), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not self._over.done():
                self._over.set_result(_worker_stream_end(reading))
            elif self._hearing:
                # What was being said when it was cut still gets its answer.
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

    async def _read(self, hear: Hear) -> str:
        while True:
            batch = await self._context.read()
            if batch is grpc.aio.EOF:
                return CLOSED
            self._hearing = True
            ended = await hear(batch)
            self._hearing = False
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
        """After what waits, as far as a worker that reads no more lets us."""
        self._waiting.append(_wire(messages.say_goodbye(ending.code, ending.message)))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="worker stream down")
        await asyncio.wait((self._writing,), timeout=limits.GOODBYE_SECONDS)


def _wire(told: Outgoing) -> Any:
    fields: dict[str, Any] = {told.kind: told.fields}
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


async def abort_with(context: Any, error: PalyraError) -> NoReturn:
    """Ends a call of a known worker with the error's own code, which it can act on."""
    if isinstance(error, InvalidInput):
        status = grpc.StatusCode.INVALID_ARGUMENT
    elif isinstance(error, LimitExceeded):
        status = grpc.StatusCode.RESOURCE_EXHAUSTED
    else:
        status = grpc.StatusCode.FAILED_PRECONDITION
    await context.abort(status, f"{error_code(error)}: {error.message}", ((CODE_KEY, error_code(error)),))
    raise AssertionError("abort does not return")


async def turn_away(context: Any, code: str) -> NoReturn:
    """For a stream that was ended from here: known, and not listened to now."""
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, code, ((CODE_KEY, code),))
    raise AssertionError("abort does not return")
