"""The session with one server, over the pipes of its process.

The server is not trusted: its messages are bounded and parsed, no address in them is fetched, and its requests refused.
"""

import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.shared.uri_template import UriTemplate

from palyra.errors import Failed, LimitExceeded, Unavailable
from palyra.executors.mcp_upstream.limits import (
    MAX_LISTING_PAGES,
    MAX_SERVER_CONTAINERS,
    MAX_SERVER_LINES_A_SECOND,
    MAX_SERVER_MESSAGE_BYTES,
    MAX_SERVER_REQUESTS,
    MESSAGES_AHEAD,
)
from palyra.executors.mcp_upstream.messages import LineSplitter, count_containers, read_envelope
from palyra.executors.mcp_upstream.spec import DefinitionKind

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
