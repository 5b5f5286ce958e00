from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.fleet_peers import numbered
from palyra.fleet.domain.attestation import ValidAttestation
from palyra.fleet.domain.placement import NoWorker, PlacementIndex
from palyra.fleet.domain.policy import PlacementRule, WorkerFleetPolicy
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.domain.worker import WorkerRecord

NOW = 1_000_000
POLICY = WorkerFleetPolicy(max_leases_per_worker=4)
NEEDS = frozenset(("tier.c",))


def worker(
    number: int, *, leases: int = 0, capabilities: tuple[str, ...] = ("tier.c",), **changes: Any
) -> WorkerRecord:
    attested = ValidAttestation(
        image_digest_sha256="",
        build_digest_sha256="",
        artifact_digest_sha256="",
        egress_id="",
        capabilities=frozenset(capabilities),
        key_id="p256:0",
        attested_ms=NOW,
        expires_ms=NOW + 10**9,
        session=1,
    )
    record = WorkerRecord(
        worker_id=numbered(number),
        state=State.BUSY if leases else State.AVAILABLE,
        name="w",
        daemon="d",
        boot_id="b",
        slots=4,
        connected=True,
        attested=attested,
        open_leases=tuple(numbered(1_000 * number + one) for one in range(leases)),
        registered_ms=0,
        since_ms=0,
        heard_ms=NOW,
    )
    return msgspec.structs.replace(record, **changes)


def index(*workers: WorkerRecord, rule: PlacementRule = PlacementRule.SPREAD) -> PlacementIndex:
    made = PlacementIndex(msgspec.structs.replace(POLICY, placement=rule))
    for one in workers:
        made.put(one)
    return made


def test_the_least_loaded_is_chosen_or_the_fullest() -> None:
    fleet = (worker(1, leases=2), worker(2, leases=1), worker(3, leases=3), worker(4, leases=4))
    assert index(*fleet).choose(NEEDS, NOW) == numbered(2)
    assert index(*fleet, rule=PlacementRule.PACK).choose(NEEDS, NOW) == numbered(3)


def test_load_is_a_share_not_a_number() -> None:
    assert index(worker(1, leases=1, slots=2), worker(2, leases=1, slots=4)).choose(NEEDS, NOW) == numbered(2)


def test_equals_take_turns() -> None:
    made = index(*(worker(number) for number in (1, 2, 3)))
    chosen = [made.choose(NEEDS, NOW) for _ in range(6)]
    assert sorted(chosen[:3]) == sorted(chosen[3:]) == [numbered(1), numbered(2), numbered(3)]
    # A worker whose lease has just ended stands behind one that waits longer.
    made = index(worker(1), worker(2))
    assert made.choose(NEEDS, NOW) == numbered(1)
    made.release(numbered(1))
    assert made.choose(NEEDS, NOW) == numbered(2)


def test_a_place_is_held_until_the_ledger_has_answered() -> None:
    made = index(worker(1, slots=1))
    assert made.choose(NEEDS, NOW) == numbered(1)
    with pytest.raises(NoWorker):
        made.choose(NEEDS, NOW)
    made.put(worker(1, slots=1, leases=1))
    made.release(numbered(1))
    with pytest.raises(NoWorker):
        made.choose(NEEDS, NOW)
    made.put(worker(1, slots=1))
    assert made.choose(NEEDS, NOW) == numbered(1)


def test_capabilities_are_all_needed_and_rare_ones_are_found() -> None:
    made = index(*(worker(n) for n in range(1, 50)), worker(99, leases=3, capabilities=("tier.c", "gpu")))
    assert made.choose(frozenset(("gpu", "tier.c")), NOW) == numbered(99)
    with pytest.raises(NoWorker):
        made.choose(frozenset(("gpu", "tier.c")), NOW)
    assert made.can_ever(frozenset(("gpu",))) and not made.can_ever(frozenset(("quantum",)))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": State.DRAINING},
        {"state": State.QUARANTINED},
        {"connected": False},
        {"attested": None},
        {"owes": (numbered(5),)},
    ],
)
def test_a_worker_that_can_get_nothing_is_left_out_and_comes_back(changes: dict[str, Any]) -> None:
    made = index(worker(1))
    made.put(worker(1, **changes))
    assert len(made) == 0
    with pytest.raises(NoWorker):
        made.choose(NEEDS, NOW)
    made.put(worker(1))
    assert made.choose(NEEDS, NOW) == numbered(1)
    made.forget(numbered(1))
    made.forget(numbered(1))
    made.release(numbered(1))
    assert len(made) == 0


def test_an_attestation_that_has_lapsed_is_seen_without_being_told() -> None:
    with pytest.raises(NoWorker):
        index(worker(1)).choose(NEEDS, NOW + POLICY.attestation_interval_ms)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8), st.sampled_from(PlacementRule)
)
def test_every_free_place_is_given_out_and_no_other(shapes: list[tuple[int, int]], rule: PlacementRule) -> None:
    fleet = [worker(n + 1, slots=slots, leases=min(leases, slots)) for n, (slots, leases) in enumerate(shapes)]
    made = index(*fleet, rule=rule)
    free = Counter({one.worker_id: one.room(POLICY) for one in fleet if one.room(POLICY)})
    assert made.free == free.total()
    assert Counter(made.choose(NEEDS, NOW) for _ in range(free.total())) == free
    with pytest.raises(NoWorker):
        made.choose(NEEDS, NOW)
    assert made.free == 0
    for one in fleet:
        for _ in range(free[one.worker_id]):
            made.release(one.worker_id)
    assert made.free == free.total()
    for one in fleet:
        made.forget(one.worker_id)
    assert made.free == 0 and len(made) == 0
