"""Approvals: waiting requests, with all that a person needs to decide, and decided ones."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from palyra.clock import MS_PER_SECOND, rfc3339
from palyra.errors import InvalidInput
from palyra.ids import ApprovalId
from palyra.journal.search import RARE
from palyra.pipeline.domain.approval import (
    Approval,
    ApprovalScope,
    ApprovalState,
    ScopeIncomplete,
)
from palyra.pipeline.domain.argument_pattern import ArgumentPattern, exact_pattern
from palyra.pipeline.domain.call import CallRecord
from palyra.pipeline.domain.call_text import describe_approval
from palyra.pipeline.store.approval_tables import (
    count_pending_by_principal,
    list_approvals,
    list_recent_approvals,
    read_approval,
)
from palyra.pipeline.store.call_tables import find_calls
from palyra.server.console.argument_diff import Nearest, find_nearest
from palyra.server.console.errors import BadQuery
from palyra.server.console.limits import MAX_SHOWN_CHARS, PAGE_ROWS
from palyra.server.console.page import Listing, Page, Section, Visit, Write
from palyra.server.console.rendering import duration
from palyra.server.console.services import Console, find_policy_text
from palyra.server.http.operator import DecisionBody, approval_view, decide_approval
from palyra.server.http.route_schema import FreeObject
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


# Requests of each principal on a page where several wait.
SHARE_ROWS = 3
# Differences on a card of the list. A request with more is decided on its own page, like one with more text.
MAX_CARD_LINES = 40
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

    # The call as every surface shows it, by label. The card has places of its own for some labels.
    fields: dict[str, tuple[str, ...]]
    # Whether all of the request is on the page. Only then can a person approve it.
    whole: bool

    @property
    def pattern(self) -> dict[str, Any]:
        """The pattern that the form starts with: exactly this call."""
        return exact_pattern(self.approval.arguments)


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    approval: Approval
    call: CallRecord | None


class Waiters(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one principal. ``count`` has those that are not on this page too."""

    principal: str
    count: int
    shown: list[Waiting]
    next: str | None

    @property
    def more(self) -> int:
        return self.count - len(self.shown)


async def show_approvals(console: Console, visit: Visit) -> dict[str, Any]:
    state, before = _state(visit), visit.query("before")
    cursor = ApprovalId.parse(before) if before else None
    waiting, decided = await asyncio.gather(
        asyncio.to_thread(_waiting, console, visit), asyncio.to_thread(_decided, console, state, cursor)
    )
    return {
        "waiting": waiting,
        "total": sum(each.count for each in waiting),
        "who": visit.query("who"),
        "decided": decided[:PAGE_ROWS],
        "next": decided[PAGE_ROWS - 1].approval.id if len(decided) > PAGE_ROWS else None,
        "state": "" if state is None else state.value,
        "states": [each.value for each in ApprovalState if each is not ApprovalState.PENDING],
        "max_ttl_seconds": console.service.broker.config.max_approval_ttl_ms // 1000,
    }


async def show_approval(console: Console, visit: Visit) -> dict[str, Any]:
    approval = await asyncio.to_thread(read_approval, console.store, ApprovalId.parse(visit.path("approval_id")))
    (one,) = await asyncio.to_thread(_with_facts, console, visit, [approval], alone=True)
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
    before, after = visit.query("before"), visit.query("after")
    found = await asyncio.to_thread(
        list_approvals,
        console.store,
        ApprovalState(raw) if raw else None,
        before=ApprovalId.parse(before) if before else None,
        after=ApprovalId.parse(after) if after else None,
        oldest_first=bool(after) or (raw == ApprovalState.PENDING and not before),
        limit=PAGE_ROWS,
    )
    return {
        "approvals": [approval_view(console.service, each) for each in found],
        "next": found[-1].id if len(found) == PAGE_ROWS else None,
    }


