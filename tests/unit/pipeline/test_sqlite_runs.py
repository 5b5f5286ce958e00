"""The budget ledger: what is reserved, what is settled, whose run it is."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fakes.journal_harness import JournalHarness
from palyra.ids import RunId
from palyra.pipeline.domain.budget import BudgetExhausted, BudgetKind, RunBudget
from palyra.pipeline.domain.call import UnknownRun
from palyra.pipeline.store import run_tables
from palyra.store.port import Transaction
from palyra.store.sqlite.store import SqliteStore

RUN = RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV")
REQUESTED = {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: 1_000}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = JournalHarness(tmp_path).open(schema=run_tables.SCHEMA)
    yield opened
    opened.close()


def open_run(store: SqliteStore, **caps: int) -> None:
    store.transact_blocking(lambda tx: run_tables.open_run(tx, RUN, "agent:bot", "user:op", RunBudget(**caps)))


def reserve(tx: Transaction, asked: Mapping[BudgetKind, int] = REQUESTED) -> dict[BudgetKind, int]:
    accounts = run_tables.ensure_run(tx, RUN, "agent:bot", "user:op", RunBudget())
    return run_tables.reserve_budget(tx, RUN, asked, accounts)


def account(store: SqliteStore, kind: BudgetKind) -> tuple[int, int, int]:
    found = run_tables.read_run(store, RUN, None).budget[kind]
    return found.cap, found.reserved, found.used


def test_a_run_has_an_account_of_every_kind_and_its_opening_is_on_record(store: SqliteStore) -> None:
    open_run(store, calls=3)
    run = run_tables.read_run(store, RUN, "agent:bot")
    assert set(run.budget) == set(BudgetKind)
    event = store.events_since(0, 10)[0]
    assert (event.kind, event.principal, event.run) == ("run.opened", "agent:bot", RUN)
    assert event.payload_value()["budget"]["calls"] == 3


def test_reserve_then_settle_books_what_was_used_and_gives_the_rest_back(store: SqliteStore) -> None:
    open_run(store, calls=2, wall_ms=1_500)
    granted = store.transact_blocking(lambda tx: reserve(tx))
    assert account(store, BudgetKind.WALL_MS) == (1_500, 1_000, 0)
    store.transact_blocking(
        lambda tx: run_tables.settle_budget(tx, RUN, granted, {BudgetKind.CALLS: 1, BudgetKind.WALL_MS: 7})
    )
    assert account(store, BudgetKind.CALLS) == (2, 0, 1)
    assert account(store, BudgetKind.WALL_MS) == (1_500, 0, 7)


def test_a_crash_gives_everything_back(store: SqliteStore) -> None:
    open_run(store, calls=2)
    granted = store.transact_blocking(lambda tx: reserve(tx))
    store.transact_blocking(lambda tx: run_tables.settle_budget(tx, RUN, granted, {}))
    assert account(store, BudgetKind.CALLS) == (2, 0, 0)


def test_one_kind_that_is_out_leaves_the_others_untouched(store: SqliteStore) -> None:
    open_run(store, calls=5, wall_ms=0)
    with pytest.raises(BudgetExhausted) as caught:
        store.transact_blocking(lambda tx: reserve(tx))
    assert caught.value.details["budget"] == "wall_ms"
    assert account(store, BudgetKind.CALLS) == (5, 0, 0)


async def test_many_at_once_never_reserve_more_than_the_cap(store: SqliteStore) -> None:
    await store.transact(lambda tx: run_tables.open_run(tx, RUN, "agent:bot", "user:op", RunBudget(calls=5)))
    outcomes = await asyncio.gather(
        *(store.transact(lambda tx: reserve(tx)) for _ in range(40)),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, dict) for outcome in outcomes) == 5
    assert account(store, BudgetKind.CALLS) == (5, 5, 0)


def test_somebody_elses_run_looks_like_a_missing_one(store: SqliteStore) -> None:
    open_run(store)
    with pytest.raises(UnknownRun) as theirs:
        run_tables.read_run(store, RUN, "agent:eve")
    with pytest.raises(UnknownRun) as missing:
        run_tables.read_run(store, RunId("01ARZ3NDEKTSV4RRFFQ69G5FAX"), "agent:eve")
    assert theirs.value.message.replace(RUN, "") == missing.value.message.replace("01ARZ3NDEKTSV4RRFFQ69G5FAX", "")
    with pytest.raises(UnknownRun):
        store.transact_blocking(lambda tx: run_tables.ensure_run(tx, RUN, "agent:eve", "x", RunBudget()))


def test_a_run_is_opened_once_and_keeps_its_caps(store: SqliteStore) -> None:
    open_run(store, calls=3)
    store.transact_blocking(lambda tx: run_tables.ensure_run(tx, RUN, "agent:bot", "x", RunBudget(calls=99)))
    assert account(store, BudgetKind.CALLS)[0] == 3
    assert [event.kind for event in store.events_since(0, 10)] == ["run.opened"]


def test_what_was_charged_too_much_is_given_back_on_record_and_never_more(store: SqliteStore) -> None:
    open_run(store, egress_bytes=1_000)
    kind = BudgetKind.EGRESS_BYTES
    granted = store.transact_blocking(lambda tx: reserve(tx, {kind: 600}))
    store.transact_blocking(lambda tx: run_tables.settle_budget(tx, RUN, granted, {kind: 600}))
    whose = {"call": "c1", "principal": "agent:bot", "actor": "palyrad"}
    store.transact_blocking(lambda tx: run_tables.return_budget(tx, RUN, kind, 500, **whose))
    assert account(store, kind) == (1_000, 0, 100)
    store.transact_blocking(lambda tx: run_tables.return_budget(tx, RUN, kind, 101, **whose))
    assert account(store, kind) == (1_000, 0, 100)
    error = [event for event in store.events_since(0, 10) if event.kind == "run.budget_returned"]
    assert [(event.call, event.payload_value()) for event in error] == [("c1", {"budget": kind.value, "amount": 500})]
