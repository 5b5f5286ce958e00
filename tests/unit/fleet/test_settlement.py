import msgspec
import pytest

from fakes.fleet_peers import FleetPeers, a_lease
from palyra.fleet.domain.attestation import sign_attestation
from palyra.fleet.domain.settlement import open_settlement, settlement_digest, sign_settlement
from palyra.signing.dsse import BadSignature


def test_a_settlement_is_read_as_it_was_signed_and_by_its_signer_only(peers: FleetPeers) -> None:
    statement = peers.statement(a_lease(), 20_000)
    signed = sign_settlement(statement, peers.key("a"))
    assert open_settlement(signed, peers.key("a").verifier()) == statement
    with pytest.raises(BadSignature):
        open_settlement(signed, peers.key("b").verifier())


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
        open_settlement(sign_attestation(peers.attestation(worker, 0), peers.key("a")), peers.key("a").verifier())


def test_the_digest_tells_a_repetition_from_a_second_opinion(peers: FleetPeers) -> None:
    statement = peers.statement(a_lease(), 20_000)
    once, again = (sign_settlement(statement, peers.key("a")) for _ in range(2))
    other = sign_settlement(msgspec.structs.replace(statement, output_bytes=11), peers.key("a"))
    assert settlement_digest(once) == settlement_digest(again) != settlement_digest(other)
