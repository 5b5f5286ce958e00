import msgspec
import pytest

from palyra.config.setting_types import InvalidSetting
from palyra.daemon.settings import Settings, check_together
from palyra.fleet.domain.policy import PlacementRule, WorkerFleetPolicy, WorkerFleetSettings

OWN = "cd" * 32


def test_the_defaults_are_those_of_the_policy_with_the_daemons_own_build() -> None:
    assert WorkerFleetSettings().policy(OWN) == WorkerFleetPolicy(build_digests=frozenset((OWN,)))


def test_any_build_is_taken_only_where_the_operator_says_so() -> None:
    assert WorkerFleetSettings(build_digests=("any",)).policy(OWN).build_digests is None


def test_what_is_pinned_is_pinned_and_seconds_are_milliseconds() -> None:
    digest = "ab" * 32
    policy = WorkerFleetSettings(
        build_digests=(digest,), heartbeat_seconds=0.5, heartbeat_timeout_seconds=1.5, placement="pack"
    ).policy(OWN)
    assert policy.build_digests == frozenset((digest,)) and policy.image_digests is None
    assert (policy.heartbeat_interval_ms, policy.heartbeat_timeout_ms) == (500, 1_500)
    assert policy.placement is PlacementRule.PACK


def test_values_that_make_no_sense_together_are_refused_with_the_settings() -> None:
    odd = WorkerFleetSettings(heartbeat_seconds=10, heartbeat_timeout_seconds=15)
    with pytest.raises(InvalidSetting):
        check_together(msgspec.structs.replace(Settings(), workers=odd))
