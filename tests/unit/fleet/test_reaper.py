from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import POLICY, WORKER, a_lease, numbered
from palyra.fleet.domain.attestation import ValidAttestation
from palyra.fleet.domain.commands import Challenge, ClaimCleanup, DeclareLost, ExpireLease, LapseAttestation
from palyra.fleet.domain.lease import LeaseState
from palyra.fleet.domain.manager import NEVER_MS, Candidates, due, look_again_ms
from palyra.fleet.domain.worker import WorkerLifecycleState as State
from palyra.fleet.domain.worker import WorkerRecord

NOW = 1_000_000
ATTESTED = ValidAttestation(
    image_digest_sha256="",
    build_digest_sha256="",
    artifact_digest_sha256="",
    egress_id="",
    capabilities=frozenset(),
    key_id="p256:0",
    attested_ms=NOW,
    expires_ms=NOW + 10**9,
    session=1,
)
WELL = WorkerRecord(
    worker_id=WORKER,
    state=State.AVAILABLE,
    name="w",
    daemon="d",
    boot_id="b",
    slots=4,
    connected=True,
    attested=ATTESTED,
    registered_ms=0,
    since_ms=0,
    heard_ms=NOW,
)
CHALLENGE_MS = NOW + POLICY.challenge_after_ms()
LAPSE_MS = NOW + POLICY.attestation_interval_ms


def kinds(now_ms: int, **changes: Any) -> list[type]:
    worker = msgspec.structs.replace(WELL, **{"heard_ms": now_ms, **changes})
    return [type(one) for one in due(Candidates(workers=(worker,)), POLICY, now_ms, lambda: "n")]


def test_nothing_is_due_for_a_worker_that_is_well() -> None:
    assert kinds(NOW) == []


@pytest.mark.parametrize(
    ("now_ms", "changes", "expected"),
    [
        (NOW + POLICY.heartbeat_timeout_ms, {"heard_ms": NOW}, [DeclareLost]),
        (NOW + POLICY.heartbeat_timeout_ms - 1, {"heard_ms": NOW}, []),
        # For a silent worker nothing else matters.
        (LAPSE_MS, {"heard_ms": NOW}, [DeclareLost]),
        (CHALLENGE_MS - 1, {}, []),
        (CHALLENGE_MS, {}, [Challenge]),
        # It has been asked, and has time to answer.
        (CHALLENGE_MS + 1, {"nonce": "n", "nonce_ms": CHALLENGE_MS}, []),
        (CHALLENGE_MS + POLICY.nonce_life_ms, {"nonce": "n", "nonce_ms": CHALLENGE_MS}, [Challenge]),
        (LAPSE_MS, {}, [LapseAttestation, Challenge]),
        (NOW, {"state": State.REGISTERED, "attested": None}, [Challenge]),
        (NOW, {"state": State.BUSY, "attested": None, "open_leases": (numbered(5),)}, [Challenge]),
        (NOW, {"state": State.ORPHANED, "attested": None}, [Challenge]),
        (NOW, {"state": State.QUARANTINED, "attested": None}, []),
        (NOW, {"state": State.OFFLINE, "attested": None, "connected": False}, []),
        (NOW + POLICY.settle_grace_ms, {"owes": (numbered(5),), "owes_since_ms": NOW}, [ClaimCleanup]),
        (NOW + POLICY.settle_grace_ms - 1, {"owes": (numbered(5),), "owes_since_ms": NOW}, []),
    ],
)
def test_what_is_due_when(now_ms: int, changes: dict[str, Any], expected: list[type]) -> None:
    assert kinds(now_ms, **changes) == expected


@pytest.mark.parametrize("state", LeaseState)
def test_open_leases_end_after_their_grace(state: LeaseState) -> None:
    lease = a_lease(state=state)
    found = due(Candidates(leases=(lease,)), POLICY, lease.due_ms(POLICY), lambda: "n")
    assert found == ([ExpireLease(actor="palyrad", lease_id=lease.lease_id)] if lease.is_open else [])
    assert due(Candidates(leases=(lease,)), POLICY, lease.due_ms(POLICY) - 1, lambda: "n") == []


def test_a_ledger_looks_again_exactly_when_something_is_due() -> None:
    for changes in (
        {},
        {"owes": (numbered(5),), "owes_since_ms": NOW},
        {"nonce": "n", "nonce_ms": NOW},
        {"state": State.REGISTERED, "attested": None},
        {"state": State.REGISTERED, "attested": None, "nonce": "n", "nonce_ms": NOW},
    ):
        instant = look_again_ms(msgspec.structs.replace(WELL, **changes), POLICY)  # type: ignore[arg-type]
        assert kinds(max(instant, NOW), **changes) != []
        assert instant == 0 or kinds(instant - 1, **changes) == []
    gone = msgspec.structs.replace(WELL, state=State.OFFLINE, attested=None, connected=False)
    assert look_again_ms(gone, POLICY) == NEVER_MS
