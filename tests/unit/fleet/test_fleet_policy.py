from typing import Any

import msgspec
import pytest

from palyra.fleet.domain.policy import InvalidFleetPolicy, PlacementRule, WorkerFleetPolicy


def test_the_defaults_are_strict() -> None:
    policy = WorkerFleetPolicy()
    assert policy.require_egress_binding and not policy.retry_lost and policy.placement is PlacementRule.SPREAD
    assert policy.challenge_after_ms() + policy.nonce_life_ms < policy.attestation_interval_ms


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    "changes",
    [
        {"max_workers": 0},
        {"max_workers": 10_001},
        {"max_leases_per_worker": 0},
        {"lease_ttl_ms": 0},
        {"settle_grace_ms": 0},
        {"heartbeat_interval_ms": 99},
        {"heartbeat_interval_ms": 5_000, "heartbeat_timeout_ms": 9_999},
        {"attestation_interval_ms": 86_400_001},
        {"nonce_life_ms": 0},
        {"max_attempts": 11},
        {"image_digests": frozenset(("AB" * 32,))},
        {"build_digests": frozenset(("",))},
        {"artifact_digests": frozenset(("a" * 63,))},
        {"egress_policy_digests": frozenset(("sha256:" + "a" * 64,))},
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidFleetPolicy, match=list(changes)[-1]):
        WorkerFleetPolicy(**changes)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="max_worker"):
        msgspec.convert({"max_worker": 3}, WorkerFleetPolicy)
