"""The bounds fit each other."""

from palyra.fleet import limits
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.limits import MAX_ATTESTATION_LIFE_MS, MAX_SLOTS
from palyra.sandbox.limits import MAX_ALLOWED_PORTS


def test_the_bounds_fit_each_other() -> None:
    # Every door that a sandbox may plan can be handed over, within what one packet carries (SCM_MAX_FD is 253).
    assert MAX_ALLOWED_PORTS + 3 <= limits.MAX_LISTENER_SOCKETS <= 253
    # Whoever is told of a lease's end has as long as to settle it before its traffic counts.
    assert WorkerFleetPolicy().settle_grace_ms <= limits.ENDED_GRACE_MS
    assert limits.ENDED_KEPT_MS > limits.ENDED_GRACE_MS
    assert WorkerFleetPolicy().attestation_interval_ms < limits.BINDING_LIFE_MS <= MAX_ATTESTATION_LIFE_MS
    assert limits.MAX_LEASES_KEPT >= 4 * MAX_SLOTS and limits.MAX_REQUESTS_AT_ONCE >= MAX_SLOTS
    assert limits.SPOOL_REWRITTEN_BYTES < limits.MAX_SPOOL_BYTES
