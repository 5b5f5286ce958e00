from typing import Any

import pytest

from fakes.fleet_peers import OTHER, START_MS, WORKER, FleetPeers, a_lease
from palyra.fleet.domain.settlement import (
    CleanupForAnother,
    LeaseDisclaimer,
    LeaseSettlement,
    require_current,
)
from palyra.fleet.domain.signed_statement import open_statement, sign_statement
from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerRecord
from palyra.signing.dsse import BadSignature

LEASE = a_lease(granted_ms=START_MS)
RECORD = WorkerRecord(
    worker_id=WORKER,
    state=WorkerLifecycleState.AVAILABLE,
    name="n",
    daemon="d",
    boot_id="boot-1",
    slots=1,
    session=3,
    registered_ms=0,
    since_ms=0,
)


def test_it_is_read_as_it_was_signed_and_by_nobody_elses_key(peers: FleetPeers) -> None:
    said = peers.disclaimer(LEASE, RECORD, START_MS)
    signed = sign_statement(said, peers.key(WORKER))
    assert open_statement(LeaseDisclaimer, signed, peers.key(WORKER).verifier()) == said
    with pytest.raises(BadSignature):
        open_statement(LeaseDisclaimer, signed, peers.key(OTHER).verifier())


def test_neither_it_nor_a_settlement_passes_for_the_other(peers: FleetPeers) -> None:
    key = peers.key(WORKER)
    with pytest.raises(BadSignature):
        open_statement(LeaseSettlement, sign_statement(peers.disclaimer(LEASE, RECORD, START_MS), key), key.verifier())
    with pytest.raises(BadSignature):
        open_statement(LeaseDisclaimer, sign_statement(peers.statement(LEASE, START_MS), key), key.verifier())


@pytest.mark.parametrize(
    "changes", [{"worker_id": OTHER}, {"boot_id": "boot-2"}, {"session": 2}, {"session": 4}, {"workspace": "8:1"}]
)
def test_it_is_for_one_worker_one_life_one_connection_and_no_workspace(
    peers: FleetPeers, changes: dict[str, Any]
) -> None:
    require_current(peers.disclaimer(LEASE, RECORD, START_MS), RECORD)
    with pytest.raises(CleanupForAnother):
        require_current(peers.disclaimer(LEASE, RECORD, START_MS, **changes), RECORD)
