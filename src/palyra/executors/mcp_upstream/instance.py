"""One upstream server in its sandbox, for one principal or run: its process, its session and its end.

One task owns process and session. It ends after an idle time, when a call is cancelled, and when the server ends.
The server is not trusted: its messages are bounded and parsed, no address in them is fetched, and its requests refused.
"""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.shared.uri_template import UriTemplate

from palyra.errors import Failed, LimitExceeded, PalyraError, Unavailable
from palyra.executors.mcp_upstream.instance_egress import InstanceListener
from palyra.executors.mcp_upstream.limits import (
    KEPT_STDERR_BYTES,
    MAX_LISTING_PAGES,
    MAX_SERVER_CONTAINERS,
    MAX_SERVER_LINES_A_SECOND,
    MAX_SERVER_MESSAGE_BYTES,
    MAX_SERVER_REQUESTS,
    MESSAGES_AHEAD,
    SERVER_START_SECONDS,
)
from palyra.executors.mcp_upstream.messages import LineSplitter, count_containers, read_envelope
from palyra.executors.mcp_upstream.spec import DefinitionKind, Listing, ToolDefinition, read_listing
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.network.call_network import NetworkListener
from palyra.sandbox.runner import ProcessRunner
from palyra.sandbox.running_process import Running, StreamName

Write = Callable[[bytes], Awaitable[None]]


_LISTINGS = (
    (DefinitionKind.TOOL, "tools", types.ListToolsRequest, types.ListToolsResult, "tools"),
    (DefinitionKind.PROMPT, "prompts", types.ListPromptsRequest, types.ListPromptsResult, "prompts"),
    (DefinitionKind.RESOURCE, "resources", types.ListResourcesRequest, types.ListResourcesResult, "resources"),
    (
        DefinitionKind.TEMPLATE,
        "resources",
        types.ListResourceTemplatesRequest,
        types.ListResourceTemplatesResult,
        "resource_templates",
    ),
)


class ServerGone(Unavailable):
    code = "mcp.server_gone"
    hint = "`palyra mcp look SERVER` shows why it does not start; what it printed to stderr is in the message"


class ServerFailed(Failed):
    code = "mcp.server_failed"
    hint = "the message is the server's own"
    http_status = 422


class ServerFloods(LimitExceeded):
    code = "mcp.server_floods"
    hint = "the server sends more than was requested, and was ended"


