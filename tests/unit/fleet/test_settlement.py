import msgspec
import pytest

from fakes.fleet_peers import FleetPeers, a_lease
from palyra.fleet.domain.settlement import LeaseSettlement, settlement_digest
from palyra.fleet.domain.signed_statement import open_statement, sign_statement
from palyra.signing.dsse import BadSignature


def test_a_settlement_is_read_as_it_was_signed_and_by_its_signer_only(peers: FleetPeers) -> None:
    statement = peers.statement(a_lease(), 20_000)
    signed = sign_statement(statement, peers.key("a"))
    assert open_statement(LeaseSettlement, signed, peers.key("a").verifier()) == statement
    with pytest.raises(BadSignature):
        open_statement(LeaseSettlement, signed, peers.key("b").verifier())


def test_no_other_statement_passes_for_one(peers: FleetPeers) -> None:
    from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerRecord

    worker = WorkerRecord(
        worker_id="a",
        state=WorkerLifecycleState.REGISTERED,
        name="",
        daemon="",
        boot_id="",
        slots=1,
        registered_ms=0,
        since_ms=0,
    )
    with pytest.raises(BadSignature):
        other_type = sign_statement(peers.attestation(worker, 0), peers.key("a"))
        open_statement(LeaseSettlement, other_type, peers.key("a").verifier())


def test_the_digest_tells_a_repetition_from_a_second_opinion(peers: FleetPeers) -> None:
    statement = peers.statement(a_lease(), 20_000)
    once, again = (sign_statement(statement, peers.key("a")) for _ in range(2))
    other = sign_statement(msgspec.structs.replace(statement, output_bytes=11), peers.key("a"))
    assert settlement_digest(once) == settlement_digest(again) != settlement_digest(other)
