"""Runs and calls: search, timelines, and each call with its decision, receipt, output and attestation."""

import asyncio
import base64
import binascii
from typing import Any

import msgspec
from starlette.responses import Response

from palyra.ids import CallId, RunId
from palyra.pipeline.domain.approval import Approval, ApprovalState
from palyra.pipeline.domain.call import FINAL_STATES, CallRecord, CallState
from palyra.pipeline.store.approval_tables import find_approvals
from palyra.pipeline.store.argument_tables import has_arguments
from palyra.pipeline.store.call_tables import CallQuery, list_calls_of_run, list_runs, read_call, search_calls
from palyra.pipeline.store.run_tables import find_owners, read_run
from palyra.server.console.errors import BadQuery
from palyra.server.console.limits import PAGE_ROWS, SEARCH_CALLS
from palyra.server.console.page import Download, Listing, Page, Role, Section, Visit, Write
from palyra.server.console.services import Console, find_policy_text
from palyra.server.console.svg import Span

# Entries of one call that its page shows; a call has about five.
EVENTS_OF_CALL = 200
CALLS_OF_RUN = 200
# A filter in place of a state: all calls that did not end well.
BAD = "refused_or_failed"
# The share of a timeline for calls that have ended.
MOST_OF_THE_PICTURE = 0.75


class NoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body without fields."""


async def show_calls(console: Console, visit: Visit) -> dict[str, Any]:
    found = await _search(console, visit)
    approvals = await asyncio.to_thread(_approvals_of, console, found.calls)
    return {
        "calls": [(each, _decision_on(each, approvals)) for each in found.calls],
        "runs": await asyncio.to_thread(_runs_of, console, found.calls),
        "next": found.next,
        "states": [BAD, *(state.value for state in CallState)],
        "tools": [str(spec.name) for spec in console.service.broker.catalog.specs()],
        "looked_at": SEARCH_CALLS,
    }


async def list_as_json(console: Console, visit: Visit) -> dict[str, Any]:
    found = await _search(console, visit)
    return {"calls": [record.view() for record in found.calls], "next": found.next}


async def _search(console: Console, visit: Visit) -> Any:
    state, before = visit.query("state"), visit.query("before")
    if state and state != BAD and state not in set(CallState):
        raise BadQuery(f"there is no state {state!r}")
    query = CallQuery(
        state=CallState(state) if state and state != BAD else None,
        only_bad=state == BAD,
        tool=visit.query("tool"),
        principal=visit.query("principal"),
        text=visit.query("text"),
        before=str(CallId.parse(before)) if before else "",
    )
    return await asyncio.to_thread(search_calls, console.store, query, limit=PAGE_ROWS, look_at=SEARCH_CALLS)


async def show_call(console: Console, visit: Visit) -> dict[str, Any]:
    call_id = CallId.parse(visit.path("call_id"))
    record = await asyncio.to_thread(read_call, console.store, call_id, None)
    events = await asyncio.to_thread(console.store.events_since, 0, limit=EVENTS_OF_CALL, call=str(call_id))
    requested: dict[str, Any] = next((event.payload_value() for event in events if event.kind == "call.requested"), {})
    return {
        "title": f"{record.tool} by {record.principal}",
        "record": record,
        "view": record.view(),
        "runs": await asyncio.to_thread(_runs_of, console, [record]),
        "events": events,
        "arguments": requested.get("arguments"),
        "kept": await asyncio.to_thread(has_arguments, console.store, str(call_id)),
        "statement": statement_of(record.attestation),
        "by_worker": statement_of(record.worker_attestation),
        "policies": [find_policy_text(console.policy, name) for name in (record.decision or {}).get("policies", ())],
        "ended": record.state in FINAL_STATES,
        "approved_by": _granted_approval(record, await asyncio.to_thread(_approvals_of, console, [record])),
    }


async def show_arguments(console: Console, visit: Visit) -> dict[str, Any]:
    """Show the whole arguments of a call, out of their sealed copy. This is recorded."""
    console.service.require_operator(visit.caller, "journal.read")
    record = await asyncio.to_thread(read_call, console.store, CallId.parse(visit.path("call_id")), None)
    kept = await console.service.arguments.open(record, actor=visit.caller.actor)
    return {"title": f"Arguments of {record.tool}", "record": record, "kept": kept}


async def hand_out_call(console: Console, visit: Visit) -> Response:
    """Hand out the call as ``palyra call --json`` prints it; ``palyra attest verify`` checks that."""
    call_id = CallId.parse(visit.path("call_id"))
    record = await asyncio.to_thread(read_call, console.store, call_id, None)
    document = {"ok": True, "data": record.view()}
    return Response(
        msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n",
        media_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="call-{call_id}.json"', "Cache-Control": "no-store"},
    )


async def show_runs(console: Console, visit: Visit) -> dict[str, Any]:
    before = visit.query("before")
    runs = await asyncio.to_thread(
        list_runs, console.store, before=RunId.parse(before) if before else None, limit=PAGE_ROWS
    )
    return {"runs": runs, "next": runs[-1].run_id if len(runs) == PAGE_ROWS else None}


async def show_run(console: Console, visit: Visit) -> dict[str, Any]:
    run_id = RunId.parse(visit.path("run_id"))
    after = visit.query("after")
    run = await asyncio.to_thread(read_run, console.store, run_id, None)
    calls = await asyncio.to_thread(
        list_calls_of_run,
        console.store,
        str(run_id),
        after=str(CallId.parse(after)) if after else "",
        limit=CALLS_OF_RUN,
    )
    approvals = await asyncio.to_thread(_approvals_of, console, calls)
    spans = spans_of(calls, console.service.clock.now_ms(), approvals)
    return {
        "title": f"Run of {run.principal}",
        "run": run,
        "calls": [(each, place, _decision_on(each, approvals)) for each, place in zip(calls, spans, strict=True)],
        "next": calls[-1].call_id if len(calls) == CALLS_OF_RUN else None,
    }


def _runs_of(console: Console, calls: list[CallRecord]) -> set[str]:
    """Return the runs of these calls. A call refused early may name a run that never began, or another principal's."""
    owners = find_owners(console.store, [each.run_id for each in calls])
    return {each.run_id for each in calls if owners.get(each.run_id) == each.principal}


