"""The table of calls, and calls and runs as people look for them.

A search goes from the newest, a page at a time, and looks at a bounded stretch at once.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from palyra.ids import RunId
from palyra.limits import KIB
from palyra.pipeline.domain.budget import Account, BudgetKind
from palyra.pipeline.domain.call import CallRecord, CallState, UnknownCall
from palyra.pipeline.store.run_tables import Run
from palyra.store.port import Store, Transaction

_decode = msgspec.json.Decoder(CallRecord)
# Smaller results stay with their record: its decision and attestation, which stay too, are larger.
SMALL_RESULT_BYTES = 1 * KIB
# Seven of the ten characters of an id's time: the rest is worth 2**15 milliseconds.
STRETCH_CHARS = 7
_ENCODE = msgspec.json.Encoder().encode
_decode_reserved = msgspec.json.Decoder(dict[BudgetKind, int])
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


class CallQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a search, which all have to hold.

    ``text`` occurs anywhere in the record, in any case of ASCII letters. ``only_bad`` selects calls that did not end
    well.
    """

    state: CallState | None = None
    only_bad: bool = False
    tool: str = ""
    principal: str = ""
    text: str = ""
    before: str = ""


class FoundCalls(msgspec.Struct, frozen=True, kw_only=True):
    """A page of calls. ``next`` is where to go on, or None at the end."""

    calls: list[CallRecord]
    next: str | None


def search_calls(store: Store, query: CallQuery, *, limit: int, look_at: int) -> FoundCalls:
    indexed = query.state is not None and query.state not in (CallState.RUNNING, CallState.SUCCEEDED)
    inner: list[str] = []
    params: list[Any] = []
    if query.before:
        inner.append("call_id < ?")
        params.append(query.before)
    if indexed and query.state is not None:
        inner.append(f"state = ? AND {UNUSUAL}")
        params.append(query.state.value)
    outer, outer_params = _build_conditions(query)
    stretch = f"FROM calls{_join_conditions(inner)} ORDER BY call_id DESC LIMIT ?"
    rows = store.read(
        f"SELECT record FROM (SELECT call_id, principal, state, record {stretch}){_join_conditions(outer)} LIMIT ?",  # noqa: S608
        (*params, look_at, *outer_params, limit),
    )
    found = [_decode.decode(row[0]) for row in rows]
    if len(found) == limit:
        return FoundCalls(calls=_keep_exact(found, query), next=found[-1].call_id)
    last = store.read(f"SELECT call_id {stretch} OFFSET ?", (*params, 1, look_at - 1))
    return FoundCalls(calls=_keep_exact(found, query), next=last[0][0] if last else None)


def _join_conditions(clauses: list[str]) -> str:
    return f" WHERE {' AND '.join(clauses)}" if clauses else ""


def _build_conditions(query: CallQuery) -> tuple[list[str], list[Any]]:
    clauses: list[str] = []
    params: list[Any] = []
    if query.state is not None:
        clauses.append("state = ?")
        params.append(query.state.value)
    if query.only_bad:
        clauses.append("state NOT IN ('running', 'succeeded', 'needs_approval')")
    if query.principal:
        clauses.append("principal = ?")
        params.append(query.principal)
    if query.tool:
        # What a result says may look the same: the record is looked at again once it is read.
        clauses.append("instr(CAST(record AS TEXT), ?) > 0")
        params.append(f'"tool":{_ENCODE(query.tool).decode()}')
    if query.text:
        clauses.append("instr(lower(CAST(record AS TEXT)), lower(?)) > 0")
        params.append(query.text)
    return clauses, params


def _keep_exact(found: list[CallRecord], query: CallQuery) -> list[CallRecord]:
    return [record for record in found if not query.tool or record.tool == query.tool]


def list_running_calls(store: Store, *, limit: int) -> list[CallRecord]:
    rows = store.read("SELECT record FROM calls WHERE state = 'running' LIMIT ?", (limit,))
    return [_decode.decode(row[0]) for row in rows]


def list_unusual_calls(store: Store, states: tuple[CallState, ...], *, limit: int) -> list[CallRecord]:
    """Return the newest calls of these states, which are neither running nor succeeded."""
    found: list[CallRecord] = []
    for state in states:
        rows = store.read(
            f"SELECT record FROM calls WHERE state = ? AND {UNUSUAL} ORDER BY call_id DESC LIMIT ?",  # noqa: S608
            (state.value, limit),
        )
        found += [_decode.decode(row[0]) for row in rows]
    return sorted(found, key=lambda record: record.call_id, reverse=True)[:limit]


