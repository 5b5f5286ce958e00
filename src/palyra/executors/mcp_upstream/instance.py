"""One upstream server in its sandbox, for one run, from start to end.

One task owns process and session. It ends after an idle time, when a call is cancelled, and when the server ends.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from palyra.errors import PalyraError
from palyra.executors.mcp_upstream.limits import KEPT_STDERR_BYTES, SERVER_START_SECONDS
from palyra.executors.mcp_upstream.spec import DefinitionKind, Listing, ToolDefinition, read_listing
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.network.call_network import NetworkListener
from palyra.sandbox.runner import ProcessRunner
from palyra.sandbox.running_process import StreamName

if TYPE_CHECKING:
    from palyra.executors.mcp_upstream.session import ServerPipes, ServerSession


class McpInstance:
    def __init__(self, server: str, idle_seconds: float, ended: Callable[["McpInstance"], None]) -> None:
        self.server = server
        self.receipt: tuple[dict[str, Any], ...] = ()
        self._idle_seconds = idle_seconds
        self._ended = ended
        self._session: asyncio.Future[ServerSession] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._used = asyncio.Event()
        self._calls = 0
        self._stderr = bytearray()
        self._pipes: ServerPipes | None = None
        self._task: asyncio.Task[None] | None = None

    def start(
        self, runner: ProcessRunner, profile: SandboxProfile, command: ProcessCommand, listener: NetworkListener | None
    ) -> None:
        self._task = asyncio.create_task(self._live(runner, profile, command, listener), name=f"mcp {self.server}")

    async def listing(self, offers: Collection[str]) -> Listing:
        session = await self._wait_until_ready()
        return read_listing(self.server, await self._answer_to(session.list_offers(offers)))

    async def call(self, definition: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
        session = await self._wait_until_ready()
        match definition.kind:
            case DefinitionKind.PROMPT:
                request = session.prompt(definition.name, arguments)
            case DefinitionKind.RESOURCE | DefinitionKind.TEMPLATE:
                request = session.resource(definition.uri, arguments)
            case _:
                request = session.call(definition.name, arguments)
        answer: dict[str, Any] = await self._answer_to(request)
        return answer

    async def _wait_until_ready(self) -> "ServerSession":
        return await asyncio.shield(self._session)

    async def _answer_to(self, request: Any) -> Any:
        """Return the answer of a request, or raise if the server ends first."""
        from palyra.executors.mcp_upstream.session import ServerGone

        self._calls += 1
        self._used.set()
        assert self._task is not None
        answer = asyncio.ensure_future(request)
        try:
            await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                answer.cancel()
                await asyncio.wait([answer])
                raise self.gone_error("it ended in the middle of a call")
            try:
                return answer.result()
            except ServerGone:
                # Wait for the end of its stderr, which goes into the error.
                await asyncio.wait([self._task])
                raise self.gone_error("it ended in the middle of a call") from None
        finally:
            answer.cancel()
            self._calls -= 1
            self._used.set()

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    def gone_error(self, why: str) -> PalyraError:
        from palyra.executors.mcp_upstream.session import ServerGone

        if self._pipes is not None and self._pipes.failure is not None:
            return self._pipes.failure
        printed = bytes(self._stderr[-500:]).decode("utf-8", "replace").strip()
        return ServerGone(f"{self.server}: {why}" + (f"; its last words: {printed}" if printed else ""))

    async def _live(
        self, runner: ProcessRunner, profile: SandboxProfile, command: ProcessCommand, listener: NetworkListener | None
    ) -> None:
        from palyra.executors.mcp_upstream.session import ServerPipes

        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writing, False)
        pipes = self._pipes = ServerPipes(lambda data: _write_all(writing, data))
        fed = ProcessCommand(command=command.command, args=command.args, live_input=reading)
        try:
            async with runner.started(profile, fed, sink=self._sink(pipes), listener=listener) as running:
                self.receipt = tuple(running.receipt.as_dicts())
                ending = asyncio.ensure_future(running.wait(None))
                ending.add_done_callback(lambda _: pipes.end())
                try:
                    await self._converse(pipes, ending)
                finally:
                    if not ending.done():
                        await running.kill("mcp")
                    await asyncio.wait([ending])
                    ending.exception()
        except Exception as error:
            self.fail(error)
        finally:
            pipes.close()
            os.close(reading)
            os.close(writing)
            self.fail(self.gone_error("it ended"))
            self._ended(self)

    async def _converse(self, pipes: "ServerPipes", ending: "asyncio.Future[Any]") -> None:
        from palyra.executors.mcp_upstream.session import open_session

        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(SERVER_START_SECONDS):
                    session = await stack.enter_async_context(open_session(pipes))
                self._session.set_result(session)
                await self._wait_until_idle(ending, pipes)
        except TimeoutError:
            self.fail(self.gone_error(f"it did not answer within {SERVER_START_SECONDS:g} seconds"))
        except Exception as error:
            self.fail(pipes.failure or (self.gone_error("it ended at its start") if ending.done() else error))

    async def _wait_until_idle(self, ending: "asyncio.Future[Any]", pipes: "ServerPipes") -> None:
        """Return when nobody has called for a while, or when process or session are to end."""
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            while not (stopping.done() or ending.done() or pipes.failure):
                self._used.clear()
                using = asyncio.ensure_future(self._used.wait())
                patience = None if self._calls else self._idle_seconds
                await asyncio.wait({stopping, ending, using}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if not using.done():
                    using.cancel()
                    if not self._calls:
                        return
        finally:
            stopping.cancel()

    def fail(self, error: Exception) -> None:
        if not self._session.done():
            self._session.set_exception(error)
            # Retrieve the exception so asyncio does not log it.
            self._session.exception()

    def _sink(self, pipes: "ServerPipes") -> Callable[[StreamName, bytes], None]:
        def sink(stream: StreamName, data: bytes) -> None:
            if stream is StreamName.STDOUT:
                pipes.take(data)
                if pipes.failure is not None:
                    self._stop.set()
            else:
                self._stderr += data
                del self._stderr[:-KEPT_STDERR_BYTES]

        return sink


async def _write_all(descriptor: int, data: bytes) -> None:
    """Write all data to the pipe, waiting while the server does not read."""
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(descriptor, writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(descriptor)
