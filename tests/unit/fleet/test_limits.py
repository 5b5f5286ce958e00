import pytest

from palyra.fleet import limits
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.limits import MAX_CALL_TIMEOUT_MS


@pytest.mark.promise("P-limits")
def test_the_bounds_fit_each_other() -> None:
    assert limits.MAX_LEASE_TTL_MS >= MAX_CALL_TIMEOUT_MS
    assert limits.MAX_ARTIFACT_BYTES <= limits.MAX_ARTIFACTS_BYTES
    # An orphan is given up within the heartbeat timeout and a second, the reaper's round included.
    assert limits.REAPER_INTERVAL_MS <= 1_000
    # A full list of capabilities fits a statement; a full list of artifacts does not, and is bounded by the statement.
    assert limits.MAX_CAPABILITIES * (limits.MAX_CAPABILITY_CHARS + 3) < limits.MAX_STATEMENT_BYTES
    # Duplicates are recognised for longer than any lease lives.
    assert WorkerFleetPolicy().lease_ttl_ms + WorkerFleetPolicy().settle_grace_ms <= limits.KEPT_AFTER_END_MS
