"""Reserves what a call may use and starts it: budget, approval, call and journal change in one transaction."""

from collections.abc import Iterator, Mapping

import msgspec

from palyra.pipeline.authorize import Asked
from palyra.pipeline.domain.approval import Approval, ApprovalScope
from palyra.pipeline.domain.budget import BudgetKind, amounts_by_name
from palyra.pipeline.domain.call import CallRecord, CallState, call_entry, decision_view
from palyra.pipeline.store import approval_tables, run_tables
from palyra.pipeline.store.call_tables import find_in, put_call
from palyra.policy.request import policy_request_to_json
from palyra.store.event import NewEvent
from palyra.store.port import Transaction


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """``approved``: a person said yes to exactly these arguments, having been shown what they touch. A yes to a pattern
    of calls, or to a while, is a yes to the tool and to no secret or host in particular."""

    record: CallRecord
    granted: dict[BudgetKind, int]
    approved: bool = False


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    record: CallRecord
    approval: Approval


def note_asked(tx: Transaction, asked: Asked) -> None:
    """The first two entries of every call that was understood: requested, decided. A call that comes back after its
    approval has them already; one that other policies judged is decided again."""
    record = asked.record
    known = find_in(tx, record.call_id)
    if known is not None:
        before = known.decision
        if before is None or before["bundle_digest"] != asked.decision["bundle_digest"]:
            tx.append_all(entries_decided(asked))
        return
    run_tables.ensure_run(tx, record.run_id, record.principal, record.actor, asked.run_budget)
    tx.append_all(entries_asked(asked))


def start(tx: Transaction, asked: Asked, *, known: bool = False) -> Started:
    """Policy allowed it: reserve and start. Entries come last, so that they are written together; of a call that is
    ``known`` the first ones are there."""
    record = asked.record
    if known:
        note_asked(tx, asked)
    accounts = run_tables.ensure_run(tx, record.run_id, record.principal, record.actor, asked.run_budget)
    granted = run_tables.reserve_budget(tx, record.run_id, asked.reserve, accounts)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms)
    put_call(tx, started, instance=asked.instance, reserved=granted)
    tx.append_all([entry_started(asked, started, granted)] if known else entries_of_start(asked, started, granted))
    return Started(record=started, granted=granted)


def start_approved_or_wait(tx: Transaction, asked: Asked, request: Approval) -> Started | Waiting:
    """Policy wants a person's yes: start under one that covers this call, or leave the request for one."""
    note_asked(tx, asked)
    cover = approval_tables.find_cover(tx, request.binding, asked.arguments, asked.context.session)
    if cover is not None:
        return _start_approved(tx, asked, cover)
    record = asked.record
    waiting = approval_tables.ask(tx, request, actor=record.actor, run=record.run_id, call=record.call_id)
    record = msgspec.structs.replace(record, state=CallState.NEEDS_APPROVAL, approval_id=waiting.id)
    put_call(tx, record, instance="", reserved={})
    return Waiting(record=record, approval=waiting)


def _start_approved(tx: Transaction, asked: Asked, approval: Approval) -> Started:
    record = asked.record
    granted = run_tables.reserve_budget(tx, record.run_id, asked.reserve)
    approval_tables.consume(tx, approval, actor=record.actor, run=record.run_id, call=record.call_id)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms, approval_id=approval.id)
    put_call(tx, started, instance=asked.instance, reserved=granted)
    tx.append(entry_started(asked, started, granted))
    exact = approval.scope in (ApprovalScope.ONCE, ApprovalScope.SESSION)
    return Started(record=started, granted=granted, approved=exact)


def entries_asked(asked: Asked) -> Iterator[NewEvent]:
    """The first entries of every call that was understood: requested, and each question decided."""
    record = asked.record
    yield call_entry(
        record,
        "call.requested",
        tool=record.tool,
        argument_digest=asked.arguments.digest,
        arguments=asked.arguments.value,
        channel=record.channel,
        session=record.session,
        device=asked.context.device,
    )
    yield from entries_decided(asked)


def entries_decided(asked: Asked) -> Iterator[NewEvent]:
    record = asked.record
    for decision, question in asked.decided:
        request = policy_request_to_json(question)
        yield call_entry(record, "call.decided", **decision_view(decision), tool=record.tool, policy_request=request)


def entries_of_start(asked: Asked, started: CallRecord, granted: Mapping[BudgetKind, int]) -> list[NewEvent]:
    """Up to the call's start."""
    return [*entries_asked(asked), entry_started(asked, started, granted)]


def entry_started(asked: Asked, started: CallRecord, granted: Mapping[BudgetKind, int]) -> NewEvent:
    return call_entry(
        started,
        "call.started",
        tool=started.tool,
        executor=asked.executor,
        approval_id=started.approval_id,
        reserved=amounts_by_name(granted),
    )
