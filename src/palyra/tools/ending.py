"""Attests how a call ended: the record of it, and the signed statement about it."""

import asyncio

import msgspec

from palyra.canonical import digest_of
from palyra.signing.dsse import Signer
from palyra.tools.arguments import MAX_QUICK_BYTES
from palyra.tools.attestation import ToolAttestation, attest_with_digest
from palyra.tools.budget import BudgetKind
from palyra.tools.execution import Ended, to_the_end
from palyra.tools.record import CallRecord


class Attested(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a call's end with its signed statement, and what the journal says besides."""

    record: CallRecord
    used: dict[BudgetKind, int]
    output_digest: str
    execution_sha256: str


async def attest_end(started: CallRecord, executor: str, ended: Ended, signer: Signer) -> Attested:
    """Digests and signs a large result in a thread."""
    if ended.result_bytes <= MAX_QUICK_BYTES:
        return conclude(started, executor, ended, signer)
    return await to_the_end(asyncio.to_thread(conclude, started, executor, ended, signer))


def conclude(started: CallRecord, executor: str, ended: Ended, signer: Signer) -> Attested:
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
    return Attested(record=record, used=ended.used, output_digest=output_digest, execution_sha256=digest)
