"""Callers that wait for a person are told at once, told truly, and never told for somebody else."""

import asyncio
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from palyra.pipeline.domain.approval import ApprovalEvent, ApprovalState, Verdict
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.store.approval_tables import decide

WRITE = {"path": "a.txt", "content": "hello"}


async def test_a_decision_wakes_every_caller_that_waits_for_it_and_no_other(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        room = harness.gateway.broker.approval_waiters
        first = (await harness.call("fs.write", WRITE)).approval_id
        second = (await harness.call("fs.write", {**WRITE, "content": "other"})).approval_id
        assert first and second
        waiters = [asyncio.create_task(room.wait(first, 60)) for _ in range(3)]
        other = asyncio.create_task(room.wait(second, 60))
        await asyncio.sleep(0)
        await harness.approve(first)
        decided = await asyncio.gather(*waiters)
        assert {approval.state for approval in decided} == {ApprovalState.APPROVED}
        assert not other.done()
        await harness.decide(second, ApprovalEvent.DENY, "user:alice", reason="no")
        assert (await other).reason == "no"


@pytest.mark.promise("P-approval-answer")
async def test_a_decision_made_elsewhere_is_found_by_looking(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        approval_id = (await harness.call("fs.write", WRITE)).approval_id
        assert approval_id is not None
        waiter = asyncio.create_task(harness.gateway.broker.approval_waiters.wait(approval_id, 60))
        await asyncio.sleep(0)
        verdict = Verdict(event=ApprovalEvent.APPROVE, by="user:alice")
        # Nobody rings: as when another process decided.
        await harness.gateway.store.transact(lambda tx: decide(tx, approval_id, verdict, actor="user:alice"))
        assert (await waiter).state is ApprovalState.APPROVED


async def test_time_that_is_up_gives_the_request_back_as_pending(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        approval_id = (await harness.call("fs.write", WRITE)).approval_id
        assert approval_id is not None
        room = harness.gateway.broker.approval_waiters
        assert (await room.wait(approval_id, 0)).state is ApprovalState.PENDING
        room.notify(approval_id)
        assert room._events == {}, "nobody waits, so nothing is kept"


async def test_a_caller_that_goes_away_leaves_no_event_behind(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        approval_id = (await harness.call("fs.write", WRITE)).approval_id
        assert approval_id is not None
        room = harness.gateway.broker.approval_waiters
        waiter = asyncio.create_task(room.wait(approval_id, 60))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert room._events == {}


async def test_an_expired_request_ends_the_wait_as_a_denial(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"approvals": {"ttl_seconds": 1}}) as harness:
        record = await harness.call("fs.write", WRITE, wait_ms=60_000)
        assert record.state is CallState.DENIED and record.error is not None
        assert "expired" in record.error["message"]
