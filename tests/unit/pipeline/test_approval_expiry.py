import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.pipeline import approve
from palyra.pipeline.domain.approval import ApprovalScope, ApprovalState
from palyra.pipeline.domain.call import CallState
from palyra.pipeline.store.approval_tables import read_approval
from palyra.store.port import DiskFull, JournalBusy

WRITE = {"path": "a.txt", "content": "hello"}


@pytest.fixture(autouse=True)
def nobody_else_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the table now and then would hide that nothing woke us."""
    monkeypatch.setattr(approve, "OTHERS_LOOK_SECONDS", 3600.0)


async def ended(harness: GatewayHarness, approval_id: str | None) -> None:
    await eventually(lambda: read_approval(harness.gateway.store, approval_id or "").state is ApprovalState.EXPIRED)


@pytest.mark.promise("P-approval-ends")
async def test_a_request_that_comes_while_nothing_is_due_expires_in_its_time(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"approvals": {"ttl_seconds": 1}}) as harness:
        asked = await harness.call("fs.write", WRITE)
        await ended(harness, asked.approval_id)


async def test_an_answer_that_is_good_for_less_than_all_others_ends_first(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"approvals": {"ttl_seconds": 3600}}) as harness:
        waits = await harness.call("fs.write", WRITE)
        short = await harness.call("fs.write", {**WRITE, "path": "b.txt"})
        soon = harness.gateway.clock.now_ms() + 1000
        await harness.approve(short.approval_id, scope=ApprovalScope.TIMEBOXED, expires_ms=soon)
        await ended(harness, short.approval_id)
        assert read_approval(harness.gateway.store, waits.approval_id or "").state is ApprovalState.PENDING


async def test_whoever_waits_is_told_that_the_time_is_over(tmp_path: Path) -> None:
    async with open_harness(tmp_path, {"approvals": {"ttl_seconds": 1}}) as harness, asyncio.timeout(60):
        record = await harness.call("fs.write", WRITE, wait_ms=60_000)
        assert record.state is CallState.DENIED and record.error is not None
        assert "expired" in str(record.error["message"])


async def test_a_full_disk_is_a_line_in_the_log_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(approve, "RETRY_SECONDS", 0.01)
    async with open_harness(tmp_path, {"approvals": {"ttl_seconds": 1}}) as harness:
        asked = await harness.call("fs.write", WRITE)
        transact, failures = harness.gateway.store.transact, [DiskFull("the disk is too full to record new work")]

        async def full(work: Any, **more: Any) -> Any:
            if failures:
                raise failures.pop()
            return await transact(work, **more)

        monkeypatch.setattr(harness.gateway.store, "transact", full)
        await ended(harness, asked.approval_id)
    (said,) = [each for each in caplog.records if "could not be expired" in each.message]
    assert said.levelname == "WARNING" and said.exc_info is None and "too full" in said.message


async def test_a_table_that_cannot_be_read_for_a_moment_does_not_end_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as when a flood has taken every descriptor that a new connection to the database would need."""
    monkeypatch.setattr(approve, "RETRY_SECONDS", 0.01)
    look, failures = approve.read_next_expiry_ms, [RuntimeError("odd"), JournalBusy("unable to open database file")]

    def failing(store: Any) -> int | None:
        if failures:
            raise failures.pop()
        return look(store)

    monkeypatch.setattr(approve, "read_next_expiry_ms", failing)
    async with open_harness(tmp_path, {"approvals": {"ttl_seconds": 1}}) as harness:
        asked = await harness.call("fs.write", WRITE)
        await ended(harness, asked.approval_id)
    assert [each.levelname for each in caplog.records if "could not be expired" in each.message] == ["WARNING", "ERROR"]