class ServerPipes:
    """The two directions of the session. ``take`` receives the server's output; ``failure`` is set if it is too much.

    Notifications of the server are dropped: nothing here needs them, the library logs each that it does not understand,
    and parsing one may take seconds.
    """

    def __init__(self, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._lines = LineSplitter(MAX_SERVER_MESSAGE_BYTES)
        # Awaited answers, and as many requests as a server may make: the sender bounds it.
        self._to_client, self._inbound = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        # How many lines it sent in the second that began at ``_since``.
        self._sent = 0
        self._since = clock()
        # The ids of our requests without an answer, and the number of the server's requests without one.
        self._awaited: set[str] = set()
        self._open_requests = 0
        self.failure: ServerFloods | None = None

    def take(self, data: bytes) -> None:
        if self.failure is None:
            self._count(data.count(b"\n"))
        for line in self._lines.feed(data) if self.failure is None else ():
            if self.failure is not None:
                return
            if line is None:
                self._refuse_flood(f"one message has more than {MAX_SERVER_MESSAGE_BYTES} bytes")
            else:
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        envelope = read_envelope(line)
        if envelope is None:
            # Some servers print a greeting, which is not a message.
            return
        if envelope.method is None and envelope.request_id in self._awaited:
            self._awaited.discard(envelope.request_id)
            # Answers to our own requests do not count as a flood.
            self._sent -= 1
            if count_containers(line, MAX_SERVER_CONTAINERS) > MAX_SERVER_CONTAINERS:
                self._refuse_flood(f"one message has more than {MAX_SERVER_CONTAINERS} lists and objects")
                return
            self._deliver(line)
            return
        if envelope.method is not None and envelope.id is not None:
            self._open_requests += 1
            if self._open_requests > MAX_SERVER_REQUESTS:
                self._refuse_flood(f"it asks more than {MAX_SERVER_REQUESTS} things at once")
                return
            # Without its parameters: the library answers with a refusal, or to a ping.
            self._deliver(msgspec.json.encode({"jsonrpc": "2.0", "id": envelope.id, "method": envelope.method}))

    def _deliver(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            self._to_client.send_nowait(SessionMessage(message))

    def _count(self, lines: int) -> None:
        # Every line counts before it is read: empty lines and nonsense cost as much as messages.
        now = self._clock()
        if now - self._since >= 1.0:
            self._since, self._sent = now, 0
        self._sent += lines
        if self._sent > MAX_SERVER_LINES_A_SECOND:
            self._refuse_flood(f"it sends more than {MAX_SERVER_LINES_A_SECOND} lines a second")

    def _refuse_flood(self, how: str) -> None:
        self.failure = ServerFloods(how)
        self.end()

    def end(self) -> None:
        """End the waits for answers: the server is gone."""
        self._to_client.close()

    def close(self) -> None:
        self._to_client.close()
        self._inbound.close()

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        outbound, from_client = anyio.create_memory_object_stream[SessionMessage](MESSAGES_AHEAD)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._send, from_client)
                try:
                    yield self._inbound, outbound
                finally:
                    group.cancel_scope.cancel()
        finally:
            for stream in (from_client, outbound):
                stream.close()
            self.close()

    async def _send(self, from_client: MemoryObjectReceiveStream[SessionMessage]) -> None:
        with contextlib.suppress(OSError):
            async for each in from_client:
                if isinstance(each.message, types.JSONRPCResponse | types.JSONRPCError):
                    self._open_requests -= 1
                elif isinstance(each.message, types.JSONRPCRequest):
                    self._awaited.add(str(each.message.id))
                await self._write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


@contextlib.asynccontextmanager
async def open_session(pipes: ServerPipes) -> AsyncIterator["ServerSession"]:
    """Initialize the session in the newest revision that the server speaks."""
    async with Client(pipes.transport(), mode="auto") as client:
        yield ServerSession(client)


class ServerSession:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_offers(self, offers: Collection[str]) -> list[tuple[DefinitionKind, dict[str, Any]]]:
        """List the server's definitions of the kinds in ``offers``, page by page."""
        found: list[tuple[DefinitionKind, dict[str, Any]]] = []
        has = self._client.session.server_capabilities
        for kind, what, request, result, field in _LISTINGS:
            if what not in offers or (what != "tools" and (has is None or getattr(has, what) is None)):
                continue
            found += [(kind, raw) for raw in await self._pages(request, result, field)]
        return found

    async def _pages(self, request: Any, result: Any, field: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_LISTING_PAGES):
            page = await self._request(request(params=types.PaginatedRequestParams(cursor=cursor)), result)
            found += [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in getattr(page, field)]
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ServerFailed(f"its listing of {field} has more than {MAX_LISTING_PAGES} pages")

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        params = types.GetPromptRequestParams(name=name, arguments=arguments)
        result = await self._request(types.GetPromptRequest(params=params), types.GetPromptResult)
        prompt = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        structured = {"description": prompt.get("description", ""), "messages": prompt["messages"]}
        return {"content": [each["content"] for each in prompt["messages"]], "structuredContent": structured}

    async def resource(self, uri: str, variables: dict[str, str]) -> dict[str, Any]:
        """Read a resource. ``variables`` are those of a template's address."""
        address = UriTemplate.parse(uri).expand(variables) if variables else uri
        params = types.ReadResourceRequestParams(uri=address)
        result = await self._request(types.ReadResourceRequest(params=params), types.ReadResourceResult)
        read = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"content": [{"type": "resource", "resource": each} for each in read["contents"]]}

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool without the library's own method, which also fetches what schemas refer to."""
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        result = await self._request(types.CallToolRequest(params=params), types.CallToolResult)
        return dict(result.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def _request(self, request: Any, kind: Any) -> Any:
        try:
            return await self._client.session.send_request(request, kind)
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                raise ServerGone("the server ended") from error
            raise ServerFailed(f"the server answered {error.code}: {error.message}"[:1000]) from error
        except ValueError as error:
            raise ServerFailed(f"the server's answer is not one of the protocol: {error}"[:1000]) from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise ServerGone("the server ended") from error


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
        # The values that its process has, by variable; the last call of each principal that used it.
        self.secrets: Mapping[str, str] = {}
        self.last_calls: dict[str, ExecutionPlan] = {}
        # The principal whose share it counts in.
        self.started_for = ""
        self.listener: InstanceListener | None = None
        # Its process; after the end it knows which protected names it planted.
        self.running: Running | None = None

    @contextlib.asynccontextmanager
    async def turn(self, plan: ExecutionPlan) -> AsyncIterator[bool]:
        """Use the instance for this call, and yield whether it is still there: the call before may have ended it."""
        # Counted while it waits too: an instance that a call waits for is not idle.
        self._calls += 1
        self._used.set()
        try:
            async with self.listener.turn(plan) if self.listener is not None else contextlib.nullcontext():
                yield self._task is None or not self._task.done()
        finally:
            self._calls -= 1
            self._used.set()

    @property
    def is_idle(self) -> bool:
        """Return whether it has started and no call uses it or waits for it."""
        return self._task is not None and not self._calls

    @property
    def is_taken(self) -> bool:
        """Return whether a call has to wait for its turn."""
        return self.listener is not None and self.listener.is_taken

    @property
    def is_started(self) -> bool:
        return self._task is not None

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

    async def _wait_until_ready(self) -> ServerSession:
        return await asyncio.shield(self._session)

    async def _answer_to(self, request: Any) -> Any:
        """Return the answer of a request, or raise if the server ends first."""
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

    def retire(self) -> None:
        """End the process as soon as no call uses it."""
        self._idle_seconds = 0.0
        self._used.set()

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    def gone_error(self, why: str) -> PalyraError:
        if self._pipes is not None and self._pipes.failure is not None:
            return self._pipes.failure
        printed = bytes(self._stderr[-500:]).decode("utf-8", "replace").strip()
        return ServerGone(f"{self.server}: {why}" + (f"; its last words: {printed}" if printed else ""))

    async def _live(
        self, runner: ProcessRunner, profile: SandboxProfile, command: ProcessCommand, listener: NetworkListener | None
    ) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writing, False)
        pipes = self._pipes = ServerPipes(lambda data: _write_all(writing, data))
        fed = ProcessCommand(command=command.command, args=command.args, live_input=reading)
        try:
            async with runner.started(profile, fed, sink=self._sink(pipes), listener=listener) as running:
                self.running = running
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

    async def _converse(self, pipes: ServerPipes, ending: "asyncio.Future[Any]") -> None:
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

    async def _wait_until_idle(self, ending: "asyncio.Future[Any]", pipes: ServerPipes) -> None:
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

    def _sink(self, pipes: ServerPipes) -> Callable[[StreamName, bytes], None]:
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
