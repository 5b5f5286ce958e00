"""Messages as values: what cannot be read is declined, what is signed verifies."""

import hashlib

import msgspec
import pytest

from fakes.lease_offers import OFFER
from palyra.fleet.agent.lease import BadOffer, LeaseEnd, LeaseNote
from palyra.fleet.agent.link import read_offer, to_settlement_event
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.settlement import CleanupProof, LeaseSettlement
from palyra.fleet.domain.signed_statement import SignedStatement, open_statement
from palyra.signing.p256 import P256Signer
from palyra.signing.tool_attestation import execution_sha256, verify_attestation
from palyra.wire.worker.v1 import worker_pb2 as wire

RAW = b'{"text":"hi"}'
SENT = wire.LeaseOffer(
    lease_id=OFFER.lease_id,
    fence=1,
    run_id="r",
    call_id="c",
    principal="agent:a",
    tool="echo",
    arguments_json=RAW,
    argument_digest=hashlib.sha256(RAW).hexdigest(),
    scope=wire.WorkspaceScope(root="/srv/work", allowed_paths=["src"], read_only=True),
    nonce="0" * 64,
    timeout_ms=60_000,
    max_output_bytes=1000,
)


def test_an_offer_is_read_as_it_was_meant() -> None:
    assert read_offer(SENT) == OFFER


@pytest.mark.parametrize(
    ("field", "value"), [("arguments_json", b"{}"), ("obligations_json", b'{"x":1}'), ("argument_digest", "")]
)
def test_an_offer_that_cannot_be_read_is_refused(field: str, value: object) -> None:
    sent = wire.LeaseOffer()
    sent.CopyFrom(SENT)
    setattr(sent, field, value)
    with pytest.raises(BadOffer):
        read_offer(sent)


class Key:
    def __init__(self) -> None:
        self.signer = P256Signer.generate()
        self.key_id = self.signer.verifier().key_id

    def sign(self, message: bytes) -> bytes:
        return self.signer.sign(message)

    def public_key(self) -> bytes:
        return b""


def test_a_settlement_verifies_in_every_part() -> None:
    proof = CleanupProof(
        lease_id=OFFER.lease_id,
        fence=1,
        nonce=OFFER.nonce,
        workspace="",
        ended_ms=2,
        checked_ms=2,
        entries_left=0,
        processes_left=0,
        mounts_left=0,
    )
    end = LeaseEnd(
        outcome=LeaseOutcome.FAILED,
        result={"b": 1, "a": "ü"},
        error={"code": "a.b", "message": "m", "hint": ""},
        started_ms=1,
        ended_ms=2,
        cleanup=proof,
    )
    key, note = Key(), LeaseNote.of(OFFER, 1).ended(end)
    sent = to_settlement_event(note, "W1", key).settlement
    statement = open_statement(
        LeaseSettlement, SignedStatement(sent.statement.payload, sent.statement.signature), key.signer.verifier()
    )
    attestation = verify_attestation(sent.attestation_json, (key.signer.verifier(),))
    assert execution_sha256(attestation) == statement.execution_sha256
    assert hashlib.sha256(sent.result_json).hexdigest() == statement.output_digest == attestation.output_digest
    assert len(sent.result_json) == statement.output_bytes
    assert msgspec.json.decode(sent.error_json)["code"] == statement.error_code == "a.b"
    with pytest.raises(ValueError, match="runs"):
        to_settlement_event(LeaseNote.of(OFFER, 1), "W1", key)
