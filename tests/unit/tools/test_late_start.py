"""A call without effects: written down once with its end, or as started when it takes a while."""

import asyncio
import gc
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from fakes.effect_free import SETTINGS, TOOL, give_tool
from fakes.house import House, open_house
from palyra.ids import RunId
from palyra.journal.event import NewEvent
from palyra.journal.sqlite_faults import JournalClosed
from palyra.secret import Secret
from palyra.tools import broker, late_start
from palyra.tools.arguments import MAX_QUICK_BYTES
from palyra.tools.budget import BudgetKind
from palyra.tools.call import CallState, ExecutionPlan
from palyra.tools.ending import conclude

ENTRIES = ["call.requested", "call.decided", "call.started", "call.finished"]
FUEL = {BudgetKind.WASM_FUEL: 1_000}


@pytest.mark.promise("P-recorded")
async def test_a_short_call_is_written_down_once_when_it_has_ended(tmp_path: Path) -> None:
    async with open_house(tmp_path, SETTINGS) as house:
        seen: list[list[str]] = []

        async def think(plan: ExecutionPlan) -> str:
            seen.append(house.kinds(call=plan.call_id))
            return "done"

        give_tool(house, think)
        record = await house.call(TOOL, {})
        assert record.result == {"thought": "done"} and seen == [[]]
        events = house.gateway.store.events_since(0, 1_000, call=record.call_id)
        assert [event.kind for event in events] == ENTRIES
        assert len({event.time_ms for event in events}) == 1, "one commit"
        accounts = house.run(record.run_id).budget
        assert (accounts[BudgetKind.CALLS].reserved, accounts[BudgetKind.CALLS].used) == (0, 1)
        assert accounts[BudgetKind.WALL_MS].reserved == 0


@pytest.mark.promise("P-call-ends")
async def test_a_long_call_is_seen_running_and_can_be_stopped(tmp_path: Path) -> None:
    async with open_house(tmp_path, SETTINGS) as house, asyncio.TaskGroup() as group:

        async def think(_plan: ExecutionPlan) -> None:
            await asyncio.Event().wait()

        give_tool(house, think)
        calling = group.create_task(house.call(TOOL, {}))
        while not (started := house.gateway.store.events_since(0, 1_000, kind="call.started")):
            await asyncio.sleep(0.005)
        assert house.run(started[0].run).budget[BudgetKind.CALLS].reserved == 1
        await house.gateway.broker.cancel(started[0].call)
        record = await calling
        assert record.state is CallState.CANCELLED and house.kinds(call=record.call_id) == ENTRIES
        assert house.run(record.run_id).budget[BudgetKind.CALLS].reserved == 0


async def test_a_short_call_that_is_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_start, "UNRECORDED_SECONDS", 600)
    async with open_house(tmp_path, SETTINGS) as house, asyncio.TaskGroup() as group:

        async def think(_plan: ExecutionPlan) -> None:
            await asyncio.Event().wait()

        executor = give_tool(house, think)
        calling = group.create_task(house.call(TOOL, {}))
        while not executor.plans:
            await asyncio.sleep(0.005)
        await house.gateway.broker.cancel(executor.plans[0].call_id)
        record = await calling
        assert record.state is CallState.CANCELLED and house.kinds(call=record.call_id) == ENTRIES


@pytest.mark.parametrize("unrecorded", [600.0, 0.0])
@pytest.mark.parametrize(("fuel", "state"), [(10**6, CallState.SUCCEEDED), (7, CallState.CANCELLED)])
async def test_a_call_that_is_stopped_while_it_is_being_written_down_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrecorded: float, fuel: int, state: CallState
) -> None:
    monkeypatch.setattr(late_start, "UNRECORDED_SECONDS", unrecorded)
    async with open_house(tmp_path, SETTINGS) as house, asyncio.TaskGroup() as group:
        submitted, go_on = asyncio.Event(), threading.Event()
        store, loop = house.gateway.store, asyncio.get_running_loop()
        submit = store.submit

        def noted(*given: Any, **how: Any) -> Any:
            submitted.set()
            return submit(*given, **how)

        async def think(_plan: ExecutionPlan) -> str:
            if not unrecorded:
                await submitted.wait()
            return "done"

        executor = give_tool(house, think, reserves=lambda _: FUEL)
        run_id = await house.open_run(wasm_fuel=fuel)
        house.gateway.broker._forecast.note(run_id, dict.fromkeys(BudgetKind, 10**9))
        # The disk is slow: nothing is written until the call was told to stop.
        slow = submit(lambda _tx: go_on.wait(30))
        monkeypatch.setattr(store, "submit", noted)
        calling = group.create_task(house.call(TOOL, {}, run_id=run_id))
        await submitted.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        loop.call_later(0.05, go_on.set)
        await house.gateway.broker.cancel(executor.plans[0].call_id)
        record = await calling
        await slow
        assert len(executor.plans) == 1, "a call that was told to stop does not begin anew"
        assert record.state is state and house.kinds(call=record.call_id) == ENTRIES
        assert house.run(run_id).budget[BudgetKind.CALLS].reserved == 0


