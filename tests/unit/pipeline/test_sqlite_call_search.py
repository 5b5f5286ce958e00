"""Calls and runs as people look for them."""

from pathlib import Path

from fakes.gateway_harness import open_harness
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.store.call_tables import (
    UNUSUAL,
    CallQuery,
    count_by_time,
    list_calls_of_run,
    list_running_calls,
    list_runs,
    list_unusual_calls,
    search_calls,
)


async def test_calls_are_searched_newest_first(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        store = harness.gateway.store
        run = await harness.open_run()
        made = [await harness.call("echo", {"text": f'number {n} "tool":"fs.read"'}, run_id=run) for n in range(5)]
        # Ids of one millisecond are in no order of their own.
        made.sort(key=lambda record: record.call_id)
        odd = await harness.call("nonsense", {}, principal="agent:other")
        asked = await harness.call("fs.write", {"path": "a", "content": "x"})

        def found(limit: int = 50, look_at: int = 100, **query: object) -> list[str]:
            return [c.call_id for c in search_calls(store, CallQuery(**query), limit=limit, look_at=look_at).calls]  # type: ignore[arg-type]

        newest = sorted([asked, odd, *made], key=lambda record: record.call_id, reverse=True)
        assert found() == [record.call_id for record in newest]
        page = search_calls(store, CallQuery(), limit=3, look_at=100)
        assert page.next == newest[2].call_id
        assert found(before=page.next) == [record.call_id for record in newest[3:]]
        assert found(state=CallState.REFUSED) == [odd.call_id]
        assert found(state=CallState.SUCCEEDED, limit=2) == [made[4].call_id, made[3].call_id]
        assert found(only_bad=True) == [odd.call_id]
        assert found(principal="agent:other") == [odd.call_id]
        assert found(tool="fs.write") == [asked.call_id] and found(tool="fs.read") == []
        assert found(text=made[3].result["text"][:8].upper()) == [made[3].call_id]
        first = made[0].result["text"][:8]
        short = search_calls(store, CallQuery(text=first), limit=5, look_at=4)
        assert short.calls == [] and short.next == newest[3].call_id
        assert found(text=first, before=short.next) == [made[0].call_id]

        assert [
            c.call_id for c in list_unusual_calls(store, (CallState.REFUSED, CallState.NEEDS_APPROVAL), limit=5)
        ] == [record.call_id for record in newest if record in (asked, odd)]
        assert list_running_calls(store, limit=5) == []
        counted = count_by_time(store, "0", limit=10)
        assert sum(count for _, state, count in counted if state is CallState.SUCCEEDED) == 5
        assert sum(count for _, _, count in count_by_time(store, "0", limit=2)) == 2
        assert [c.call_id for c in list_calls_of_run(store, str(run), limit=2)] == [made[0].call_id, made[1].call_id]
        assert [c.call_id for c in list_calls_of_run(store, str(run), after=made[3].call_id, limit=9)] == [
            made[4].call_id
        ]


async def test_runs_come_with_their_budgets(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        store = harness.gateway.store
        runs = sorted([await harness.open_run(calls=number + 1) for number in range(3)])
        listed = list_runs(store, limit=2)
        assert [run.run_id for run in listed] == [str(runs[2]), str(runs[1])]
        assert all(run == harness.run(run.run_id) for run in listed)
        assert [run.run_id for run in list_runs(store, before=runs[1], limit=9)] == [str(runs[0])]


async def test_searches_use_their_indexes(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        plan = harness.gateway.store.read(
            f"EXPLAIN QUERY PLAN SELECT record FROM calls WHERE state = 'denied' AND {UNUSUAL}"
            " ORDER BY call_id DESC LIMIT 5"
        )
        assert "calls_unusual" in str(plan) and "TEMP B-TREE" not in str(plan)
        plan = harness.gateway.store.read(
            "EXPLAIN QUERY PLAN SELECT record FROM approvals WHERE state = 'pending' ORDER BY approval_id DESC LIMIT 5"
        )
        assert "approvals_by_state" in str(plan) and "TEMP B-TREE" not in str(plan)
