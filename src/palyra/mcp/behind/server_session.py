"""A conversation with one server, over the pipes of its process.

The server is not trusted: what it says is bounded, parsed and never fetched from, and it may ask for nothing.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.shared.uri_template import UriTemplate

from palyra.errors import Failed, LimitExceeded, Unavailable
from palyra.mcp.behind.definition import DefinitionKind
from palyra.mcp.limits import (
    MAX_LISTING_PAGES,
    MAX_SERVER_MESSAGE_BYTES,
    MAX_SERVER_REQUESTS,
    MAX_UNASKED_A_SECOND,
    MAX_WAITING_MESSAGES,
    MESSAGES_AHEAD,
)
from palyra.mcp.message_lines import LineSplitter

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
    hint = "the server sends more than anybody asked for, and was ended"


class ServerPipes:
    """The two directions. ``take`` is given what the server prints, as it comes; ``failure`` is there when that was too
    much, and nothing more is taken.

    What a server tells without being asked goes no further: nobody here needs it, and the library would log every one
    that it does not understand.
    """

    def __init__(self, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._lines = LineSplitter(MAX_SERVER_MESSAGE_BYTES)
        self._to_client, self._inbound = anyio.create_memory_object_stream[SessionMessage | Exception](
            MAX_WAITING_MESSAGES
        )
        # Messages that nobody asked for, in the second since.
        self._unasked = 0
        self._since = clock()
        # Requests of the server that have no answer yet.
        self._asked = 0
        self.failure: ServerFloods | None = None

    def take(self, data: bytes) -> None:
        for line in self._lines.feed(data) if self.failure is None else ():
            if self.failure is not None:
                return
            if line is None:
                self._flooded(f"one message has more than {MAX_SERVER_MESSAGE_BYTES} bytes")
            else:
                self._hand_on(line)

    def _hand_on(self, line: bytes) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            # Some servers print a greeting: it is no message, and nobody's answer.
            return
        if isinstance(message, types.JSONRPCNotification):
            self._count_unasked()
            return
        if isinstance(message, types.JSONRPCRequest):
            self._count_unasked()
            self._asked += 1
            if self._asked > MAX_SERVER_REQUESTS:
                self._flooded(f"it asks more than {MAX_SERVER_REQUESTS} things at once")
                return
        try:
            self._to_client.send_nowait(SessionMessage(message))
        except anyio.WouldBlock:
            self._flooded(f"more than {MAX_WAITING_MESSAGES} messages wait to be read")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return

    def _count_unasked(self) -> None:
        now = self._clock()
        if now - self._since >= 1.0:
            self._since, self._unasked = now, 0
        self._unasked += 1
        if self._unasked > MAX_UNASKED_A_SECOND:
            self._flooded(f"it sends more than {MAX_UNASKED_A_SECOND} messages a second unasked")

    def _flooded(self, how: str) -> None:
        self.failure = ServerFloods(how)
        self.end()

    def end(self) -> None:
        """The server is gone: whoever waits for an answer hears of it."""
        self._to_client.close()

    def close(self) -> None:
        """Nobody reads any more."""
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
                    self._asked -= 1
                await self._write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


@contextlib.asynccontextmanager
async def conversing(pipes: ServerPipes) -> AsyncIterator["ServerSession"]:
    """Shakes hands, in the newest revision that the server speaks."""
    async with Client(pipes.transport(), mode="auto") as client:
        yield ServerSession(client)


class ServerSession:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def offered(self, offers: Collection[str]) -> list[tuple[DefinitionKind, dict[str, Any]]]:
        """Everything that the server tells of and somebody wants of it, page by page."""
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
            page = await self._asked(request(params=types.PaginatedRequestParams(cursor=cursor)), result)
            found += [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in getattr(page, field)]
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ServerFailed(f"its listing of {field} has more than {MAX_LISTING_PAGES} pages")

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        params = types.GetPromptRequestParams(name=name, arguments=arguments)
        result = await self._asked(types.GetPromptRequest(params=params), types.GetPromptResult)
        told = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        said = {"description": told.get("description", ""), "messages": told["messages"]}
        return {"content": [each["content"] for each in told["messages"]], "structuredContent": said}

    async def resource(self, uri: str, variables: dict[str, str]) -> dict[str, Any]:
        """``variables`` are those of a template's address."""
        address = UriTemplate.parse(uri).expand(variables) if variables else uri
        params = types.ReadResourceRequestParams(uri=address)
        result = await self._asked(types.ReadResourceRequest(params=params), types.ReadResourceResult)
        told = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"content": [{"type": "resource", "resource": each} for each in told["contents"]]}

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result as the server told it. The library's own way would also fetch what schemas refer to."""
        params = types.CallToolRequestParams(name=name, arguments=arguments)
        result = await self._asked(types.CallToolRequest(params=params), types.CallToolResult)
        return dict(result.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def _asked(self, request: Any, kind: Any) -> Any:
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
