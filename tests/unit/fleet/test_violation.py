"""What is held against a worker, and how often it is reported."""

import pytest

from palyra.egress.domain.events import Refused
from palyra.egress.domain.refusal import AddressForbidden, HostNotAllowed, Unreachable
from palyra.fleet import limits
from palyra.fleet.egress.leases import AccessState, LeaseAccess, LeaseGrant
from palyra.fleet.egress.violations import LEASE_OUTLIVED, Held, ViolationFilter, find_late_request, find_violation

GRANT = LeaseGrant(worker_id="w", lease_id="l", fence=1, hosts=("ok.example",))
RUNNING = LeaseAccess(grant=GRANT, state=AccessState.SERVING, ends_ms=1_000)
OVER = LeaseAccess(grant=GRANT, state=AccessState.ENDING, ends_ms=1_000, ended_ms=1_000)
LATE = 1_000 + limits.ENDED_GRACE_MS


def refused(host: str, kind: type = HostNotAllowed, port: int = 443) -> Refused:
    return Refused.of(kind("no", host=host, port=port), "connect")


def test_what_honest_programs_cause_is_find_violation_nobody() -> None:
    assert find_violation(RUNNING, refused("ok.example", Unreachable), 0) is None


@pytest.mark.parametrize("access", [RUNNING, OVER])
def test_what_was_never_allowed_counts_at_any_time(access: LeaseAccess) -> None:
    assert find_violation(access, refused("bad.example"), 1_001) == Held("egress.host_not_allowed", "bad.example", 443)
    assert find_violation(access, refused("ok.example", port=22), 1_001) == Held(
        "egress.host_not_allowed", "ok.example", 22
    )
    assert find_violation(access, refused("", AddressForbidden, 0), 1_001) == Held("egress.address_forbidden", "", 0)


@pytest.mark.promise("P-worker-network")
def test_traffic_of_an_ended_lease_is_a_violation_once_its_worker_had_time() -> None:
    assert find_violation(OVER, refused("ok.example"), LATE - 1) is None
    assert find_violation(OVER, refused("ok.example"), LATE) == Held(LEASE_OUTLIVED, "ok.example", 443)
    # A question of names has no port.
    assert find_violation(OVER, refused("ok.example", port=0), LATE - 1) is None
    assert find_violation(OVER, refused("ok.example", port=0), LATE) == Held(LEASE_OUTLIVED, "ok.example", 0)


def test_a_door_asked_for_long_after_the_end_is_one_too() -> None:
    assert find_late_request(RUNNING, LATE) is None
    assert find_late_request(OVER, LATE - 1) is None
    assert find_late_request(OVER, LATE) == Held(LEASE_OUTLIVED, "", 0)


@pytest.mark.promise("P-limits")
def test_each_kind_is_told_once_and_a_flood_is_cut() -> None:
    violations = ViolationFilter()
    first = Held("egress.host_not_allowed", "a.example", 443)
    assert violations.count("l", first) == 1
    assert violations.count("l", first) == 0
    assert violations.count("other", first) == 1
    kinds = [Held("egress.host_not_allowed", f"h{number}.example", 443) for number in range(100)]
    assert sum(violations.count("l", each) > 0 for each in kinds) == limits.MAX_VIOLATIONS_PER_LEASE - 1
    violations.keep_only(frozenset(("other",)))
    assert violations.count("l", first) == 1 and violations.count("other", first) == 0
