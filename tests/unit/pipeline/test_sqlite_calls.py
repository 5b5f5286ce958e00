"""The call ledger moves call, budget, approval and journal together."""

import asyncio
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from palyra.ids import CallId
from palyra.pipeline import settle
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallState, UnknownCall
from palyra.pipeline.store.call_tables import read_call

WRITE = {"path": "a.txt", "content": "hello"}


@pytest.mark.promise("P-budget-charged")
async def test_a_call_cut_off_by_a_crash_is_ended_once_and_its_budget_given_back(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run_id = await harness.open_run(calls=3)
        calling = asyncio.create_task(harness.call("sleep", {"seconds": 600}, run_id=run_id))
        await eventually(lambda: harness.kinds(kind="call.started"))
        assert harness.run(run_id).budget[BudgetKind.CALLS].reserved == 1
        call_id = harness.gateway.store.events_since(0, 100, kind="call.started")[0].call
        live = {harness.gateway.instance}
        store = harness.gateway.store
        # While its process lives, nobody may end it.
        assert await store.transact(lambda tx: settle.release_abandoned(tx, live, actor="palyrad")) == []
        released = await store.transact(lambda tx: settle.release_abandoned(tx, (), actor="palyrad"))
        assert [record.call_id for record in released] == [call_id]
        assert await store.transact(lambda tx: settle.release_abandoned(tx, (), actor="palyrad")) == []
        account = harness.run(run_id).budget[BudgetKind.CALLS]
        assert (account.reserved, account.used) == (0, 0)
        record = read_call(store, call_id, None)
        assert record.state is CallState.ABANDONED and record.error is not None
        assert record.error["code"] == "call.abandoned"
        payload = harness.events(call=call_id, kind="call.abandoned")[0][1]
        assert payload["released"]["calls"] == 1 and payload["instance"] in live
        # The late result of a call that was already ended is not booked.
        await harness.gateway.broker.cancel(call_id)
        with pytest.raises(UnknownCall):
            await calling
        assert harness.run(run_id).budget[BudgetKind.CALLS].used == 0
        assert read_call(store, call_id, None).state is CallState.ABANDONED


async def test_a_call_that_comes_back_after_its_approval_is_asked_and_decided_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        calling = asyncio.create_task(harness.call("fs.write", WRITE, wait_ms=60_000))
        await eventually(lambda: harness.kinds(kind="approval.requested"))
        approval_id = harness.events(kind="approval.requested")[0][1]["approval_id"]
        await harness.approve(approval_id)
        record = await calling
        assert record.state is CallState.SUCCEEDED
        assert harness.kinds(call=record.call_id) == [
            "call.requested",
            "call.decided",
            "approval.requested",
            "approval.consumed",
            "call.started",
            "call.finished",
        ]


async def test_the_entries_say_what_an_auditor_asks(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        record = await harness.call("echo", {"text": "hi"}, session="s1", device="d1")
        entries = dict(harness.events(call=record.call_id))
        assert entries["call.requested"]["arguments"] == {"text": "hi"}
        assert entries["call.requested"]["argument_digest"] == record.argument_digest
        assert (entries["call.requested"]["session"], entries["call.requested"]["device"]) == ("s1", "d1")
        assert entries["call.decided"]["policies"] == ["baseline.allowed-tools"]
        assert entries["call.started"]["reserved"]["calls"] == 1 and entries["call.started"]["executor"] == "builtin"
        assert entries["call.finished"]["state"] == "succeeded" and entries["call.finished"]["used"]["calls"] == 1


async def test_somebody_elses_call_looks_like_a_missing_one(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        record = await harness.call("echo", {"text": "hi"})
        store = harness.gateway.store
        assert read_call(store, record.call_id, "agent:bot").result == {"text": "hi"}
        missing = CallId.new()
        messages = []
        for call_id in (record.call_id, missing):
            with pytest.raises(UnknownCall) as caught:
                read_call(store, call_id, "agent:eve")
            messages.append(caught.value.message.replace(call_id, "ID"))
        assert messages[0] == messages[1]
