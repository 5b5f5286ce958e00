from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import FleetPeers, a_lease, numbered
from palyra.errors import PalyraError
from palyra.fleet.domain.settlement import (
    CleanupForAnother,
    CleanupIncomplete,
    CleanupOutOfTime,
    CleanupProof,
    require_authentic,
    require_clean,
)
from palyra.fleet.limits import MAX_CLOCK_SKEW_MS

NOW = 20_000
LEASE = a_lease()


def proof(**changes: Any) -> CleanupProof:
    return msgspec.structs.replace(FleetPeers().statement(LEASE, NOW).cleanup, **changes)


def test_an_honest_look_passes() -> None:
    require_authentic(proof(), LEASE, NOW)
    require_clean(proof())


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"lease_id": numbered(8)}, CleanupForAnother),
        ({"fence": 4}, CleanupForAnother),
        ({"nonce": "11" * 32}, CleanupForAnother),
        ({"entries_left": -1}, CleanupForAnother),
        ({"ended_ms": NOW, "checked_ms": NOW - 1}, CleanupOutOfTime),
        ({"checked_ms": NOW + MAX_CLOCK_SKEW_MS + 1}, CleanupOutOfTime),
        ({"ended_ms": LEASE.granted_ms - MAX_CLOCK_SKEW_MS - 1}, CleanupOutOfTime),
    ],
)
def test_what_no_honest_worker_states(changes: dict[str, Any], refusal: type[PalyraError]) -> None:
    with pytest.raises(refusal):
        require_authentic(proof(**changes), LEASE, NOW)


@pytest.mark.parametrize("name", ["entries_left", "processes_left", "mounts_left"])
def test_whatever_is_left_is_named(name: str) -> None:
    with pytest.raises(CleanupIncomplete, match="still had 2"):
        require_clean(proof(**{name: 2}))
