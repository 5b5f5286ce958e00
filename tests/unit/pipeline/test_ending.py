"""The record and the signed statement of an end say the same."""

import msgspec

from palyra.canonical import digest_of
from palyra.pipeline.attest import attest_result
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.pipeline.execute import ExecutionResult
from palyra.signing.ed25519 import Ed25519Signer
from palyra.signing.tool_attestation import execution_sha256, verify_attestation, verify_call_document

STARTED = CallRecord(
    call_id="C",
    run_id="R",
    tool="echo",
    principal="agent:bot",
    actor="user:op",
    channel="cli",
    state=CallState.RUNNING,
    argument_digest="ab",
    decision={"outcome": "allow", "policies": ["p"], "reasons": [], "bundle_digest": "cd"},
    created_ms=1,
    started_ms=10,
)


def test_an_end_becomes_a_record_and_a_statement_that_agree() -> None:
    signer = Ed25519Signer.generate()
    end = ExecutionResult(
        state=CallState.SUCCEEDED,
        result={"text": "x"},
        receipt=[{"layer": "code"}],
        used={BudgetKind.CALLS: 1},
        elapsed_ms=7,
    )
    attested = attest_result(STARTED, "builtin", end, signer)
    record = attested.record
    assert (record.state, record.ended_ms, record.result) == (CallState.SUCCEEDED, 17, {"text": "x"})
    assert attested.output_digest == digest_of({"text": "x"}) and attested.used == {BudgetKind.CALLS: 1}
    verified = verify_attestation(msgspec.json.encode(record.attestation), (signer.verifier(),))
    assert execution_sha256(verified) == attested.execution_sha256
    assert verify_call_document(msgspec.json.encode(record.view()), (signer.verifier(),)) == verified
