"""The call ledger in SQL: what starts, ends or is cut off moves the call, its budget, its approval and the journal
in one transaction."""

from collections.abc import Collection
from typing import Any

import msgspec

from palyra.journal.event import NewEvent
from palyra.tools import sqlite_approvals, sqlite_runs
from palyra.tools.approval import Approval, ApprovalBinding, ApprovalScope
from palyra.tools.arguments import Arguments
from palyra.tools.budget import BudgetKind, RunBudget
from palyra.tools.call import CallState, ToolRequestContext, UnknownCall
from palyra.tools.ports import Store, Transaction
from palyra.tools.record import CallRecord

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS calls (
        call_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, principal TEXT NOT NULL, state TEXT NOT NULL,
        instance TEXT NOT NULL, reserved TEXT NOT NULL, record BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS calls_running ON calls (instance) WHERE state = 'running'",
    "CREATE INDEX IF NOT EXISTS calls_of_run ON calls (run_id, call_id)",
)

_decode = msgspec.json.Decoder(CallRecord)
_decode_reserved = msgspec.json.Decoder(dict[BudgetKind, int])


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A call that passed intake and has been decided on: what the journal says of it before anything happens."""

    record: CallRecord
    context: ToolRequestContext
    arguments: Arguments
    decision: dict[str, Any]
    # Each question to policy by itself, as (decision, request); ``decision`` is what they come to together.
    decided: tuple[tuple[dict[str, Any], dict[str, Any]], ...]
    reserve: dict[BudgetKind, int]
    run_budget: RunBudget
    instance: str
    executor: str


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
    approval has them already."""
    record = asked.record
    if tx.execute("SELECT 1 FROM calls WHERE call_id = ?", (record.call_id,)):
        return
    sqlite_runs.ensure_run(tx, record.run_id, record.principal, record.actor, asked.run_budget)
    _append(
        tx,
        record,
        "call.requested",
        tool=record.tool,
        argument_digest=record.argument_digest,
        arguments=asked.arguments.value,
        channel=record.channel,
        session=record.session,
        device=asked.context.device,
    )
    for decision, question in asked.decided:
        _append(tx, record, "call.decided", **decision, tool=record.tool, policy_request=question)


def note_refused(tx: Transaction, record: CallRecord) -> CallRecord:
    """A call that never got as far as a decision, or found no budget: kept with its error."""
    _append(tx, record, "call.refused", tool=record.tool, argument_digest=record.argument_digest, error=record.error)
    _put(tx, record, instance="", reserved={})
    return record


def note_denied(tx: Transaction, asked: Asked, denied: CallRecord) -> CallRecord:
    note_asked(tx, asked)
    _put(tx, denied, instance="", reserved={})
    return denied


def start(tx: Transaction, asked: Asked) -> Started:
    """Policy allowed it: reserve and start."""
    note_asked(tx, asked)
    return _start(tx, asked, approval=None)


def start_approved_or_wait(
    tx: Transaction, asked: Asked, binding: ApprovalBinding, request: Approval
) -> Started | Waiting:
    """Policy wants a person's yes: start under one that covers this call, or leave the request for one."""
    note_asked(tx, asked)
    cover = sqlite_approvals.find_cover(tx, binding, asked.arguments, asked.context.session)
    if cover is not None:
        return _start(tx, asked, approval=cover)
    record = asked.record
    waiting = sqlite_approvals.ask(tx, request, actor=record.actor, run=record.run_id, call=record.call_id)
    record = msgspec.structs.replace(record, state=CallState.NEEDS_APPROVAL, approval_id=waiting.id)
    _put(tx, record, instance="", reserved={})
    return Waiting(record=record, approval=waiting)


