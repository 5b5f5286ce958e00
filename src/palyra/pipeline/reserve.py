"""Reserves what a call may use and starts it: budget, approval, call and journal change in one transaction."""

from collections.abc import Iterator, Mapping

import msgspec

from palyra.pipeline.authorize import AuthorizedCall
from palyra.pipeline.domain.approval import Approval, ApprovalScope
from palyra.pipeline.domain.budget import BudgetKind, name_amounts
from palyra.pipeline.domain.call import CallRecord, CallState, build_call_event, render_decision
from palyra.pipeline.store import approval_tables, run_tables
from palyra.pipeline.store.call_tables import find_call, put_call
from palyra.policy.request import policy_request_to_json
from palyra.store.event import NewEvent
from palyra.store.port import Transaction


class StartedCall(msgspec.Struct, frozen=True, kw_only=True):
    """``approved``: a person said yes to exactly these arguments, having been shown what they touch. A yes to a pattern
    of calls, or to a while, is a yes to the tool and to no secret or host in particular."""

    record: CallRecord
    granted: dict[BudgetKind, int]
    approved: bool = False


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    record: CallRecord
    approval: Approval


def record_request(tx: Transaction, asked: AuthorizedCall) -> None:
    """The first two entries of every call that was understood: requested, decided. A call that comes back after its
    approval has them already; one that other policies judged is decided again."""
    record = asked.record
    known = find_call(tx, record.call_id)
    if known is not None:
        before = known.decision
        if before is None or before["bundle_digest"] != asked.decision["bundle_digest"]:
            tx.append_all(build_decision_events(asked))
        return
    run_tables.ensure_run(tx, record.run_id, record.principal, record.actor, asked.run_budget)
    tx.append_all(build_request_events(asked))


def start_call(tx: Transaction, asked: AuthorizedCall, *, known: bool = False) -> StartedCall:
    """Policy allowed it: reserve and start. Entries come last, so that they are written together; of a call that is
    ``known`` the first ones are there."""
    record = asked.record
    if known:
        record_request(tx, asked)
    accounts = run_tables.ensure_run(tx, record.run_id, record.principal, record.actor, asked.run_budget)
    granted = run_tables.reserve_budget(tx, record.run_id, asked.reserve, accounts)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms)
    put_call(tx, started, instance=asked.instance, reserved=granted)
    tx.append_all(
        [build_start_event(asked, started, granted)] if known else build_events_up_to_start(asked, started, granted)
    )
    return StartedCall(record=started, granted=granted)


def start_approved_or_wait(tx: Transaction, asked: AuthorizedCall, request: Approval) -> StartedCall | PendingCall:
    """Policy wants a person's yes: start under one that covers this call, or leave the request for one."""
    record_request(tx, asked)
    cover = approval_tables.find_cover(tx, request.binding, asked.arguments, asked.context.session)
    if cover is not None:
        return _start_approved(tx, asked, cover)
    record = asked.record
    waiting = approval_tables.request_approval(tx, request, actor=record.actor, run=record.run_id, call=record.call_id)
    record = msgspec.structs.replace(record, state=CallState.NEEDS_APPROVAL, approval_id=waiting.id)
    put_call(tx, record, instance="", reserved={})
    return PendingCall(record=record, approval=waiting)


def _start_approved(tx: Transaction, asked: AuthorizedCall, approval: Approval) -> StartedCall:
    record = asked.record
    granted = run_tables.reserve_budget(tx, record.run_id, asked.reserve)
    approval_tables.consume(tx, approval, actor=record.actor, run=record.run_id, call=record.call_id)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms, approval_id=approval.id)
    put_call(tx, started, instance=asked.instance, reserved=granted)
    tx.append(build_start_event(asked, started, granted))
    exact = approval.scope in (ApprovalScope.ONCE, ApprovalScope.SESSION)
    return StartedCall(record=started, granted=granted, approved=exact)


def build_request_events(asked: AuthorizedCall) -> Iterator[NewEvent]:
    """The first entries of every call that was understood: requested, and each question decided."""
    record = asked.record
    yield build_call_event(
        record,
        "call.requested",
        tool=record.tool,
        argument_digest=asked.arguments.digest,
        arguments=asked.arguments.value,
        channel=record.channel,
        session=record.session,
        device=asked.context.device,
    )
    yield from build_decision_events(asked)


def build_decision_events(asked: AuthorizedCall) -> Iterator[NewEvent]:
    record = asked.record
    for decision, question in asked.decided:
        request = policy_request_to_json(question)
        yield build_call_event(
            record, "call.decided", **render_decision(decision), tool=record.tool, policy_request=request
        )


def build_events_up_to_start(
    asked: AuthorizedCall, started: CallRecord, granted: Mapping[BudgetKind, int]
) -> list[NewEvent]:
    """Up to the call's start."""
    return [*build_request_events(asked), build_start_event(asked, started, granted)]


def build_start_event(asked: AuthorizedCall, started: CallRecord, granted: Mapping[BudgetKind, int]) -> NewEvent:
    return build_call_event(
        started,
        "call.started",
        tool=started.tool,
        executor=asked.executor,
        approval_id=started.approval_id,
        reserved=name_amounts(granted),
    )
