"""What the daemon tells a proxy: its own worker's leases, all of them at first, then what changes."""

import pytest

from palyra.egress.domain.rules import BadHostRule
from palyra.fleet import limits
from palyra.fleet.egress.leases import LeaseGrant, LeaseRef
from palyra.fleet.server.lease_grants import LeaseGrants, OrderQueue


def grant(lease_id: str, **more: object) -> LeaseGrant:
    return LeaseGrant(worker_id="w", lease_id=lease_id, fence=1, timeout_ms=1, **more)  # type: ignore[arg-type]


def test_a_proxy_is_told_of_its_own_leases_only() -> None:
    grants = LeaseGrants()
    changes: list[str] = []
    assert not grants.grant("e1", grant("a"))
    assert not grants.grant("e2", grant("b"))
    whole, queue = grants.attach("e1", [LeaseRef("older", 1)])
    assert whole.whole and [each.lease_id for each in whole.granted] == ["a"]
    assert [each.lease_id for each in whole.still_open] == ["a", "older"]
    _, other = grants.attach("e2", [])
    queue.changed, other.changed = lambda: changes.append("e1"), lambda: changes.append("e2")
    assert queue.take() is None
    assert grants.grant("e1", grant("c")) and not grants.grant("e3", grant("d"))
    grants.end("a")
    grants.end("nobody knows it")
    orders = queue.take()
    assert orders is not None and not orders.whole
    assert [each.lease_id for each in orders.granted] == ["c"] and orders.ended == (LeaseRef("a", 1),)
    # A thousand other proxies are not woken for it.
    assert changes == ["e1", "e1"] and len(grants._grants) == 3


def test_the_newest_follower_is_the_one() -> None:
    grants = LeaseGrants()
    _, old = grants.attach("e1", [])
    woken: list[int] = []
    old.changed = lambda: woken.append(1)
    _, new = grants.attach("e1", [])
    assert woken and grants.is_followed_by("e1", new) and not grants.is_followed_by("e1", old)
    grants.detach("e1", old)
    assert grants.grant("e1", grant("a")) and old.take() is None
    grants.detach("e1", new)
    assert not grants.grant("e1", grant("b"))


def test_one_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ORDERS_WAITING", 2)
    queue = OrderQueue()
    for _ in range(3):
        queue.add(ended=LeaseRef("a", 1))
    assert queue.overrun


def test_a_grant_with_no_host_rule_is_refused_before_anybody_is_told() -> None:
    grants = LeaseGrants()
    with pytest.raises(BadHostRule):
        grants.grant("e1", grant("a", hosts=("*",)))
    assert len(grants._grants) == 0