def _start(tx: Transaction, asked: Asked, approval: Approval | None) -> Started:
    record = asked.record
    granted = sqlite_runs.reserve_budget(tx, record.run_id, asked.reserve)
    if approval is not None:
        sqlite_approvals.consume(tx, approval, actor=record.actor, run=record.run_id, call=record.call_id)
    record = msgspec.structs.replace(
        record,
        state=CallState.RUNNING,
        started_ms=tx.now_ms,
        approval_id=None if approval is None else approval.id,
    )
    _append(
        tx,
        record,
        "call.started",
        tool=record.tool,
        executor=asked.executor,
        approval_id=record.approval_id,
        reserved={kind.value: amount for kind, amount in granted.items()},
    )
    _put(tx, record, instance=asked.instance, reserved=granted)
    exact = approval is not None and approval.scope in (ApprovalScope.ONCE, ApprovalScope.SESSION)
    return Started(record=record, granted=granted, approved=exact)


def finish(
    tx: Transaction, record: CallRecord, used: dict[BudgetKind, int], output_digest: str, execution_sha256: str
) -> CallRecord:
    """Books the end of a call that is still this instance's to end."""
    rows = tx.execute("SELECT reserved FROM calls WHERE call_id = ? AND state = 'running'", (record.call_id,))
    if not rows:
        raise UnknownCall(f"call {record.call_id} is not running", call_id=record.call_id)
    sqlite_runs.settle_budget(tx, record.run_id, _decode_reserved.decode(rows[0][0]), used)
    _append(
        tx,
        record,
        "call.finished",
        tool=record.tool,
        state=record.state.value,
        output_digest=output_digest,
        execution_sha256=execution_sha256,
        receipt=record.receipt,
        error=record.error,
        used={kind.value: amount for kind, amount in used.items()},
    )
    _put(tx, record, instance="", reserved={})
    return record


def release_abandoned(tx: Transaction, live_instances: Collection[str], *, actor: str) -> list[CallRecord]:
    """Ends what dead processes left running, and gives back what they had reserved."""
    rows = tx.execute("SELECT call_id, instance, reserved, record FROM calls WHERE state = 'running'")
    released = []
    for _, instance, reserved, raw in rows:
        if instance in live_instances:
            continue
        amounts = _decode_reserved.decode(reserved)
        record = msgspec.structs.replace(
            _decode.decode(raw),
            state=CallState.ABANDONED,
            ended_ms=tx.now_ms,
            error={
                "code": "call.abandoned",
                "message": "the process that ran this call ended before the call did",
                "hint": "its effects may be partial; its budget was given back",
            },
        )
        sqlite_runs.settle_budget(tx, record.run_id, amounts, {})
        _append(
            tx,
            record,
            "call.abandoned",
            by=actor,
            tool=record.tool,
            instance=instance,
            released={kind.value: amount for kind, amount in amounts.items()},
        )
        _put(tx, record, instance="", reserved={})
        released.append(record)
    return released


def read_call(store: Store, call_id: str, principal: str | None) -> CallRecord:
    """Somebody else's call looks like a missing one."""
    rows = store.read("SELECT record FROM calls WHERE call_id = ?", (call_id,))
    record = _decode.decode(rows[0][0]) if rows else None
    if record is None or (principal is not None and record.principal != principal):
        raise UnknownCall(f"there is no call {call_id} for this principal")
    return record


def _put(tx: Transaction, record: CallRecord, *, instance: str, reserved: dict[BudgetKind, int]) -> None:
    tx.execute(
        "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (call_id) DO UPDATE SET"
        " state = excluded.state, instance = excluded.instance, reserved = excluded.reserved, record = excluded.record",
        (
            record.call_id,
            record.run_id,
            record.principal,
            record.state.value,
            instance,
            msgspec.json.encode(reserved).decode(),
            msgspec.json.encode(record),
        ),
    )


def _append(tx: Transaction, record: CallRecord, kind: str, *, by: str | None = None, **payload: Any) -> None:
    tx.append(
        NewEvent(
            kind=kind,
            actor=by or record.actor,
            principal=record.principal,
            run=record.run_id,
            call=record.call_id,
            payload=payload,
        )
    )