class ConsoleDecision(DecisionBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decision with what the person was shown: the digest of the arguments, and the words of a wider yes."""

    meaning: str = ""


class MeaningBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scope: Literal["once", "session", "pattern", "timeboxed"]
    pattern: FreeObject | None = None
    ttl_seconds: Annotated[int, msgspec.Meta(ge=1)] | None = None


class NotShown(InvalidInput):
    code = "approval.not_shown"
    hint = "open the request on the console, read it, and decide there"
    http_status = 409


async def console_approval_decision_handler(console: Console, visit: Visit, body: ConsoleDecision) -> ApprovalData:
    approval_id = ApprovalId.parse(visit.path("approval_id"))
    if body.decision == "approve":
        if body.argument_digest is None:
            raise NotShown("an approval on the console names the digest of the arguments that the page showed")
        approval = await asyncio.to_thread(read_approval, console.store, approval_id)
        scope = MeaningBody(scope=body.scope, pattern=body.pattern, ttl_seconds=body.ttl_seconds)
        if body.scope != "once" and body.meaning != _describe_yes(approval, scope):
            raise NotShown("the page did not say what this approval covers, or said something else")
    return await decide_approval(console.service, visit.caller, approval_id, body)


async def say_what_a_yes_covers(console: Console, visit: Visit, body: MeaningBody) -> dict[str, str]:
    approval = await asyncio.to_thread(read_approval, console.store, ApprovalId.parse(visit.path("approval_id")))
    return {"meaning": _describe_yes(approval, body)}


def _describe_yes(approval: Approval, body: MeaningBody) -> str:
    if body.scope == "pattern" and not ArgumentPattern.parse(body.pattern).matches(approval.arguments):
        raise ScopeIncomplete("the pattern does not even cover the call that waits")
    until = f"until {rfc3339(approval.expires_ms)}"
    until = until if body.ttl_seconds is None else f"for {duration(body.ttl_seconds * MS_PER_SECOND)}"
    return approval.describe_yes(ApprovalScope(body.scope), body.pattern, until)


def _state(visit: Visit) -> ApprovalState | None:
    raw = visit.query("state")
    if raw and raw not in set(ApprovalState) - {ApprovalState.PENDING}:
        raise BadQuery(f"there is no state {raw!r}")
    return ApprovalState(raw) if raw else None


def _waiting(console: Console, visit: Visit) -> list[Waiters]:
    """Return what waits by principal. The longest waiting comes first, and no principal's requests hide another's."""
    who, after = visit.query("who"), visit.query("after")
    counts = count_pending_by_principal(console.store)
    alone = who or len(counts) == 1
    found = []
    for at, (principal, count) in enumerate(counts.items()):
        share = PAGE_ROWS if alone else SHARE_ROWS if at < PAGE_ROWS // SHARE_ROWS else 0
        rows = list_approvals(
            console.store,
            ApprovalState.PENDING,
            principal=principal,
            after=ApprovalId.parse(after) if after and who else None,
            oldest_first=True,
            limit=share if who in ("", principal) else 0,
        )
        shown = _with_facts(console, visit, rows)
        following = rows[-1].id if who and len(rows) == PAGE_ROWS else None
        found.append(Waiters(principal=principal, count=count, shown=shown, next=following))
    return found


def _with_facts(console: Console, visit: Visit, approvals: list[Approval], *, alone: bool = False) -> list[Waiting]:
    origins = find_origins(console.store, [each.id for each in approvals])
    return [_gather(console, visit, each, origins.get(each.id, RequestOrigin()), alone) for each in approvals]


def _gather(console: Console, visit: Visit, approval: Approval, origin: RequestOrigin, alone: bool) -> Waiting:
    fields = {each.label: each.lines for each in describe_approval(approval)}
    left = MAX_SHOWN_CHARS - sum(len(line) for lines in fields.values() for line in lines)
    nearest = None
    if alone or left >= 0:
        binding = approval.binding
        recent = list_recent_approvals(console.store, binding.principal, binding.tool, limit=COMPARED)
        nearest = find_nearest(approval, recent)
    lines = () if nearest is None else nearest.lines
    left -= sum(len(each.before) + len(each.after) for each in lines)
    return Waiting(
        approval=approval,
        origin=origin,
        why=[found for name in approval.policies if (found := find_policy_text(console.policy, name)) is not None],
        nearest=nearest,
        yours=approval.binding.principal == str(visit.caller.principal),
        outdated=console.service.outdated(approval),
        fields=fields,
        whole=alone or (left >= 0 and len(lines) <= MAX_CARD_LINES),
    )


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
            body=ConsoleDecision,
        ),
        Write(
            path="/console/v1/approvals/{approval_id}/meaning",
            name="approval.describe",
            act=say_what_a_yes_covers,
            body=MeaningBody,
            recorded=False,
        ),
    ),
)
