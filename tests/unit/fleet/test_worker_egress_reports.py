"""Reports: offered on every connection until they are acknowledged, each kind once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.clock import SystemClock
from palyra.fleet import limits
from palyra.fleet.egress.leases import LeaseGrant
from palyra.fleet.egress.violations import Held, ViolationReports, ViolationSpool

BAD = Held("egress.host_not_allowed", "evil.test", 443)


def grant(lease_id: str = "l1") -> LeaseGrant:
    return LeaseGrant(worker_id="w", lease_id=lease_id, fence=1)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[ViolationSpool]:
    made = ViolationSpool(tmp_path, SystemClock().now_ms)
    yield made
    made.close()


async def test_a_report_is_offered_until_it_is_acknowledged(spool: ViolationSpool) -> None:
    reports = ViolationReports(spool, SystemClock())
    reports.hold(grant(), BAD)
    reports.hold(grant(), BAD)
    for _ in range(2):
        # Two connections, of which the first was lost before an answer came.
        offered = reports.unacknowledged()
        first = await anext(offered)
        assert first.violation.host == "evil.test"
        await offered.aclose()
    offered = reports.unacknowledged()
    await anext(offered)
    reports.on_receipt(first.sequence, "")
    later = asyncio.ensure_future(anext(offered))
    await asyncio.sleep(0)
    reports.hold(grant("l2"), BAD)
    assert (await asyncio.wait_for(later, 20)).violation.lease_id == "l2"
    assert len(spool) == 1
    await offered.aclose()


@pytest.mark.parametrize("code", ["worker.foreign_egress", "worker.unknown"])
async def test_what_the_daemon_did_not_believe_is_not_told_for_ever(spool: ViolationSpool, code: str) -> None:
    reports = ViolationReports(spool, SystemClock())
    reports.hold(grant(), BAD)
    reports.on_receipt(spool.waiting()[0].sequence, code)
    assert len(spool) == 0


async def test_what_the_daemon_could_not_take_is_offered_again(
    spool: ViolationSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OFFERED_AGAIN_SECONDS", 0.01)
    reports = ViolationReports(spool, SystemClock())
    reports.hold(grant(), BAD)
    offered = reports.unacknowledged()
    first = await anext(offered)
    reports.on_receipt(first.sequence, "journal.full")
    assert await asyncio.wait_for(anext(offered), 20) == first and len(spool) == 1
    await offered.aclose()


async def test_a_flood_is_cut_and_a_new_lease_is_still_heard(
    spool: ViolationSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SPOOLED", 4)
    reports = ViolationReports(spool, SystemClock())
    for number in range(50):
        reports.hold(grant(), Held("egress.host_not_allowed", f"h{number}.test", 443))
    assert len(spool) == 4
    reports.hold(grant("l2"), BAD)
    assert [each.violation.lease_id for each in spool.waiting()][-1] == "l2"
    reports.filter.keep_only(frozenset(("l2",)))
    reports.hold(grant("l1"), BAD)
    assert len(spool) == 6