def _approvals_of(console: Console, calls: list[CallRecord]) -> dict[str, Approval]:
    return find_approvals(console.store, [each.approval_id for each in calls if each.approval_id])


def _decision_on(record: CallRecord, approvals: dict[str, Approval]) -> Approval | None:
    """Return the decided approval of a call that ended as ``needs_approval``."""
    approval = approvals.get(record.approval_id or "")
    if approval is None or record.state is not CallState.NEEDS_APPROVAL or approval.state is ApprovalState.PENDING:
        return None
    return approval


def _granted_approval(record: CallRecord, approvals: dict[str, Approval]) -> Approval | None:
    return approvals.get(record.approval_id or "") if record.started_ms is not None else None


def spans_of(calls: list[CallRecord], now_ms: int, approvals: dict[str, Approval] | None = None) -> list[Span]:
    """Place each call between the first beginning and the last end. A call waits until its approval is decided."""
    if not calls:
        return []
    ends = []
    for record in calls:
        decision = _decision_on(record, approvals or {})
        decided_ms = None if decision is None else decision.decided_ms or decision.expires_ms
        ends.append(record.ended_ms or decided_ms or now_ms)
    first = min(record.created_ms for record in calls)
    whole = max(_last_ms(calls, ends, first) - first, 1)

    def part(begin_ms: int, end_ms: int) -> tuple[float, float]:
        return (min((begin_ms - first) / whole, 1.0), min((end_ms - first) / whole, 1.0))

    spans = []
    for record, end_ms in zip(calls, ends, strict=True):
        ran = None if record.started_ms is None else part(record.started_ms, end_ms)
        if ran is None and record.state in FINAL_STATES and record.state is not CallState.NEEDS_APPROVAL:
            # It was refused before it ran: draw a mark at that time.
            ran = part(end_ms, end_ms)
        spans.append(
            Span(
                waited=part(record.created_ms, record.started_ms or end_ms),
                ran=ran,
                good=record.state in (CallState.SUCCEEDED, CallState.RUNNING),
            )
        )
    return spans


def _last_ms(calls: list[CallRecord], ends: list[int], first: int) -> int:
    """Return the end of the timeline. A request that waits for hours is cut, so that earlier calls stay visible."""
    last_created = max(record.created_ms for record in calls)
    settled = [
        end_ms for record, end_ms in zip(calls, ends, strict=True) if record.state is not CallState.NEEDS_APPROVAL
    ]
    seen = max([last_created, *settled]) - first
    return min(max(ends), first + int(seen / MOST_OF_THE_PICTURE) + 1)


def statement_of(envelope: dict[str, Any] | None) -> Any:
    """Return the signed statement of an envelope, or None if it is missing or unreadable."""
    if envelope is None:
        return None
    try:
        return msgspec.json.decode(base64.b64decode(str(envelope.get("payload", "")), validate=True))
    except (ValueError, binascii.Error, msgspec.DecodeError):
        return None


async def cancel_call(console: Console, visit: Visit, _body: NoBody) -> dict[str, Any]:
    call_id = CallId.parse(visit.path("call_id"))
    await asyncio.to_thread(read_call, console.store, call_id, None)
    await console.service.broker.cancel(call_id)
    return (await asyncio.to_thread(read_call, console.store, call_id, None)).view()


SECTION = Section(
    pages=(
        Page(
            path="/calls", template="calls.html", title="Calls", menu="Runs and calls", show=show_calls, live=("call.",)
        ),
        Page(
            path="/calls/{call_id}",
            template="call.html",
            title="Call",
            above="/calls",
            show=show_call,
            live=("call.", "approval."),
        ),
        Page(
            path="/calls/{call_id}/arguments",
            template="arguments.html",
            title="Arguments",
            above="/calls",
            show=show_arguments,
            role=Role.OPERATOR,
        ),
        Page(path="/runs", template="runs.html", title="Runs", above="/calls", show=show_runs, live=("run.", "call.")),
        Page(
            path="/runs/{run_id}",
            template="run.html",
            title="Run",
            above="/calls",
            show=show_run,
            live=("call.", "run."),
        ),
    ),
    listings=(Listing(path="/console/v1/calls", show=list_as_json),),
    writes=(
        Write(
            path="/console/v1/calls/{call_id}/cancel",
            name="call.cancel",
            act=cancel_call,
            body=NoBody,
            role=Role.OPERATOR,
        ),
    ),
    downloads=(Download(path="/console/v1/calls/{call_id}/document", name="call.save", make=hand_out_call),),
)
