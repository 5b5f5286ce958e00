"""Runs and their budgets in SQL. Every change is one statement that states what it expects to find."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from palyra.clock import rfc3339
from palyra.errors import LimitExceeded
from palyra.ids import RunId
from palyra.pipeline.domain.budget import Account, BudgetKind, RunBudget, reserve
from palyra.pipeline.domain.call import UnknownRun
from palyra.store.event import NewEvent
from palyra.store.port import Store, Transaction

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY, principal TEXT NOT NULL, created_ms INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS run_budgets (
        run_id TEXT NOT NULL, kind TEXT NOT NULL, cap INTEGER NOT NULL CHECK (cap >= 0),
        reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0), used INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
        PRIMARY KEY (run_id, kind)) WITHOUT ROWID""",
    # The runs that a principal has opened since an instant, without those that operators opened for it.
    """CREATE TABLE IF NOT EXISTS run_openings (
        principal TEXT PRIMARY KEY, since_ms INTEGER NOT NULL, opened INTEGER NOT NULL) WITHOUT ROWID""",
)
# Runs are counted over this time. One count serves a principal for the whole of it.
COUNTED_MS = 3_600_000
_KINDS = {kind.value: kind for kind in BudgetKind}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    principal: str
    created_ms: int
    budget: dict[BudgetKind, Account]


class TooManyRuns(LimitExceeded):
    code = "run.too_many"
    hint = "go on in a run that is open, wait, or ask an operator for a run; the setting is budget.runs_per_hour"


def open_run(
    tx: Transaction, run_id: str, principal: str, actor: str, budget: RunBudget, *, most: int | None = None
) -> dict[BudgetKind, Account]:
    """Open a run. ``most`` is how many the principal may open in an hour; None for an operator's."""
    if most is not None:
        _count_opening(tx, principal, most)
    tx.execute("INSERT INTO runs VALUES (?, ?, ?)", (run_id, principal, tx.now_ms))
    accounts = budget.accounts()
    rows = ", ".join(["(?, ?, ?)"] * len(accounts))
    tx.execute(
        f"INSERT INTO run_budgets (run_id, kind, cap) VALUES {rows}",  # noqa: S608 - question marks
        [field for kind, account in accounts.items() for field in (run_id, kind.value, account.cap)],
    )
    tx.append(
        NewEvent(
            kind="run.opened",
            actor=actor,
            principal=principal,
            run=run_id,
            payload={"budget": msgspec.to_builtins(budget)},
        )
    )
    return accounts


def _count_opening(tx: Transaction, principal: str, most: int) -> None:
    """Count one more run of the principal, or refuse it. The count starts again after an hour."""
    ((since_ms, opened),) = tx.execute(
        "INSERT INTO run_openings VALUES (:principal, :now, 1) ON CONFLICT (principal) DO UPDATE SET"
        " opened = CASE WHEN since_ms > :now - :counted AND since_ms <= :now THEN opened + 1 ELSE 1 END,"
        " since_ms = CASE WHEN since_ms > :now - :counted AND since_ms <= :now THEN since_ms ELSE :now END"
        " RETURNING since_ms, opened",
        {"principal": principal, "now": tx.now_ms, "counted": COUNTED_MS},
    )
    if opened > most:
        again_ms = since_ms + COUNTED_MS
        raise TooManyRuns(
            f"{principal} has opened {most} runs within an hour and may open the next one at {rfc3339(again_ms)}",
            runs_per_hour=most,
            again_ms=again_ms,
        )


def ensure_run(
    tx: Transaction, run_id: str, principal: str, actor: str, budget: RunBudget, *, most: int | None = None
) -> dict[BudgetKind, Account]:
    """Return the accounts of a run, which is opened if it does not exist. Another principal's run looks missing.

    A run that an earlier version opened has no row of a newer kind of budget. It gets one, with the cap of ``budget``.
    """
    rows = tx.execute(
        "SELECT principal, kind, cap, reserved, used FROM runs JOIN run_budgets USING (run_id) WHERE run_id = ?",
        (run_id,),
    )
    if not rows:
        return open_run(tx, run_id, principal, actor, budget, most=most)
    if rows[0][0] != principal:
        raise UnknownRun(f"{principal} has no run {run_id}")
    accounts = _parse_accounts([row[1:] for row in rows])
    for kind in BudgetKind:
        if kind not in accounts:
            accounts[kind] = Account(cap=budget.cap(kind))
            tx.execute(
                "INSERT INTO run_budgets (run_id, kind, cap) VALUES (?, ?, ?)", (run_id, kind.value, budget.cap(kind))
            )
    return accounts


