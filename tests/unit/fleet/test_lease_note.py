"""A lease's end in the words that are signed."""

import msgspec
import pytest

from fakes.lease_offers import OFFER
from palyra.canonical import digest_of
from palyra.fleet.agent.lease import LeaseEnd, LeaseNote, execution_of, settlement_of
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.settlement import CleanupProof
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.signing.tool_attestation import execution_sha256

PROOF = CleanupProof(
    lease_id=OFFER.lease_id,
    fence=1,
    nonce=OFFER.nonce,
    workspace="8:1",
    ended_ms=30,
    checked_ms=40,
    entries_left=0,
    processes_left=0,
    mounts_left=0,
)
END = LeaseEnd(
    outcome=LeaseOutcome.SUCCEEDED,
    result={"text": "hi"},
    receipt=[{"layer": "worker", "asked": "a", "got": "b"}],
    executor="builtin",
    artifacts=(ArtifactRef(path="src/x", digest_sha256="0" * 64, size=1),),
    started_ms=20,
    ended_ms=30,
    cleanup=PROOF,
)
NOTE = LeaseNote.of(OFFER, 10).ended(END)


def test_a_note_survives_the_disk() -> None:
    assert msgspec.json.decode(msgspec.json.encode(NOTE), type=LeaseNote) == NOTE
    begun = LeaseNote.of(OFFER, 10)
    assert msgspec.json.decode(msgspec.json.encode(begun), type=LeaseNote) == begun


def test_statement_and_attestation_name_the_call_the_lease_and_the_worker() -> None:
    execution = execution_of(NOTE, "W1")
    assert (execution.call_id, execution.decision, execution.policies) == ("c", "leased", (f"lease/{OFFER.lease_id}",))
    assert execution.executor == "worker/W1/builtin" and execution.output_digest == digest_of({"text": "hi"})
    settlement = settlement_of(NOTE, "W1", execution_sha256(execution))
    assert settlement.output_bytes == len(b'{"text":"hi"}') and settlement.output_digest == execution.output_digest
    assert settlement.cleanup == PROOF and settlement.artifacts == END.artifacts and settlement.error_code == ""


def test_a_failure_keeps_the_cleanup_and_nothing_else() -> None:
    failed = NOTE.ended(END.as_failure({"code": "lease.result_too_large", "message": "m", "hint": ""}))
    settlement = settlement_of(failed, "W1", "ab")
    assert settlement.outcome is LeaseOutcome.FAILED and settlement.artifacts == () and settlement.output_bytes == 4
    assert settlement.error_code == "lease.result_too_large" and settlement.cleanup == PROOF


def test_a_lease_that_runs_has_nothing_to_tell() -> None:
    with pytest.raises(ValueError, match="runs"):
        execution_of(LeaseNote.of(OFFER, 10), "W1")
