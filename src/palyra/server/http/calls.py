"""``/v1/tool-calls``, ``/v1/runs`` and ``/v1/tools``: the routes of agents."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Literal, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.errors import Denied, LimitExceeded
from palyra.identity.api_tokens import TokenScope
from palyra.ids import CallId, RunId
from palyra.limits import MAX_APPROVAL_WAIT_MS, MAX_CALL_TIMEOUT_MS, MAX_CONTEXT_VALUE_CHARS
from palyra.pipeline.domain.approval import AlreadyDecided, ApprovalEvent, ApprovalExpired, Verdict
from palyra.pipeline.domain.budget import BudgetKind, RunBudget
from palyra.pipeline.domain.call import CallRecord, CallRequest, CallState
from palyra.pipeline.domain.spec import ToolSpec, ToolTier
from palyra.pipeline.store.approval_tables import decide
from palyra.pipeline.store.call_tables import read_call
from palyra.pipeline.store.run_tables import Run, open_run, read_run
from palyra.server.context import ApiService, Caller, StreamPlace
from palyra.server.http.envelope import WrongShape, answer, answer_events, answer_failure, read_into, to_view
from palyra.server.http.route_schema import FreeObject, JsonText, PrincipalText, Time, UlidText, describe
from palyra.server.http.views import AccountData, CallData, RunData, ToolData, ToolList, ToolWithSchemas

Word = Annotated[str, msgspec.Meta(max_length=MAX_CONTEXT_VALUE_CHARS, pattern=r"^[A-Za-z0-9._:@/+-]*\Z")]
# Events of one call sent at a time to a client that follows it.
EVENTS_PER_READ = 100
KEEP_ALIVE_SECONDS = 15.0


class RunFixed(Denied):
    code = "token.run_fixed"
    hint = "this token works in one run only: omit run_id"


class CallBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    arguments: FreeObject | None = None
    arguments_json: JsonText | None = None
    run_id: UlidText | None = None
    session: Word = ""
    channel: Word | None = None
    device: Word = ""
    principal: PrincipalText | None = None
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_APPROVAL_WAIT_MS)] = 0
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=MAX_CALL_TIMEOUT_MS)] | None = None
    tier: Literal["worker"] | None = None


class RunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    budget: Annotated[
        dict[BudgetKind, Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]],
        msgspec.Meta(extra_json_schema={"propertyNames": {"enum": [kind.value for kind in BudgetKind]}}),
    ] = {}
    principal: PrincipalText | None = None


# For the document: a request has exactly one of the two forms of arguments.
_ONE_WAY_OF_TWO = {
    "oneOf": [
        {"required": [given], "properties": {given: {"type": kind}, other: {"type": "null"}}}
        for given, kind, other in (("arguments", "object", "arguments_json"), ("arguments_json", "string", "arguments"))
    ]
}


@describe(
    "Makes one call and answers when it has ended. Takes `arguments` or `arguments_json`, one of the two.",
    body=CallBody,
    body_rules=_ONE_WAY_OF_TWO,
    data=CallData,
    errors={202: "a person must approve first", 403: "policy says no", 422: "the call ran and failed"},
)
async def make_call(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    caller.token.require(TokenScope.CALL)
    body = await read_into(request, CallBody)
    if (body.arguments is None) == (body.arguments_json is None):
        raise WrongShape("give arguments (an object) or arguments_json (its text), one of them")
    if caller.token.run_id and body.run_id not in (None, caller.token.run_id):
        raise RunFixed(f"this token works in run {caller.token.run_id}")
    run_id = body.run_id or caller.token.run_id or None
    # An agent may not choose its channel, device or session for policy: only an operator's client may name them.
    channel = body.channel if body.channel and caller.operates else service.channel
    record = await service.broker.call(
        CallRequest(
            tool=body.tool,
            arguments=body.arguments if body.arguments is not None else body.arguments_json or "",
            principal=caller.on_behalf_of(body.principal),
            actor=caller.actor,
            channel=channel,
            run_id=None if run_id is None else RunId.parse(run_id),
            session=_name_session(caller, body.session),
            proves_session=caller.operates,
            device=body.device if caller.operates else "",
            wait_ms=body.wait_ms,
            timeout_ms=body.timeout_ms,
            tier=None if body.tier is None else ToolTier(body.tier),
        )
    )
    return answer_call(record)


def _name_session(caller: Caller, word: str) -> str:
    """Bind an ordinary caller's word for its session to its token, so that nobody else reaches it with that word."""
    return word if caller.operates or not word else f"token:{caller.token.token_id}/{word}"


def answer_call(record: CallRecord) -> Response:
    if record.error is None:
        return answer(record.view())
    error = {**record.error, "details": {**record.error.get("details", {}), "call_id": record.call_id}}
    return answer_failure(error, record.http_status(), record.exit_code(), record.view())


