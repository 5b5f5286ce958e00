"""Palyra as a server of the protocol: one set of handlers for every transport and revision.

Who calls is read from each request anew; nothing is remembered of a client but which run its calls belong to.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palyra.errors import PalyraError
from palyra.executors.mcp_upstream.limits import (
    ELICITATION_SECONDS,
    MAX_LISTED_CALLS,
    MAX_MESSAGE_BYTES,
    MESSAGES_AHEAD,
)
from palyra.ids import CallId, RunId, ToolName
from palyra.pipeline.domain.approval import Approval, ApprovalState
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.call_report import (
    META_PREFIX,
    REQUEST_LEVEL,
    CallTelling,
    LogLevels,
    SessionKey,
    ToolResult,
    result_of,
    text,
)
from palyra.server.mcp.elicitation import FORM, QUESTION, Answer, after_a_no, how_to_go_on, question_for, read_answer
from palyra.server.mcp.handshake import INSTRUCTIONS, NAME, TITLE
from palyra.server.mcp.request_context import SessionRuns, console_of, session_of, speaks_for, token_of
from palyra.server.mcp.resources import (
    SCHEME,
    NothingToComplete,
    is_own,
    listed_resources,
    read_contents,
    resource_templates,
    suggestions,
)
from palyra.server.mcp.service import Desk, ToolCall, Visitor
from palyra.server.mcp.tools import from_client, offered, to_client, tool_document
from palyra.server.mcp.upstream_offers import BehindDoor

# Messages of the protocol as lines of JSON, between a client on stdio and the protocol's library.
#
# A line that is no message gets the error that JSON-RPC has for it, and the next line is read.

Lines = MemoryObjectReceiveStream[bytes | None]
Write = Callable[[bytes], Awaitable[None]]
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


def refusal_of(line: bytes | None) -> dict[str, Any]:
    """What JSON-RPC answers to a line that is no message. ``None`` stands for one that was too long."""
    if line is None:
        return _error(None, INVALID_REQUEST, f"a message has at most {MAX_MESSAGE_BYTES} bytes")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, PARSE_ERROR, "this line is not JSON")
    asked = value.get("id") if isinstance(value, dict) else None
    known = asked if isinstance(asked, str | int) and not isinstance(asked, bool) else None
    return _error(known, INVALID_REQUEST, "this is not one JSON-RPC request, notification or response")


def _error(request_id: str | int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


class MessageStream:
    """One conversation. ``request`` is what its messages come with: who speaks is read from there."""

    def __init__(self, server: Server[Any], request: Any, write: Write) -> None:
        self._server = server
        self._request = request
        self._write_line = write

    async def serve(self, lines: Lines) -> None:
        to_server, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](MESSAGES_AHEAD)
        outbound, from_server = anyio.create_memory_object_stream[SessionMessage](MESSAGES_AHEAD)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, lines, to_server)
            group.start_soon(self._write, from_server)
            await self._server.run(inbound, outbound, self._server.create_initialization_options())
            # Nothing more will be answered: who still reads what the client says need not.
            group.cancel_scope.cancel()

    async def _read(self, lines: Lines, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_server:
            async for each in lines:
                await self._take(each, to_server)

    async def _take(self, line: bytes | None, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        if line is not None:
            try:
                parsed = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                pass
            else:
                await to_server.send(self._carried(parsed))
                return
        await self._write_line(json.dumps(refusal_of(line)).encode())

    def _carried(self, message: Any) -> SessionMessage:
        return SessionMessage(message, ServerMessageMetadata(request_context=self._request))

    async def _write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for each in from_server:
                await self._write_line(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


T = TypeVar("T")
RUN_META: Final = f"{META_PREFIX}run_id"
# Errors of the protocol itself: the reference of JSON-RPC and of the protocol's "resource not found".
_INVALID_PARAMS: Final = -32602
_REFUSED: Final = -32001
Context = ServerRequestContext[Any, Any]


class PalyraServer:
    def __init__(self, desk: Desk, runs: SessionRuns, version: str) -> None:
        self._desk = desk
        self._runs = runs
        self._levels = LogLevels()
        self._behind = BehindDoor(desk, self._ask)
        self.protocol: Server[Any] = Server(
            NAME,
            version=version,
            title=TITLE,
            instructions=INSTRUCTIONS,
            # Without it the library would have the whole list made for each call.
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._guarded(self._list_tools),
            on_call_tool=self._guarded(self._call_tool),
            on_list_resources=self._guarded(self._list_resources),
            on_list_resource_templates=self._guarded(self._list_templates),
            on_read_resource=self._guarded(self._read_resource),
            on_list_prompts=self._guarded(self._list_prompts),
            on_get_prompt=self._guarded(self._get_prompt),
            on_completion=self._guarded(self._complete),
        )
        self.protocol.add_request_handler(
            "logging/setLevel", types.SetLevelRequestParams, self._guarded(self._choose_level)
        )

    def _guarded(
        self, handle: Callable[[Visitor, Context, Any], Awaitable[T]]
    ) -> Callable[[Context, Any], Awaitable[T]]:
        """Admits the caller, and turns our errors into the protocol's: code, words and hint stay together."""

        async def answer(ctx: Context, params: Any) -> T:
            try:
                visitor = self._desk.admit(token_of(ctx.request), speaks_for(ctx.request))
                return await handle(visitor, ctx, params)
            except PalyraError as error:
                code = _INVALID_PARAMS if error.http_status in (400, 404) else _REFUSED
                raise MCPError(code, f"{error.message} ({error.hint})", error.as_dict()) from error

        return answer

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        try:
            spec = self._desk.spec(from_client(name))
        except PalyraError:
            return None
        return None if spec is None else spec.input_schema

    async def _list_tools(self, visitor: Visitor, _ctx: Context, _params: Any) -> types.ListToolsResult:
        found = [tool_document(offered(spec)) for spec in await self._desk.tools(visitor)]
        return types.ListToolsResult(tools=[types.Tool.model_validate(each) for each in found])

    async def _call_tool(
        self, visitor: Visitor, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        asked = self._asked_for(visitor, ctx, from_client(params.name), params.arguments or {})
        if params.request_state is not None:
            answered = await self._take_answer(visitor, ctx, params)
            if answered is not None:
                return answered
        record = await self._call(visitor, ctx, asked)
        if record.state is CallState.NEEDS_APPROVAL and record.approval_id is not None:
            return await self._ask_a_person(visitor, ctx, asked, record)
        return await self._answer(visitor, record)

    def _asked_for(self, visitor: Visitor, ctx: Context, tool: ToolName, arguments: dict[str, Any]) -> ToolCall:
        return ToolCall(
            call_id=CallId.new(),
            tool=tool,
            arguments=arguments,
            run_id=self._run_of(visitor, ctx),
            session=f"mcp:{session_of(ctx.request, visitor.token_id)}",
        )

    async def _ask(self, visitor: Visitor, ctx: Context, tool: ToolName, arguments: dict[str, Any]) -> CallRecord:
        return await self._call(visitor, ctx, self._asked_for(visitor, ctx, tool, arguments))

    def _run_of(self, visitor: Visitor, ctx: Context) -> RunId:
        named = (ctx.meta or {}).get(RUN_META)
        if isinstance(named, str) and not visitor.run_id:
            return RunId.parse(named)
        return self._runs.run_of(visitor, session_of(ctx.request, visitor.token_id))

    async def _call(self, visitor: Visitor, ctx: Context, asked: ToolCall) -> CallRecord:
        meta = ctx.meta or {}
        session = _session_key(visitor, ctx)
        telling = CallTelling(
            ctx,
            asked,
            progress="progress_token" in meta,
            log=REQUEST_LEVEL in meta or self._levels.any_wanted(session),
            wanted=lambda level: self._levels.wanted(session, level),
        )
        if not (telling.progress or telling.log):
            return await self._desk.call(visitor, asked)
        news = self._desk.following(asked.call_id)
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(telling.tell, news)
                record = await self._desk.call(visitor, asked)
                # What was told by then is still handed on.
                news.end()
        finally:
            news.end()
        return record

    async def _choose_level(
        self, visitor: Visitor, ctx: Context, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        self._levels.choose(_session_key(visitor, ctx), params.level)
        return types.EmptyResult()

    async def _ask_a_person(
        self, visitor: Visitor, ctx: Context, asked: ToolCall, record: CallRecord
    ) -> types.CallToolResult | types.InputRequiredResult:
        approval = await self._desk.approval(visitor, record.approval_id or "")
        if not _asks_users(ctx) or self._desk.decider(visitor, approval) is None:
            return _waiting(approval, console_of(ctx.request), record)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            form = types.ElicitRequestFormParams(message=question_for(approval), requested_schema=FORM)
            return types.InputRequiredResult(
                input_requests={QUESTION: types.ElicitRequest(params=form)}, request_state=approval.id
            )
        said: types.ElicitResult | None = None
        with anyio.move_on_after(ELICITATION_SECONDS):
            said = await ctx.session.elicit_form(question_for(approval), FORM, ctx.request_id)
        settled = await self._settle(visitor, ctx, approval, said)
        if settled is not None:
            return settled
        again = msgspec.structs.replace(asked, call_id=CallId.new())
        return await self._answer(visitor, await self._call(visitor, ctx, again))

    async def _take_answer(
        self, visitor: Visitor, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | None:
        """The client comes back with what its user said. The approval is bound to its call by itself: an answer to
        another question lets nothing else run."""
        approval = await self._desk.approval(visitor, params.request_state or "")
        if approval.state is not ApprovalState.PENDING:
            return None
        said = (params.input_responses or {}).get(QUESTION)
        return await self._settle(visitor, ctx, approval, said if isinstance(said, types.ElicitResult) else None)

    async def _settle(
        self, visitor: Visitor, ctx: Context, approval: Approval, said: types.ElicitResult | None
    ) -> types.CallToolResult | None:
        """None after a yes: the call may be made again now."""
        answer = Answer.UNDECIDED if said is None else read_answer(said.action, said.content)
        if answer is Answer.UNDECIDED or self._desk.decider(visitor, approval) is None:
            return _waiting(approval, console_of(ctx.request))
        await self._desk.decide(visitor, approval, answer)
        return None if answer is Answer.APPROVED else _not_run(approval, after_a_no(approval), CallState.DENIED)

    async def _answer(self, visitor: Visitor, record: CallRecord) -> types.CallToolResult:
        spec = self._desk.spec(record.tool)
        may_use: tuple[str, ...] = ()
        if record.state is CallState.DENIED:
            may_use = tuple(to_client(each.name) for each in await self._desk.tools(visitor))
        return _protocol_result(result_of(record, {} if spec is None else spec.output_schema, may_use=may_use))

    async def _list_resources(self, visitor: Visitor, ctx: Context, _params: Any) -> types.ListResourcesResult:
        run_id = self._run_of(visitor, ctx)
        calls = await self._desk.calls_of_run(visitor, run_id, MAX_LISTED_CALLS)
        found = [types.Resource.model_validate(each) for each in listed_resources(run_id, calls)]
        return types.ListResourcesResult(resources=[*found, *self._behind.resources(visitor)])

    async def _list_templates(self, visitor: Visitor, _ctx: Context, _params: Any) -> types.ListResourceTemplatesResult:
        found = [types.ResourceTemplate.model_validate(each) for each in resource_templates()]
        return types.ListResourceTemplatesResult(resource_templates=[*found, *self._behind.templates(visitor)])

    async def _list_prompts(self, visitor: Visitor, _ctx: Context, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=self._behind.prompts(visitor))

    async def _get_prompt(
        self, visitor: Visitor, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        return await self._behind.get_prompt(visitor, ctx, params.name, params.arguments)

    async def _complete(
        self, visitor: Visitor, ctx: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Of Palyra's own templates. A server is not asked at every letter that somebody types."""
        values: list[str] = []
        if isinstance(params.ref, types.PromptReference):
            self._behind.prompt(visitor, params.ref.name)
        elif is_own(params.ref.uri):
            run_id = self._run_of(visitor, ctx)
            calls = await self._desk.calls_of_run(visitor, run_id, MAX_LISTED_CALLS)
            argument, ids = params.argument, [call.call_id for call in calls]
            values = suggestions(params.ref.uri, argument.name, argument.value, run_id=run_id, call_ids=ids)
        elif params.ref.uri not in {each.uri_template for each in self._behind.templates(visitor)}:
            raise NothingToComplete(f"there is no template {params.ref.uri[:200]!r}")
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))

    async def _read_resource(
        self, visitor: Visitor, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        if not uri.startswith(SCHEME):
            behind = await self._behind.read(visitor, ctx, uri)
            if behind is not None:
                return behind
        words = await read_contents(self._desk, visitor, uri)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="application/json", text=words)]
        )


def _session_key(visitor: Visitor, ctx: Context) -> SessionKey:
    return (visitor.token_id, visitor.principal, session_of(ctx.request, visitor.token_id))


def _asks_users(ctx: Context) -> bool:
    """Whether the client can put a form to its user. One that names no mode means forms."""
    capabilities = ctx.session.client_capabilities
    asked = None if capabilities is None else capabilities.elicitation
    if asked is None or (asked.form is None and asked.url is not None):
        return False
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request


def _waiting(approval: Approval, console: str, record: CallRecord | None = None) -> types.CallToolResult:
    return _not_run(approval, how_to_go_on(approval, console), CallState.NEEDS_APPROVAL, record)


def _not_run(
    approval: Approval, words: str, state: CallState, record: CallRecord | None = None
) -> types.CallToolResult:
    known = {f"{META_PREFIX}approval_id": approval.id, f"{META_PREFIX}status": state.value}
    if record is not None:
        known = {**result_of(record, {}).meta, **known}
    return _protocol_result(ToolResult(content=(text(words),), is_error=True, meta=known))


def _protocol_result(result: ToolResult) -> types.CallToolResult:
    return types.CallToolResult.model_validate(
        {
            "content": list(result.content),
            "structuredContent": result.structured,
            "isError": result.is_error,
            "_meta": result.meta,
        }
    )
