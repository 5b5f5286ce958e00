"""The budget of a run. A call reserves before it starts and settles to what it used. A denial costs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from palyra import limits
from palyra.errors import LimitExceeded


class BudgetKind(StrEnum):
    CALLS = "calls"
    WALL_MS = "wall_ms"
    EGRESS_BYTES = "egress_bytes"
    WASM_FUEL = "wasm_fuel"
    BROWSER_ACTIONS = "browser_actions"


class BudgetExhausted(LimitExceeded):
    code = "budget.exhausted"
    hint = (
        "open another run with `palyra call --new-run` or POST /v1/runs and name it; calls that name none share one of"
        " their principal for an hour"
    )


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of budget of one run, as the ledger holds it."""

    cap: int
    reserved: int = 0
    used: int = 0

    @property
    def left(self) -> int:
        return max(0, self.cap - self.reserved - self.used)


class RunBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The caps of one run."""

    calls: int = limits.DEFAULT_MAX_CALLS_PER_RUN
    wall_ms: int = limits.DEFAULT_RUN_WALL_MS
    egress_bytes: int = limits.DEFAULT_RUN_EGRESS_BYTES
    wasm_fuel: int = limits.DEFAULT_RUN_WASM_FUEL
    browser_actions: int = limits.DEFAULT_RUN_BROWSER_ACTIONS

    def cap(self, kind: BudgetKind) -> int:
        cap: int = getattr(self, kind.value)
        return cap

    def accounts(self) -> dict[BudgetKind, Account]:
        """Return the accounts of a run that has spent nothing."""
        return {kind: Account(cap=self.cap(kind)) for kind in BudgetKind}


@dataclass
class Usage:
    """The usage of a running call, noted by its executor. It is charged however the call ends.

    A program that a call leaves running is charged with the most that it may use, at the end of the call. Once
    ``is_taken`` a smaller amount no longer reaches the account by being noted: the executor has to return the rest.
    """

    noted: dict[BudgetKind, int] = field(default_factory=dict)
    is_taken: bool = False

    def take(self) -> dict[BudgetKind, int]:
        """Return what was noted, right before it is charged."""
        self.is_taken = True
        return self.noted.copy()

    def note(self, kind: BudgetKind, amount: int) -> None:
        """Note the amount of this kind up to now, not since the last note."""
        self.noted[kind] = amount


def reserve(accounts: Mapping[BudgetKind, Account], asked: Mapping[BudgetKind, int]) -> dict[BudgetKind, int]:
    """Return how much of each kind this call gets. Raise BudgetExhausted for a kind of which nothing is left.

    Calls are indivisible. Every other kind is a ceiling for the call: it may use what is left.
    """
    granted: dict[BudgetKind, int] = {}
    for kind, amount in asked.items():
        left = accounts[kind].left
        if left <= 0 or (kind is BudgetKind.CALLS and left < amount):
            account = accounts[kind]
            raise BudgetExhausted(
                f"this run has used its budget of {kind.value}: {account.used} used and {account.reserved} reserved"
                f" of {account.cap}",
                budget=kind.value,
                cap=account.cap,
                used=account.used,
                reserved=account.reserved,
            )
        granted[kind] = min(amount, left)
    return granted


def name_amounts(amounts: Mapping[BudgetKind, int]) -> dict[str, int]:
    return {kind.value: amount for kind, amount in amounts.items()}
