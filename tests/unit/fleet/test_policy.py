"""The proxy's own policy: one meaning, one digest; nothing beyond it."""

import msgspec
import pytest

from palyra.fleet.egress.leases import BadEgressPolicy, BeyondPolicy
from palyra.fleet.egress.policy import WorkerEgressPolicy


def test_two_files_that_mean_the_same_have_one_digest() -> None:
    one = WorkerEgressPolicy.of({"allowed_hosts": ["B.example", "a.example:8080"], "static_hosts": {"B.example": []}})
    two = WorkerEgressPolicy.of(
        {"allowed_hosts": ["a.example:8080", "b.example.", "b.example"], "static_hosts": {"b.example": []}}
    )
    assert one == two and one.digest() == two.digest()
    assert len(one.digest()) == 64


def test_every_field_is_part_of_the_digest() -> None:
    plain = WorkerEgressPolicy.of({})
    changed = (
        {"allowed_hosts": ["a.example"]},
        {"private_targets": ["a.example"]},
        {"static_hosts": {"a.example": ["192.0.2.1"]}},
        {"upstream": "http://127.0.0.1:3128"},
        {"max_lease_bytes": 1},
        {"max_tunnels": 1},
        {"idle_ms": 1},
    )
    digests = {WorkerEgressPolicy.of(each).digest() for each in changed}
    assert len(digests) == len(changed) == len(msgspec.structs.fields(WorkerEgressPolicy))
    assert plain.digest() not in digests


@pytest.mark.parametrize(
    "document",
    [
        {"allowed_hosts": ["*"]},
        {"allowed_hosts": "a.example"},
        {"allow": ["a.example"]},
        {"max_lease_bytes": 0},
        {"max_tunnels": 1_000_000},
        {"idle_ms": -1},
        {"static_hosts": {"not a name!": ["192.0.2.1"]}},
        {"static_hosts": {"a.example": ["192.0.2.1"] * 33}},
        {"allowed_hosts": [f"h{number}.example" for number in range(4_097)]},
        [],
    ],
)
def test_what_is_no_policy_is_refused(document: object) -> None:
    with pytest.raises(BadEgressPolicy):
        WorkerEgressPolicy.of(document)


def test_a_grant_lies_within_the_policy_or_is_refused_whole() -> None:
    policy = WorkerEgressPolicy.of({"allowed_hosts": ["*.example.com", "db.example.com:5432"]})
    rules = policy.require_within(("a.example.com", "db.example.com:5432", "*.b.example.com"))
    assert [str(rule) for rule in rules] == ["a.example.com", "db.example.com:5432", "*.b.example.com"]
    for beyond in ("example.com", "a.example.com:22", "*.com.example", "evilexample.com"):
        with pytest.raises(BeyondPolicy):
            policy.require_within(("a.example.com", beyond))


def test_an_empty_policy_allows_nothing() -> None:
    assert WorkerEgressPolicy.of({}).require_within(()) == ()
    with pytest.raises(BeyondPolicy):
        WorkerEgressPolicy.of({}).require_within(("a.example",))
