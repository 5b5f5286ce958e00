"""Runs and their budgets in SQL. Every change is one statement that states what it expects to find."""

from collections.abc import Mapping

import msgspec

from palyra.ids import RunId
from palyra.journal.event import NewEvent
from palyra.tools.budget import Account, BudgetKind, RunBudget, reserve
from palyra.tools.call import UnknownRun
from palyra.tools.ports import Store, Transaction

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY, principal TEXT NOT NULL, created_ms INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS run_budgets (
        run_id TEXT NOT NULL, kind TEXT NOT NULL, cap INTEGER NOT NULL CHECK (cap >= 0),
        reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0), used INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
        PRIMARY KEY (run_id, kind)) WITHOUT ROWID""",
)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    principal: str
    created_ms: int
    budget: dict[BudgetKind, Account]


def open_run(tx: Transaction, run_id: str, principal: str, actor: str, budget: RunBudget) -> None:
    tx.execute("INSERT INTO runs VALUES (?, ?, ?)", (run_id, principal, tx.now_ms))
    for kind in BudgetKind:
        tx.execute(
            "INSERT INTO run_budgets (run_id, kind, cap) VALUES (?, ?, ?)", (run_id, kind.value, budget.cap(kind))
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


def ensure_run(tx: Transaction, run_id: str, principal: str, actor: str, budget: RunBudget) -> None:
    """The run is this principal's, or is opened for it now. Somebody else's run looks like a missing one."""
    rows = tx.execute("SELECT principal FROM runs WHERE run_id = ?", (run_id,))
    if not rows:
        open_run(tx, run_id, principal, actor, budget)
    elif rows[0][0] != principal:
        raise UnknownRun(f"{principal} has no run {run_id}")


def reserve_budget(tx: Transaction, run_id: str, asked: Mapping[BudgetKind, int]) -> dict[BudgetKind, int]:
    granted = reserve(_accounts(tx, run_id), asked)
    for kind, amount in granted.items():
        tx.execute(
            "UPDATE run_budgets SET reserved = reserved + ? WHERE run_id = ? AND kind = ?", (amount, run_id, kind.value)
        )
    return granted


def settle_budget(
    tx: Transaction, run_id: str, reserved: Mapping[BudgetKind, int], used: Mapping[BudgetKind, int]
) -> None:
    """Gives back what was reserved and books what was used: nothing, for a call that a crash cut off."""
    for kind, amount in reserved.items():
        tx.execute(
            "UPDATE run_budgets SET reserved = reserved - ?, used = used + ? WHERE run_id = ? AND kind = ?",
            (amount, used.get(kind, 0), run_id, kind.value),
        )


def give_back(
    tx: Transaction, run_id: str, kind: BudgetKind, amount: int, *, call: str, principal: str, actor: str
) -> None:
    """Takes off what an ended call was charged and what it had left running did not use in the end."""
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
    return Run(run_id=str(run_id), principal=rows[0][0], created_ms=rows[0][1], budget=_as_accounts(accounts))


def _accounts(tx: Transaction, run_id: str) -> dict[BudgetKind, Account]:
    return _as_accounts(tx.execute("SELECT kind, cap, reserved, used FROM run_budgets WHERE run_id = ?", (run_id,)))


def _as_accounts(rows: list[tuple[str, int, int, int]]) -> dict[BudgetKind, Account]:
    return {BudgetKind(kind): Account(cap=cap, reserved=reserved, used=used) for kind, cap, reserved, used in rows}
