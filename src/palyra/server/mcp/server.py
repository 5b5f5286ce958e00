"""Palyra as a server of the protocol: one set of handlers for every transport and revision.

Each request is authenticated. All that is kept of a client is the run of its session and its log level.
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial
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
from palyra.pipeline.domain.approval import Approval, ApprovalState, ChangedCall
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.backend import McpBackend, McpCaller, ToolCall
from palyra.server.mcp.call_progress import CallProgress
from palyra.server.mcp.client_view import (
    INSTRUCTIONS,
    META_PREFIX,
    NAME,
    QUESTION,
    TITLE,
    ToolResult,
    UserAnswer,
    from_client,
    question_state,
    read_answer,
    read_question_state,
    render_denied,
    render_question,
    render_waiting,
    result_of,
    text,
    to_client,
    tool_document,
)
from palyra.server.mcp.resources import (
    SCHEME,
    NothingToComplete,
    is_own,
    list_resources,
    read_contents,
    resource_templates,
    suggestions,
)
from palyra.server.mcp.transports import (
    REQUEST_LEVEL,
    LogLevels,
    SessionKey,
    SessionRuns,
    approvals_page,
    named_principal,
    session_of,
    token_of,
)
from palyra.server.mcp.upstream_offers import UpstreamOffers

Lines = MemoryObjectReceiveStream[bytes | None]
Write = Callable[[bytes], Awaitable[None]]
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


def refusal_of(line: bytes | None) -> dict[str, Any]:
    """Return the JSON-RPC error for a line that is not a message. ``None`` stands for a line that was too long."""
    if line is None:
        return _error(None, INVALID_REQUEST, f"a message has at most {MAX_MESSAGE_BYTES} bytes")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, PARSE_ERROR, "this line is not JSON")
    request_id = value.get("id") if isinstance(value, dict) else None
    if not isinstance(request_id, str | int) or isinstance(request_id, bool):
        request_id = None
    return _error(request_id, INVALID_REQUEST, "this is not one JSON-RPC request, notification or response")


def _error(request_id: str | int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


class MessageStream:
    """The messages of one client on stdio as lines of JSON. Their sender is read from ``request``."""

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
            # No answer follows, so stop reading.
            group.cancel_scope.cancel()

    async def _read(self, lines: Lines, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_server:
            async for each in lines:
                await self._forward(each, to_server)

    async def _forward(self, line: bytes | None, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        if line is not None:
            try:
                parsed = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                pass
            else:
                await to_server.send(SessionMessage(parsed, ServerMessageMetadata(request_context=self._request)))
                return
        await self._write_line(json.dumps(refusal_of(line)).encode())

    async def _write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for each in from_server:
                await self._write_line(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


T = TypeVar("T")
RUN_META: Final = f"{META_PREFIX}run_id"
# Error codes of JSON-RPC and of the protocol.
_INVALID_PARAMS: Final = -32602
_REFUSED: Final = -32001
Context = ServerRequestContext[Any, Any]


class PalyraServer:
    def __init__(self, backend: McpBackend, runs: SessionRuns, version: str) -> None:
        self._backend = backend
        self._runs = runs
        self._levels = LogLevels()
        self._upstream = UpstreamOffers(backend, self._call_tool_of)
        self.protocol: Server[Any] = Server(
            NAME,
            version=version,
            title=TITLE,
            instructions=INSTRUCTIONS,
            # Without this the library lists all tools for each call.
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
        self, handle: Callable[[McpCaller, Context, Any], Awaitable[T]]
    ) -> Callable[[Context, Any], Awaitable[T]]:
        """Authenticate each request, and turn our errors into the protocol's, with code, message and hint."""

        async def answer(ctx: Context, params: Any) -> T:
            try:
                caller = self._backend.admit(token_of(ctx.request), named_principal(ctx.request))
                return await handle(caller, ctx, params)
            except PalyraError as error:
                code = _INVALID_PARAMS if error.http_status in (400, 404) else _REFUSED
                raise MCPError(code, f"{error.message} ({error.hint})", error.as_dict()) from error

        return answer

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        try:
            spec = self._backend.spec(from_client(name))
        except PalyraError:
            return None
        return None if spec is None else spec.input_schema

    async def _list_tools(self, caller: McpCaller, _ctx: Context, _params: Any) -> types.ListToolsResult:
        found = [tool_document(spec) for spec in await self._backend.tools(caller)]
        return types.ListToolsResult(tools=[types.Tool.model_validate(each) for each in found])

    async def _call_tool(
        self, caller: McpCaller, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        call = self._new_call(caller, ctx, from_client(params.name), params.arguments or {})
        if params.request_state is not None:
            result = await self._take_answer(caller, ctx, params)
            if result is not None:
                return result
        record = await self._call(caller, ctx, call)
        if record.state is CallState.NEEDS_APPROVAL and record.approval_id is not None:
            return await self._ask_person(caller, ctx, call, record)
        return await self._report(caller, record)

    def _new_call(self, caller: McpCaller, ctx: Context, tool: ToolName, arguments: dict[str, Any]) -> ToolCall:
        return ToolCall(
            call_id=CallId.new(),
            tool=tool,
            arguments=arguments,
            run_id=self._run_of(caller, ctx),
            session=f"mcp:{caller.token_id}/{session_of(ctx.request, caller.token_id)}",
        )

    async def _call_tool_of(
        self, caller: McpCaller, ctx: Context, tool: ToolName, arguments: dict[str, Any]
    ) -> CallRecord:
        return await self._call(caller, ctx, self._new_call(caller, ctx, tool, arguments))

    def _run_of(self, caller: McpCaller, ctx: Context) -> RunId:
        named = (ctx.meta or {}).get(RUN_META)
        if isinstance(named, str) and not caller.run_id:
            return RunId.parse(named)
        return self._runs.run_of(caller, session_of(ctx.request, caller.token_id))

    async def _call(self, caller: McpCaller, ctx: Context, call: ToolCall) -> CallRecord:
        meta, session = ctx.meta or {}, _session_key(caller, ctx)
        progress = "progress_token" in meta
        log = REQUEST_LEVEL in meta or self._levels.any_wanted(session)
        if not (progress or log):
            return await self._backend.call(caller, call)
        wanted = partial(self._levels.wanted, session)
        sender = CallProgress(ctx, call, progress=progress, log=log, wanted=wanted)
        events = self._backend.follow(call.call_id)
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(sender.send, events)
                record = await self._backend.call(caller, call)
                # Events that have arrived are still sent.
                events.end()
        finally:
            events.end()
        return record

    async def _choose_level(
        self, caller: McpCaller, ctx: Context, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        self._levels.choose(_session_key(caller, ctx), params.level)
        return types.EmptyResult()

    async def _ask_person(
        self, caller: McpCaller, ctx: Context, call: ToolCall, record: CallRecord
    ) -> types.CallToolResult | types.InputRequiredResult:
        approval = await self._backend.approval(caller, record.approval_id or "")
        if not _can_ask_user(ctx) or self._backend.decider(caller, approval) is None:
            return _waiting_result(approval, approvals_page(ctx.request), record)
        question = render_question(approval)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            form = types.ElicitRequestFormParams(message=question.message, requested_schema=question.form)
            return types.InputRequiredResult(
                input_requests={QUESTION: types.ElicitRequest(params=form)}, request_state=question_state(approval)
            )
        elicited: types.ElicitResult | None = None
        with anyio.move_on_after(ELICITATION_SECONDS):
            elicited = await ctx.session.elicit_form(question.message, question.form, ctx.request_id)
        result = await self._settle(caller, ctx, approval, elicited)
        if result is not None:
            return result
        again = msgspec.structs.replace(call, call_id=CallId.new())
        return await self._report(caller, await self._call(caller, ctx, again))

    async def _take_answer(
        self, caller: McpCaller, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | None:
        """Apply the user's answer that a client brings back. None stands for an approval that is decided already.

        The answer is bound to the digest that was shown. One without it decides nothing.
        """
        approval_id, digest = read_question_state(params.request_state or "")
        approval = await self._backend.approval(caller, approval_id)
        if digest != approval.binding.argument_digest:
            raise ChangedCall("the answer names no digest of the call that waits", id=approval.id)
        if approval.state is not ApprovalState.PENDING:
            return None
        elicited = (params.input_responses or {}).get(QUESTION)
        if not isinstance(elicited, types.ElicitResult):
            elicited = None
        return await self._settle(caller, ctx, approval, elicited)

    async def _settle(
        self, caller: McpCaller, ctx: Context, approval: Approval, elicited: types.ElicitResult | None
    ) -> types.CallToolResult | None:
        """Record the user's answer. None stands for an approval: the call may run now."""
        answer = UserAnswer.UNDECIDED if elicited is None else read_answer(elicited.action, elicited.content)
        if answer is UserAnswer.APPROVED and not render_question(approval).may_approve:
            answer = UserAnswer.UNDECIDED
        if answer is UserAnswer.UNDECIDED or self._backend.decider(caller, approval) is None:
            return _waiting_result(approval, approvals_page(ctx.request))
        await self._backend.decide(caller, approval, answer)
        return (
            None
            if answer is UserAnswer.APPROVED
            else _unrun_result(approval, render_denied(approval), CallState.DENIED)
        )

    async def _report(self, caller: McpCaller, record: CallRecord) -> types.CallToolResult:
        spec = self._backend.spec(record.tool)
        may_use: tuple[str, ...] = ()
        if record.state is CallState.DENIED:
            may_use = tuple(to_client(each.name) for each in await self._backend.tools(caller))
        return _protocol_result(result_of(record, {} if spec is None else spec.output_schema, may_use=may_use))

    async def _list_resources(self, caller: McpCaller, ctx: Context, _params: Any) -> types.ListResourcesResult:
        run_id = self._run_of(caller, ctx)
        calls = await self._backend.calls_of_run(caller, run_id, MAX_LISTED_CALLS)
        found = [types.Resource.model_validate(each) for each in list_resources(run_id, calls)]
        return types.ListResourcesResult(resources=[*found, *self._upstream.resources(caller)])

    async def _list_templates(
        self, caller: McpCaller, _ctx: Context, _params: Any
    ) -> types.ListResourceTemplatesResult:
        found = [types.ResourceTemplate.model_validate(each) for each in resource_templates()]
        return types.ListResourceTemplatesResult(resource_templates=[*found, *self._upstream.templates(caller)])

    async def _list_prompts(self, caller: McpCaller, _ctx: Context, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=self._upstream.prompts(caller))

    async def _get_prompt(
        self, caller: McpCaller, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        return await self._upstream.get_prompt(caller, ctx, params.name, params.arguments)

    async def _complete(
        self, caller: McpCaller, ctx: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Complete variables of Palyra's own templates. An upstream server is not asked at every key stroke."""
        values: list[str] = []
        if isinstance(params.ref, types.PromptReference):
            self._upstream.prompt(caller, params.ref.name)
        elif is_own(params.ref.uri):
            run_id = self._run_of(caller, ctx)
            calls = await self._backend.calls_of_run(caller, run_id, MAX_LISTED_CALLS)
            argument, ids = params.argument, [call.call_id for call in calls]
            values = suggestions(params.ref.uri, argument.name, argument.value, run_id=run_id, call_ids=ids)
        elif params.ref.uri not in {each.uri_template for each in self._upstream.templates(caller)}:
            raise NothingToComplete(f"there is no template {params.ref.uri[:200]!r}")
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))

    async def _read_resource(
        self, caller: McpCaller, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        if not uri.startswith(SCHEME):
            result = await self._upstream.read(caller, ctx, uri)
            if result is not None:
                return result
        document = await read_contents(self._backend, caller, uri)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="application/json", text=document)]
        )


def _session_key(caller: McpCaller, ctx: Context) -> SessionKey:
    return (caller.token_id, caller.principal, session_of(ctx.request, caller.token_id))


def _can_ask_user(ctx: Context) -> bool:
    """Return whether the client can show its user a form. A client that names no mode means forms."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request


def _waiting_result(approval: Approval, console: str, record: CallRecord | None = None) -> types.CallToolResult:
    return _unrun_result(approval, render_waiting(approval, console), CallState.NEEDS_APPROVAL, record)


def _unrun_result(
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
