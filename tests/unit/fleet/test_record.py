from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import POLICY, WORKER, numbered
from palyra.errors import PalyraError
from palyra.fleet.domain.attestation import ValidAttestation
from palyra.fleet.domain.worker import LEASABLE, StaleSession, WorkerRecord
from palyra.fleet.domain.worker import WorkerLifecycleState as State

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
    session=3,
)
READY = WorkerRecord(
    worker_id=WORKER,
    state=State.AVAILABLE,
    name="w",
    daemon="d",
    boot_id="b",
    slots=4,
    session=3,
    connected=True,
    attested=ATTESTED,
    registered_ms=0,
    since_ms=0,
    heard_ms=NOW,
)


def changed(**changes: Any) -> WorkerRecord:
    return msgspec.structs.replace(READY, **changes)


def test_a_ready_worker_is_ready() -> None:
    READY.require_ready(POLICY, NOW)
    READY.require_session(3)
    READY.require_attested(POLICY, NOW)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        *(({"state": state}, "worker.not_ready") for state in State if state not in LEASABLE),
        ({"connected": False}, "worker.not_ready"),
        ({"heard_ms": NOW - POLICY.heartbeat_timeout_ms}, "worker.not_ready"),
        ({"attested": None}, "worker.not_ready"),
        ({"session": 4}, "worker.not_ready"),
        ({"attested": msgspec.structs.replace(ATTESTED, expires_ms=NOW)}, "worker.not_ready"),
        (
            {"attested": msgspec.structs.replace(ATTESTED, attested_ms=NOW - POLICY.attestation_interval_ms)},
            "worker.not_ready",
        ),
        ({"owes": (numbered(5),)}, "worker.not_ready"),
        ({"open_leases": (numbered(5), numbered(6))}, "worker.full"),
        ({"slots": 0}, "worker.full"),
    ],
)
def test_every_reason_not_to_give_it_work(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(PalyraError) as raised:
        changed(**changes).require_ready(POLICY, NOW)
    assert raised.value.code == code


@pytest.mark.parametrize(("changes", "session"), [({}, 2), ({}, 4), ({"connected": False}, 3)])
def test_only_the_present_connection_speaks(changes: dict[str, Any], session: int) -> None:
    with pytest.raises(StaleSession):
        changed(**changes).require_session(session)
    assert changed(connected=False).live_session == 0 and READY.live_session == 3


@pytest.mark.parametrize(
    ("changes", "awaited"),
    [
        ({}, True),
        ({"connected": False, "state": State.OFFLINE}, False),
        ({"connected": False, "state": State.BUSY}, True),
        ({"connected": True, "state": State.QUARANTINED}, True),
        ({"connected": False, "state": State.DRAINING}, False),
        ({"connected": False, "state": State.DRAINING, "open_leases": (numbered(5),)}, True),
        ({"connected": False, "state": State.REMOVED}, False),
    ],
)
def test_whose_silence_means_something(changes: dict[str, Any], awaited: bool) -> None:
    worker = changed(**changes)
    assert worker.awaited is awaited
    assert worker.silent_at(POLICY, NOW + POLICY.heartbeat_timeout_ms) is awaited
    assert not worker.silent_at(POLICY, NOW + POLICY.heartbeat_timeout_ms - 1)
