"""How a call ended: what its executor brought back, the record of it, and the signed statement about it."""

from typing import Any

import msgspec

from palyra.canonical import digest_of
from palyra.signing.dsse import Signer
from palyra.tools.attestation import ToolAttestation, attest_with_digest
from palyra.tools.budget import BudgetKind
from palyra.tools.call import CallState
from palyra.tools.record import CallRecord


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a plan, with known secrets taken out. ``used`` is what the run is charged."""

    state: CallState
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    used: dict[BudgetKind, int]
    elapsed_ms: int = 0
    # How long the result is, written as JSON.
    result_bytes: int = 0
    worker_attestation: dict[str, Any] | None = None


class Booked(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says of a call's end besides its record."""

    used: dict[BudgetKind, int]
    output_digest: str
    execution_sha256: str


def conclude(started: CallRecord, executor: str, ended: Ended, signer: Signer) -> tuple[CallRecord, Booked]:
    decision = started.decision or {}
    output_digest = digest_of(ended.result)
    started_ms = started.started_ms or 0
    attestation = ToolAttestation(
        call_id=started.call_id,
        run_id=started.run_id,
        principal=started.principal,
        tool=started.tool,
        argument_digest=started.argument_digest,
        decision=decision["outcome"],
        policies=tuple(decision["policies"]),
        bundle_digest=decision["bundle_digest"],
        approval_id=started.approval_id,
        executor=executor,
        receipt=tuple(ended.receipt),
        outcome=ended.state.value,
        output_digest=output_digest,
        started_ms=started_ms,
        ended_ms=started_ms + ended.elapsed_ms,
    )
    envelope, digest = attest_with_digest(attestation, (signer,))
    record = msgspec.structs.replace(
        started,
        state=ended.state,
        result=ended.result,
        error=ended.error,
        receipt=ended.receipt,
        ended_ms=attestation.ended_ms,
        attestation=envelope.to_dict(),
        worker_attestation=ended.worker_attestation,
    )
    return record, Booked(used=ended.used, output_digest=output_digest, execution_sha256=digest)