def count_by_time(store: Store, first_call_id: str, *, limit: int) -> list[tuple[str, CallState, int]]:
    """Count calls of each state in stretches of about half a minute, from an instant on.

    A stretch is the first characters of an id, which are its time. Only the newest ``limit`` calls are counted.
    """
    rows = store.read(
        "SELECT substr(call_id, 1, ?), state, COUNT(*) FROM"
        " (SELECT call_id, state FROM calls WHERE call_id >= ? ORDER BY call_id DESC LIMIT ?) GROUP BY 1, 2",
        (STRETCH_CHARS, first_call_id, limit),
    )
    return [(stretch, CallState(state), count) for stretch, state, count in rows]


def list_calls_of_run(store: Store, run_id: str, *, after: str = "", limit: int) -> list[CallRecord]:
    rows = store.read(
        "SELECT record FROM calls WHERE run_id = ? AND call_id > ? ORDER BY call_id LIMIT ?", (run_id, after, limit)
    )
    return [_decode.decode(row[0]) for row in rows]


def list_runs(store: Store, *, before: RunId | None = None, limit: int) -> list[Run]:
    """Return runs with their budgets, newest first."""
    rows = store.read(
        "SELECT run_id, principal, created_ms FROM runs WHERE run_id < ? ORDER BY run_id DESC LIMIT ?",
        ("~" if before is None else str(before), limit),
    )
    if not rows:
        return []
    marks = ", ".join("?" * len(rows))
    accounts: dict[str, dict[BudgetKind, Account]] = {row[0]: {} for row in rows}
    for run_id, kind, cap, reserved, used in store.read(
        f"SELECT run_id, kind, cap, reserved, used FROM run_budgets WHERE run_id IN ({marks})",  # noqa: S608
        [row[0] for row in rows],
    ):
        accounts[run_id][BudgetKind(kind)] = Account(cap=cap, reserved=reserved, used=used)
    return [
        Run(run_id=run_id, principal=principal, created_ms=created_ms, budget=accounts[run_id])
        for run_id, principal, created_ms in rows
    ]


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


def list_recent_calls(store: Store, run_id: str, principal: str | None, most: int) -> list[CallRecord]:
    """Return calls of a run, newest first. A run of another principal looks empty."""
    rows = store.read(
        "SELECT record FROM calls WHERE run_id = ? AND principal = COALESCE(?, principal)"
        " ORDER BY call_id DESC LIMIT ?",
        (run_id, principal, most),
    )
    return [_decode.decode(row[0]) for row in rows]


def put_call(tx: Transaction, record: CallRecord, *, instance: str, reserved: dict[BudgetKind, int]) -> None:
    tx.execute(
        "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (call_id) DO UPDATE SET"
        " state = excluded.state, instance = excluded.instance, reserved = excluded.reserved, record = excluded.record",
        (
            record.call_id,
            record.run_id,
            record.principal,
            record.state.value,
            instance,
            _ENCODE(reserved).decode(),
            _ENCODE(record),
        ),
    )


def end_call(tx: Transaction, record: CallRecord) -> bool:
    """Write the end of a call. Return False if it does not run any more."""
    tx.execute(
        "UPDATE calls SET state = ?, instance = '', reserved = '{}', record = ?"
        " WHERE call_id = ? AND state = 'running'",
        (record.state.value, _ENCODE(record), record.call_id),
    )
    return tx.changed() == 1


def keep_result(tx: Transaction, record: CallRecord, size: int, output_digest: str) -> None:
    """Note that the call's result is kept, if it is worth dropping later."""
    if size > SMALL_RESULT_BYTES:
        tx.execute(
            "INSERT INTO kept_results VALUES (?, ?, ?, ?)", (record.principal, record.call_id, size, output_digest)
        )


def find_call(tx: Transaction, call_id: str) -> CallRecord | None:
    rows = tx.execute("SELECT record FROM calls WHERE call_id = ?", (call_id,))
    return _decode.decode(rows[0][0]) if rows else None


def find_unfinished(tx: Transaction) -> list[tuple[str, dict[BudgetKind, int], CallRecord]]:
    """Return the instance, the reservation and the record of each running call."""
    rows = tx.execute("SELECT instance, reserved, record FROM calls WHERE state = 'running'")
    return [(instance, _decode_reserved.decode(reserved), _decode.decode(raw)) for instance, reserved, raw in rows]
