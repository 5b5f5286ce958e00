"""The call ledger in SQL: what starts, ends or is cut off moves the call, its budget, its approval and the journal
in one transaction."""

from collections.abc import Collection, Sequence

import msgspec

from palyra.tools import sqlite_approvals, sqlite_runs
from palyra.tools.approval import Approval, ApprovalBinding, ApprovalScope
from palyra.tools.asking import Asked
from palyra.tools.budget import BudgetKind
from palyra.tools.call import CallState, UnknownCall
from palyra.tools.call_entries import (
    call_entry,
    entries_asked,
    entries_decided,
    entries_of_start,
    entry_finished,
    entry_started,
)
from palyra.tools.ending import Booked
from palyra.tools.ports import Store, Transaction
from palyra.tools.record import CallRecord

# The condition of the index, word for word as a query has to repeat it.
UNUSUAL = "state NOT IN ('running', 'succeeded')"
SCHEMA = (
    # A record is most of a page: kept by row number it is written once, at the end, and does not move.
    """CREATE TABLE IF NOT EXISTS calls (
        call_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, principal TEXT NOT NULL, state TEXT NOT NULL,
        instance TEXT NOT NULL, reserved TEXT NOT NULL, record BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS calls_running ON calls (instance) WHERE state = 'running'",
    "CREATE INDEX IF NOT EXISTS calls_of_run ON calls (run_id, call_id)",
    # Most calls succeed, and pay nothing for it; those that a person looks for are found at once.
    f"CREATE INDEX IF NOT EXISTS calls_unusual ON calls (state, call_id) WHERE {UNUSUAL}",
)

_encode = msgspec.json.Encoder().encode
_NOTHING_RESERVED = "{}"
_decode = msgspec.json.Decoder(CallRecord)
_decode_reserved = msgspec.json.Decoder(dict[BudgetKind, int])


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
    known = tx.execute("SELECT record FROM calls WHERE call_id = ?", (record.call_id,))
    if known:
        before = _decode.decode(known[0][0]).decision
        if before is None or before["bundle_digest"] != asked.decision["bundle_digest"]:
            tx.append_all(entries_decided(asked))
        return
    sqlite_runs.ensure_run(tx, record.run_id, record.principal, record.actor, asked.run_budget)
    tx.append_all(entries_asked(asked))


def note_refused(tx: Transaction, record: CallRecord) -> CallRecord:
    """A call that never got as far as a decision, or found no budget: kept with its error. Nothing is written into a
    run that is somebody else's, whatever else was wrong with the call."""
    if sqlite_runs.is_anothers(tx, record.run_id, record.principal):
        record = msgspec.structs.replace(record, run_id="")
    entry = call_entry(
        record, "call.refused", tool=record.tool, argument_digest=record.argument_digest, error=record.error
    )
    tx.append(entry)
    _put(tx, record, instance="", reserved={})
    return record


def note_denied(tx: Transaction, asked: Asked, denied: CallRecord) -> CallRecord:
    note_asked(tx, asked)
    _put(tx, denied, instance="", reserved={})
    return denied


def start(tx: Transaction, asked: Asked, *, known: bool = False) -> Started:
    """Policy allowed it: reserve and start. Entries come last, so that they are written together; of a call that is
    ``known`` the first ones are there."""
    record = asked.record
    if known:
        note_asked(tx, asked)
    accounts = sqlite_runs.ensure_run(tx, record.run_id, record.principal, record.actor, asked.run_budget)
    granted = sqlite_runs.reserve_budget(tx, record.run_id, asked.reserve, accounts)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms)
    _put(tx, started, instance=asked.instance, reserved=granted)
    tx.append_all([entry_started(asked, started, granted)] if known else entries_of_start(asked, started, granted))
    return Started(record=started, granted=granted)


def start_approved_or_wait(
    tx: Transaction, asked: Asked, binding: ApprovalBinding, request: Approval
) -> Started | Waiting:
    """Policy wants a person's yes: start under one that covers this call, or leave the request for one."""
    note_asked(tx, asked)
    cover = sqlite_approvals.find_cover(tx, binding, asked.arguments, asked.context.session)
    if cover is not None:
        return _start_approved(tx, asked, cover)
    record = asked.record
    waiting = sqlite_approvals.ask(tx, request, actor=record.actor, run=record.run_id, call=record.call_id)
    record = msgspec.structs.replace(record, state=CallState.NEEDS_APPROVAL, approval_id=waiting.id)
    _put(tx, record, instance="", reserved={})
    return Waiting(record=record, approval=waiting)


def _start_approved(tx: Transaction, asked: Asked, approval: Approval) -> Started:
    record = asked.record
    granted = sqlite_runs.reserve_budget(tx, record.run_id, asked.reserve)
    sqlite_approvals.consume(tx, approval, actor=record.actor, run=record.run_id, call=record.call_id)
    started = msgspec.structs.replace(record, state=CallState.RUNNING, started_ms=tx.now_ms, approval_id=approval.id)
    _put(tx, started, instance=asked.instance, reserved=granted)
    tx.append(entry_started(asked, started, granted))
    exact = approval.scope in (ApprovalScope.ONCE, ApprovalScope.SESSION)
    return Started(record=started, granted=granted, approved=exact)


def finish(tx: Transaction, record: CallRecord, granted: dict[BudgetKind, int], booked: Booked) -> CallRecord:
    """Books the end of a call that is still this instance's to end; ``granted`` is what it had reserved."""
    tx.execute(
        "UPDATE calls SET state = ?, instance = '', reserved = '{}', record = ?"
        " WHERE call_id = ? AND state = 'running'",
        (record.state.value, _encode(record), record.call_id),
    )
    if tx.changed() != 1:
        raise UnknownCall(f"call {record.call_id} is not running", call_id=record.call_id)
    sqlite_runs.settle_budget(tx, record.run_id, granted, booked.used)
    tx.append(entry_finished(record, booked))
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
        entry = call_entry(
            record,
            "call.abandoned",
            by=actor,
            tool=record.tool,
            instance=instance,
            released={kind.value: amount for kind, amount in amounts.items()},
        )
        tx.append(entry)
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


def find_calls(store: Store, call_ids: Sequence[str]) -> dict[str, CallRecord]:
    """Those of them that there are, by their ids."""
    marks = ", ".join("?" * len(call_ids))
    rows = store.read(f"SELECT record FROM calls WHERE call_id IN ({marks})", call_ids)  # noqa: S608 - question marks
    return {record.call_id: record for record in (_decode.decode(row[0]) for row in rows)}


def calls_of_run(store: Store, run_id: str, principal: str | None, most: int) -> list[CallRecord]:
    """The newest first. Those of somebody else's run look like none."""
    rows = store.read(
        "SELECT record FROM calls WHERE run_id = ? AND principal = COALESCE(?, principal)"
        " ORDER BY call_id DESC LIMIT ?",
        (run_id, principal, most),
    )
    return [_decode.decode(row[0]) for row in rows]


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
            _encode(reserved).decode() if reserved else _NOTHING_RESERVED,
            _encode(record),
        ),
    )
