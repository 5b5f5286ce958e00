"""Approvals: waiting requests, with all that a person needs to decide, and decided ones."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from palyra.ids import ApprovalId
from palyra.journal.search import RARE
from palyra.pipeline.domain.approval import Approval, ApprovalState
from palyra.pipeline.domain.call import CallRecord
from palyra.pipeline.store.approval_tables import list_approvals, list_recent_approvals, read_approval
from palyra.pipeline.store.call_tables import find_calls
from palyra.server.console.argument_diff import Nearest, find_nearest
from palyra.server.console.errors import BadQuery
from palyra.server.console.limits import PAGE_ROWS
from palyra.server.console.page import Listing, Page, Section, Visit, Write
from palyra.server.console.services import Console, find_policy_text
from palyra.server.http.operator import DecisionBody, approval_view, decide_approval
from palyra.server.http.views import ApprovalData
from palyra.store.port import Store

# The newest requests in the journal that are searched for a call. A waiting one is young, so it is among them.
NEWEST = 2_000


class RequestOrigin(msgspec.Struct, frozen=True, kw_only=True):
    run: str = ""
    call: str = ""
    actor: str = ""


class _Payload(msgspec.Struct, frozen=True):
    approval_id: str = ""


def find_origins(store: Store, approval_ids: Sequence[str]) -> dict[str, RequestOrigin]:
    wanted = set(approval_ids)
    found: dict[str, RequestOrigin] = {}
    if not wanted:
        return found
    rows = store.read(
        f"SELECT run, call, actor, payload FROM events WHERE kind = 'approval.requested' AND {RARE}"  # noqa: S608
        " ORDER BY seq DESC LIMIT ?",
        (NEWEST,),
    )
    for run, call, actor, payload in rows:
        approval_id = msgspec.json.decode(payload, type=_Payload).approval_id
        if approval_id in wanted:
            found[approval_id] = RequestOrigin(run=run, call=call, actor=actor)
            if len(found) == len(wanted):
                break
    return found


# Approved calls that are compared with the waiting one.
COMPARED = 50


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A request with all that a person needs to decide on it."""

    approval: Approval
    origin: RequestOrigin
    why: list[dict[str, str]]
    nearest: Nearest | None
    yours: bool
    outdated: str

    @property
    def pattern(self) -> dict[str, Any]:
        """The pattern that the form starts with: exactly this call."""
        return {key: value for key, value in self.approval.arguments.items() if isinstance(value, str | int | bool)}


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    approval: Approval
    call: CallRecord | None


async def show_approvals(console: Console, visit: Visit) -> dict[str, Any]:
    state, before = _state(visit), visit.query("before")
    cursor = ApprovalId.parse(before) if before else None
    waiting, decided = await asyncio.gather(
        asyncio.to_thread(_waiting, console, visit), asyncio.to_thread(_decided, console, state, cursor)
    )
    return {
        "waiting": waiting,
        "decided": decided[:PAGE_ROWS],
        "next": decided[PAGE_ROWS - 1].approval.id if len(decided) > PAGE_ROWS else None,
        "state": "" if state is None else state.value,
        "states": [each.value for each in ApprovalState if each is not ApprovalState.PENDING],
        "max_ttl_seconds": console.service.broker.config.max_approval_ttl_ms // 1000,
    }


async def show_approval(console: Console, visit: Visit) -> dict[str, Any]:
    approval = await asyncio.to_thread(read_approval, console.store, ApprovalId.parse(visit.path("approval_id")))
    (one,) = await asyncio.to_thread(_with_facts, console, visit, [approval])
    (call,) = await asyncio.to_thread(_calls_of, console, [approval])
    return {
        "title": f"{approval.binding.tool} for {approval.binding.principal}",
        "one": one,
        "call": call,
        "max_ttl_seconds": console.service.broker.config.max_approval_ttl_ms // 1000,
    }


async def list_as_json(console: Console, visit: Visit) -> dict[str, Any]:
    raw = visit.query("state")
    if raw and raw not in set(ApprovalState):
        raise BadQuery(f"there is no state {raw!r}")
    before = visit.query("before")
    found = await asyncio.to_thread(
        list_approvals,
        console.store,
        ApprovalState(raw) if raw else None,
        before=ApprovalId.parse(before) if before else None,
        limit=PAGE_ROWS,
    )
    return {
        "approvals": [approval_view(console.service, each) for each in found],
        "next": found[-1].id if len(found) == PAGE_ROWS else None,
    }


async def console_approval_decision_handler(console: Console, visit: Visit, body: DecisionBody) -> ApprovalData:
    return await decide_approval(console.service, visit.caller, ApprovalId.parse(visit.path("approval_id")), body)


def _state(visit: Visit) -> ApprovalState | None:
    raw = visit.query("state")
    if raw and raw not in set(ApprovalState) - {ApprovalState.PENDING}:
        raise BadQuery(f"there is no state {raw!r}")
    return ApprovalState(raw) if raw else None


def _waiting(console: Console, visit: Visit) -> list[Waiting]:
    found = list_approvals(console.store, ApprovalState.PENDING, limit=PAGE_ROWS)
    # The longest waiting request comes first.
    return _with_facts(console, visit, found[::-1])


def _with_facts(console: Console, visit: Visit, approvals: list[Approval]) -> list[Waiting]:
    origins = find_origins(console.store, [each.id for each in approvals])
    return [
        Waiting(
            approval=each,
            origin=origins.get(each.id, RequestOrigin()),
            why=[found for name in each.policies if (found := find_policy_text(console.policy, name)) is not None],
            nearest=find_nearest(
                each, list_recent_approvals(console.store, each.binding.principal, each.binding.tool, limit=COMPARED)
            ),
            yours=each.binding.principal == str(visit.caller.principal),
            outdated=console.service.outdated(each),
        )
        for each in approvals
    ]


def _decided(console: Console, state: ApprovalState | None, before: ApprovalId | None) -> list[Decided]:
    """Return one more than fits a page if there is another page."""
    found: list[Approval] = []
    while len(found) <= PAGE_ROWS:
        page = list_approvals(console.store, state, before=before, limit=PAGE_ROWS + 1)
        found += [each for each in page if each.state is not ApprovalState.PENDING]
        if len(page) <= PAGE_ROWS:
            break
        before = ApprovalId(page[-1].id)
    found = found[: PAGE_ROWS + 1]
    return [Decided(approval=each, call=call) for each, call in zip(found, _calls_of(console, found), strict=True)]


def _calls_of(console: Console, approvals: list[Approval]) -> list[CallRecord | None]:
    calls = find_calls(console.store, [each.consumed_by for each in approvals if each.consumed_by])
    return [calls.get(each.consumed_by or "") for each in approvals]


SECTION = Section(
    pages=(
        Page(
            path="/approvals",
            template="approvals.html",
            title="Approvals",
            show=show_approvals,
            live=("approval.", "call.", "policy."),
        ),
        Page(
            path="/approvals/{approval_id}",
            template="approval.html",
            title="Approval",
            above="/approvals",
            show=show_approval,
            live=("approval.", "call.", "policy."),
        ),
    ),
    listings=(Listing(path="/console/v1/approvals", show=list_as_json),),
    writes=(
        Write(
            path="/console/v1/approvals/{approval_id}/decision",
            name="approval.decide",
            act=console_approval_decision_handler,
            body=DecisionBody,
        ),
    ),
)