@describe("The call as it stands.", data=CallData)
async def show_call(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    record = await asyncio.to_thread(
        read_call, service.store, CallId.parse(request.path_params["call_id"]), caller.sees()
    )
    return answer(record.view())


@describe("Stops a running call, or withdraws the request of one that waits for approval.", data=CallData)
async def cancel_call(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    call_id = CallId.parse(request.path_params["call_id"])
    record = await asyncio.to_thread(read_call, service.store, call_id, caller.sees())
    if record.state is CallState.NEEDS_APPROVAL and record.approval_id is not None:
        await _withdraw(service, caller, record.approval_id)
    await service.broker.cancel(call_id)
    record = await asyncio.to_thread(read_call, service.store, call_id, caller.sees())
    return answer(record.view())


async def _withdraw(service: ApiService, caller: Caller, approval_id: str) -> None:
    verdict = Verdict(event=ApprovalEvent.WITHDRAW, by=str(caller.principal), reason="the call was cancelled")
    with contextlib.suppress(AlreadyDecided, ApprovalExpired):
        await service.store.transact(lambda tx: decide(tx, approval_id, verdict, actor=caller.actor))
    service.broker.approval_waiters.notify(approval_id)


class ArgumentsData(TypedDict):
    call_id: UlidText
    tool: str
    principal: PrincipalText
    argument_digest: str
    arguments_json: str
    redacted: int
    kept_at: Time


@describe("The call's whole arguments as canonical JSON. Each reading is recorded.", data=ArgumentsData)
async def show_arguments(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "journal.read")
    call_id = CallId.parse(request.path_params["call_id"])
    record = await asyncio.to_thread(read_call, service.store, call_id, None)
    return answer(to_view(ArgumentsData, await service.arguments.open(record, actor=caller.actor)))


@describe("The call's journal entries as server-sent events.", answers="events")
async def follow_call(service: ApiService, request: Request) -> Response:
    """Stream the call's journal entries from the first one, or from the one after Last-Event-ID."""
    caller = service.caller(request)
    call_id = CallId.parse(request.path_params["call_id"])
    read_call(service.store, call_id, caller.sees())
    raw = request.headers.get("last-event-id", "0")
    if not (raw.isascii() and raw.isdigit() and len(raw) < 16):
        raise WrongShape("Last-Event-ID is the seq of an event")
    return answer_events(_events(service, call_id, caller.sees(), int(raw), service.take_place(caller)))


async def _events(
    service: ApiService, call_id: CallId, sees: str | None, since: int, _place: StreamPlace
) -> AsyncIterator[bytes]:
    with service.store.subscribe() as news, service.streaming(news):
        while True:
            # Read the state first: the entries that led to it are in the table by then.
            record = await asyncio.to_thread(read_call, service.store, call_id, sees)
            while batch := await asyncio.to_thread(
                service.store.events_since, since, limit=EVENTS_PER_READ, call=str(call_id)
            ):
                for event in batch:
                    since = event.seq
                    yield _sse(event.kind, event.seq, event.payload)
            if not service.broker.is_unfinished(record):
                return
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    while (await anext(news)).call != call_id:
                        pass
            except TimeoutError:
                yield b": still here\n\n"
            except StopAsyncIteration:
                # The daemon stops.
                return
            except LimitExceeded:
                # Some news was lost: the table has it.
                continue


def _sse(kind: str, seq: int, payload: bytes) -> bytes:
    return b"event: " + kind.encode() + b"\nid: " + str(seq).encode() + b"\ndata: " + payload + b"\n\n"


@describe("The tools there are.", data=ToolList)
async def list_tools(service: ApiService, request: Request) -> Response:
    service.caller(request)
    await service.broker.refresh_catalog()
    return answer({"tools": [_tool_view(spec) for spec in service.broker.catalog.specs()]})


@describe("One tool with its schemas.", data=ToolWithSchemas)
async def show_tool(service: ApiService, request: Request) -> Response:
    service.caller(request)
    await service.broker.refresh_catalog()
    spec = service.broker.catalog.entry(request.path_params["name"]).spec
    return answer({**_tool_view(spec), "input_schema": spec.input_schema, "output_schema": spec.output_schema})


def _tool_view(spec: ToolSpec) -> ToolData:
    capabilities = sorted(capability.value for capability in spec.metadata.capabilities)
    sensitive = spec.metadata.sensitive
    return to_view(ToolData, spec, name=str(spec.name), capabilities=capabilities, sensitive=sensitive)


@describe("Opens a run.", body=RunBody, data=RunData, status=201)
async def create_run(service: ApiService, request: Request) -> Response:
    """Open a run with the requested caps. Only an operator may exceed the configured ones."""
    caller = service.caller(request)
    caller.token.require(TokenScope.CALL)
    if caller.token.run_id:
        raise RunFixed(f"this token works in run {caller.token.run_id}")
    body = await read_into(request, RunBody)
    principal = str(caller.on_behalf_of(body.principal))
    ceiling = msgspec.to_builtins(service.broker.config.run_budget)
    caps = {kind: value if caller.operates else min(value, ceiling[kind]) for kind, value in body.budget.items()}
    budget = RunBudget(**{**ceiling, **caps})
    run_id = RunId.new()
    most = None if caller.operates else service.broker.config.runs_per_hour
    await service.store.transact(lambda tx: open_run(tx, run_id, principal, caller.actor, budget, most=most))
    return answer(run_view(await asyncio.to_thread(read_run, service.store, run_id, principal)), 201)


@describe("The run as it stands.", data=RunData)
async def show_run(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    run_id = RunId.parse(request.path_params["run_id"])
    return answer(run_view(await asyncio.to_thread(read_run, service.store, run_id, caller.sees())))


def run_view(run: Run) -> RunData:
    return to_view(RunData, run, budget={kind: to_view(AccountData, each) for kind, each in run.budget.items()})