def belongs_to_another(tx: Transaction, run_id: str, principal: str) -> bool:
    """Return whether this run exists and belongs to another principal."""
    rows = tx.execute("SELECT principal FROM runs WHERE run_id = ?", (run_id,))
    return bool(rows) and rows[0][0] != principal


def find_owners(store: Store, run_ids: Sequence[str]) -> dict[str, str]:
    """Return the owners of existing runs by id."""
    marks = ", ".join("?" * len(run_ids))
    rows = store.read(f"SELECT run_id, principal FROM runs WHERE run_id IN ({marks})", run_ids)  # noqa: S608 - question marks
    return {row[0]: row[1] for row in rows}


def reserve_budget(
    tx: Transaction, run_id: str, asked: Mapping[BudgetKind, int], accounts: Mapping[BudgetKind, Account]
) -> dict[BudgetKind, int]:
    """Reserve from a run's budget. ``accounts`` are its accounts as this transaction has just read them."""
    granted = reserve(accounts, asked)
    which = _choose_by_kind(len(granted))
    tx.execute(
        f"UPDATE run_budgets SET reserved = reserved + {which} WHERE run_id = ?",  # noqa: S608
        (*_flatten(granted), run_id),
    )
    return granted


def settle_budget(
    tx: Transaction, run_id: str, reserved: Mapping[BudgetKind, int], used: Mapping[BudgetKind, int]
) -> None:
    """Release what was reserved and charge what was used: nothing, for a call that a crash cut off."""
    if not reserved:
        return
    which = _choose_by_kind(len(reserved))
    charged = {kind: used.get(kind, 0) for kind in reserved}
    tx.execute(
        f"UPDATE run_budgets SET reserved = reserved - {which}, used = used + {which} WHERE run_id = ?",  # noqa: S608
        (*_flatten(reserved), *_flatten(charged), run_id),
    )


@lru_cache(maxsize=len(BudgetKind))
def _choose_by_kind(kinds: int) -> str:
    """Return the SQL of an amount by its kind, as question marks.

    One statement changes all accounts of a run, most of them by nothing. Finding those that change takes longer.
    """
    return f"CASE kind{' WHEN ? THEN ?' * kinds} ELSE 0 END"


def _flatten(amounts: Mapping[BudgetKind, int]) -> list[str | int]:
    return [part for kind, amount in amounts.items() for part in (_NAMES[kind], amount)]


def return_budget(
    tx: Transaction, run_id: str, kind: BudgetKind, amount: int, *, call: str, principal: str, actor: str
) -> None:
    """Return what an ended call was charged and its remaining program did not use in the end."""
    if tx.execute(
        "UPDATE run_budgets SET used = used - ? WHERE run_id = ? AND kind = ? AND used >= ? RETURNING used",
        (amount, run_id, kind.value, amount),
    ):
        tx.append(
            NewEvent(
                kind="run.budget_returned",
                actor=actor,
                principal=principal,
                run=run_id,
                call=call,
                payload={"budget": kind.value, "amount": amount},
            )
        )


def read_run(store: Store, run_id: RunId, principal: str | None) -> Run:
    rows = store.read("SELECT principal, created_ms FROM runs WHERE run_id = ?", (str(run_id),))
    if not rows or (principal is not None and rows[0][0] != principal):
        raise UnknownRun(f"there is no run {run_id} for this principal")
    accounts = store.read("SELECT kind, cap, reserved, used FROM run_budgets WHERE run_id = ?", (str(run_id),))
    return Run(run_id=str(run_id), principal=rows[0][0], created_ms=rows[0][1], budget=_parse_accounts(accounts))


def _parse_accounts(rows: Sequence[Sequence[Any]]) -> dict[BudgetKind, Account]:
    return {_KINDS[kind]: Account(cap=cap, reserved=reserved, used=used) for kind, cap, reserved, used in rows}