@pytest.mark.promise("P-budget-charged")
@pytest.mark.parametrize("unrecorded", [600.0, 0.0])
async def test_what_was_computed_under_other_grants_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrecorded: float
) -> None:
    monkeypatch.setattr(late_start, "UNRECORDED_SECONDS", unrecorded)
    async with open_house(tmp_path, SETTINGS) as house:
        run_id = await house.open_run(wasm_fuel=7)

        async def think(plan: ExecutionPlan) -> int:
            await asyncio.sleep(0.05)
            return plan.granted[BudgetKind.WASM_FUEL]

        executor = give_tool(house, think, reserves=lambda _: FUEL)
        plenty = dict.fromkeys(BudgetKind, 10**9)
        house.gateway.broker._forecast.note(run_id, plenty)
        record = await house.call(TOOL, {}, run_id=run_id)
        assert record.result == {"thought": 7} and house.kinds(call=record.call_id) == ENTRIES
        assert [plan.granted[BudgetKind.WASM_FUEL] for plan in executor.plans] == [1_000, 7]
        assert house.run(run_id).budget[BudgetKind.CALLS].used == 1


@pytest.mark.promise("P-budget-charged")
@pytest.mark.parametrize("unrecorded", [600.0, 0.0])
async def test_a_spent_run_gives_no_result_whatever_was_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrecorded: float
) -> None:
    monkeypatch.setattr(late_start, "UNRECORDED_SECONDS", unrecorded)
    async with open_house(tmp_path, SETTINGS) as house:
        run_id = await house.open_run(calls=0)

        async def think(_plan: ExecutionPlan) -> str:
            await asyncio.sleep(0 if unrecorded else 3_600)
            return "computed in vain"

        give_tool(house, think)
        house.gateway.broker._forecast.note(run_id, dict.fromkeys(BudgetKind, 10**9))
        record = await house.call(TOOL, {}, run_id=run_id, timeout_ms=60_000)
        assert record.state is CallState.REFUSED and record.result is None and record.error is not None
        assert record.error["code"] == "budget.exhausted"
        assert house.kinds(call=record.call_id) == ["call.requested", "call.decided", "call.refused"]


@pytest.mark.promise("P-budget-charged")
async def test_many_at_once_on_a_small_budget_succeed_as_often_as_it_allows(tmp_path: Path) -> None:
    async with open_house(tmp_path, SETTINGS) as house:
        run_id = await house.open_run(calls=5)
        house.gateway.broker._forecast.note(run_id, dict.fromkeys(BudgetKind, 10**9))
        records = await asyncio.gather(*(house.call("echo", {"text": "x"}, run_id=run_id) for _ in range(40)))
        assert sum(record.state is CallState.SUCCEEDED for record in records) == 5
        assert all(record.result is None for record in records if record.state is not CallState.SUCCEEDED)
        account = house.run(run_id).budget[BudgetKind.CALLS]
        assert (account.used, account.reserved) == (5, 0)


async def test_somebody_elses_run_gives_no_result(tmp_path: Path) -> None:
    async with open_house(tmp_path, SETTINGS) as house:
        run_id = RunId(await house.open_run("agent:alice"))
        house.gateway.broker._forecast.note(run_id, dict.fromkeys(BudgetKind, 10**9))
        record = await house.call("echo", {"text": "x"}, run_id=run_id)
        assert record.error is not None and record.error["code"] == "run.unknown" and record.result is None
        assert house.kinds(run=str(run_id)) == ["run.opened"]


async def test_what_was_made_ready_while_it_computed_is_what_is_recorded(tmp_path: Path) -> None:
    async with open_house(tmp_path, SETTINGS) as house:

        async def think(_: ExecutionPlan) -> str:
            # Long enough for the entries to be made ready, and for a secret to become known after that.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            house.gateway.redactor.register(Secret("swordfish-and-more"))
            return "done"

        give_tool(house, think)
        record = await house.call(TOOL, {}, session="swordfish-and-more")
        events = house.gateway.store.events_since(0, 1_000, call=record.call_id)
        assert [event.kind for event in events] == ENTRIES
        assert not any(b"swordfish" in event.payload for event in events)
        assert all(event.principal == record.principal and event.run == record.run_id for event in events)


