"""What the proxy knows of leases: granted by the daemon's word only, ended by it or by time, never again after."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.egress.leases import (
    AccessState,
    FenceDiffers,
    LeaseGrant,
    LeaseNotGranted,
    LeaseOver,
    LeaseRef,
    LeaseRegistry,
    OtherWorker,
    TooManyLeases,
)


def a_grant(lease_id: str = "l1", fence: int = 3, **more: object) -> LeaseGrant:
    return LeaseGrant(worker_id="w1", lease_id=lease_id, fence=fence, **{"timeout_ms": 1_000, **more})  # type: ignore[arg-type]


REF = LeaseRef("l1", 3)


def test_only_what_was_granted_to_this_worker_is_found() -> None:
    registry = LeaseRegistry()
    with pytest.raises(LeaseNotGranted):
        registry.require("w1", REF)
    registry.add(a_grant(), 0)
    assert registry.require("w1", REF).state is AccessState.GRANTED
    with pytest.raises(OtherWorker):
        registry.require("w2", REF)
    for fence in (2, 4):
        with pytest.raises(FenceDiffers):
            registry.require("w1", LeaseRef("l1", fence))


def test_a_grant_told_again_is_not_longer() -> None:
    registry = LeaseRegistry()
    registry.add(a_grant(), 0)
    registry.add(a_grant(timeout_ms=9_000, hosts=("more.example",)), 500)
    known = registry.require("w1", REF)
    assert (known.ends_ms, known.grant.hosts) == (1_000, ())


def test_the_bytes_of_earlier_doors_are_gone() -> None:
    registry = LeaseRegistry()
    registry.add(a_grant(), 0)
    for moved in (10, 20):
        registry.open(registry.require("w1", REF))
        registry.close(registry.require("w1", REF), moved)
    assert registry.require("w1", REF).spent == 30


def test_the_deadline_ends_a_lease_whatever_the_daemon_says() -> None:
    registry = LeaseRegistry()
    registry.add(a_grant(), 0)
    registry.open(registry.require("w1", REF))
    assert registry.end_overdue(999) == []
    (over,) = registry.end_overdue(1_000)
    assert (over.state, over.ended_ms) == (AccessState.ENDING, 1_000)
    assert registry.end_overdue(2_000) == [] and registry.end(REF, 2_000) is None
    with pytest.raises(LeaseOver):
        registry.open(registry.require("w1", REF))
    assert registry.close(over, 5).state is AccessState.ENDED


def test_what_a_whole_list_leaves_out_is_over() -> None:
    registry = LeaseRegistry()
    for number in range(3):
        registry.add(a_grant(f"l{number}", number + 1), 0)
    over = registry.reconcile([LeaseRef("l0", 1), LeaseRef("l1", 99)], 10)
    assert sorted(each.grant.lease_id for each in over) == ["l1", "l2"]
    assert not registry.require("w1", LeaseRef("l0", 1)).is_over


def test_an_ended_lease_is_not_granted_again_by_an_old_order() -> None:
    registry = LeaseRegistry()
    registry.add(a_grant(), 0)
    assert registry.end(REF, 1) is not None
    registry.add(a_grant(), 2)
    assert registry.require("w1", REF).is_over
    # Of a lease that nobody told of there is nothing to end.
    assert registry.end(LeaseRef("other", 1), 1) is None
    # An end with an older fencing number is about an older holder.
    registry.add(a_grant("l9", 9), 0)
    assert registry.end(LeaseRef("l9", 8), 1) is None


def test_ended_leases_are_forgotten_late_and_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = LeaseRegistry()
    registry.add(a_grant(), 0)
    registry.end(REF, 10)
    registry.end_overdue(10 + limits.ENDED_KEPT_MS - 1)
    assert registry.ids() == {"l1"}
    registry.end_overdue(10 + limits.ENDED_KEPT_MS)
    assert registry.ids() == frozenset() and registry.find("l1") is None
    monkeypatch.setattr(limits, "MAX_LEASES_KEPT", 2)
    for number in (1, 2):
        registry.add(a_grant(f"l{number}", number), 0)
    with pytest.raises(TooManyLeases):
        registry.add(a_grant("l3", 3), 0)
    registry.end(LeaseRef("l1", 1), 5)
    registry.add(a_grant("l3", 3), 6)
    assert registry.ids() == {"l2", "l3"}


@given(
    some.lists(
        some.tuples(some.sampled_from(("grant", "open", "close", "end", "whole", "due")), some.integers(0, 3)),
        max_size=40,
    )
)
def test_in_any_order_a_lease_that_ended_stays_so(steps: list[tuple[str, int]]) -> None:
    registry, over, now = LeaseRegistry(), set(), 0
    for step, number in steps:
        now += 100
        ref = LeaseRef(f"l{number}", number)
        try:
            match step:
                case "grant":
                    registry.add(a_grant(ref.lease_id, ref.fence), now)
                case "open":
                    opened = registry.open(registry.require("w1", ref))
                    assert ref not in over and opened.state is AccessState.SERVING
                case "close":
                    registry.close(registry.require("w1", ref), 1)
                case "end":
                    registry.end(ref, now)
                case "whole":
                    registry.reconcile([ref], now)
                case "due":
                    registry.end_overdue(now)
        except PalyraError as refused:
            assert refused.code.startswith("worker_egress.")
        over |= {
            LeaseRef(each.grant.lease_id, each.grant.fence)
            for each in map(registry.find, registry.ids())
            if each is not None and each.is_over
        }
        for each in over:
            found = registry.find(each.lease_id)
            assert found is not None and found.is_over