async def test_a_journal_that_is_closed_while_it_computes_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path, SETTINGS) as house:

        async def think(_plan: ExecutionPlan) -> None:
            await asyncio.Event().wait()

        def closed(*_given: Any, **_how: Any) -> Any:
            raise JournalClosed("the journal is closed")

        give_tool(house, think)
        broken: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: broken.append(context))
        with monkeypatch.context() as patch:
            patch.setattr(house.gateway.store, "submit", closed)
            with pytest.raises(JournalClosed):
                await house.call(TOOL, {})
        assert not broken and house.gateway.broker.running() == 0


def is_free(house: House) -> bool:
    """Whether another process could write at once."""
    other = sqlite3.connect(house.gateway.store.reader.path, timeout=0, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        other.close()
    return True


async def test_its_first_entries_are_written_while_it_computes_and_seen_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_start, "UNRECORDED_SECONDS", 600)
    async with open_house(tmp_path, SETTINGS) as house:
        found: list[Any] = []

        async def think(plan: ExecutionPlan) -> str:
            await asyncio.sleep(0.001)
            found.append((is_free(house), house.kinds(call=plan.call_id)))
            return "done"

        give_tool(house, think)
        record = await house.call(TOOL, {})
        assert found == [(False, [])], "they are in a transaction that is open"
        assert house.kinds(call=record.call_id) == ENTRIES and is_free(house)


@pytest.mark.parametrize("alone", [True, False])
async def test_what_it_has_written_itself_meanwhile_comes_first(
    tmp_path: Path, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is: this is about a call that has not been written down as started.
    monkeypatch.setattr(late_start, "UNRECORDED_SECONDS", 600)
    async with open_house(tmp_path, SETTINGS) as house:
        store = house.gateway.store
        note = NewEvent(kind="note.taken", actor="user:op", payload={})

        async def think(_plan: ExecutionPlan) -> str:
            await asyncio.sleep(0.001)
            await store.transact(lambda tx: tx.append(note), alone=alone)
            return "done"

        give_tool(house, think)
        before = store.head()[0]
        record = await house.call(TOOL, {})
        assert record.result == {"thought": "done"}
        assert [event.kind for event in store.events_since(before, 100)] == ["note.taken", "run.opened", *ENTRIES]
        assert is_free(house)


@pytest.mark.parametrize("turns", range(8))
async def test_wherever_it_is_stopped_nothing_stays_open(tmp_path: Path, turns: int) -> None:
    async with open_house(tmp_path, SETTINGS) as house, asyncio.TaskGroup() as group:

        async def think(_plan: ExecutionPlan) -> str:
            await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            return "done"

        executor = give_tool(house, think)
        calling = group.create_task(house.call(TOOL, {}))
        for _ in range(turns):
            await asyncio.sleep(0)
        for plan in executor.plans:
            await house.gateway.broker.cancel(plan.call_id)
        record = await calling
        assert record.state in (CallState.CANCELLED, CallState.SUCCEEDED)
        assert house.kinds(call=record.call_id) == ENTRIES and is_free(house)


async def test_what_is_too_large_to_be_digested_at_once_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path, SETTINGS) as house:
        found: list[bool] = []

        def looked(*given: Any) -> Any:
            found.append(is_free(house))
            return conclude(*given)

        async def think(_plan: ExecutionPlan) -> str:
            await asyncio.sleep(0.001)
            return "x" * (2 * MAX_QUICK_BYTES)

        monkeypatch.setattr(broker, "conclude", looked)
        give_tool(house, think)
        record = await house.call(TOOL, {})
        assert record.state is CallState.SUCCEEDED and found == [True]
        assert house.kinds(call=record.call_id) == ENTRIES


async def test_nothing_is_left_for_the_collector(tmp_path: Path) -> None:
    """What a call made goes with it: what holds itself would stay until a collector that seldom runs finds it."""
    async with open_house(tmp_path, SETTINGS) as house:

        async def think(plan: ExecutionPlan) -> str:
            await asyncio.sleep(0.001)
            return "done"

        give_tool(house, think)
        await house.call(TOOL, {})
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                assert (await house.call(TOOL, {})).error is None
            assert gc.collect() < 20
        finally:
            gc.enable()
