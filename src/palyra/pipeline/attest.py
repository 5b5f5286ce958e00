"""Attests how a call ended: the record of it, and the signed statement about it.

A call that ran on a worker has two statements. The daemon's receipt names the worker's key and the digest of the
worker's statement. A holder of the daemon's key can check offline that the worker signed one about the same call.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

import msgspec

from palyra.canonical import digest_of
from palyra.errors import PalyraError
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallRecord
from palyra.pipeline.domain.spec import WORKER_EXECUTOR
from palyra.pipeline.execute import ExecutionResult
from palyra.pipeline.intake import MAX_QUICK_BYTES
from palyra.signing.dsse import Signer, Verifier
from palyra.signing.tool_attestation import (
    AttestationMalformed,
    DocumentDisagrees,
    ToolAttestation,
    attest_with_digest,
    call_view,
    execution_sha256,
    verify_attestation,
)

LAYER: Final = "worker_lease"
_BOUND: Final = ("call_id", "run_id", "principal", "tool", "argument_digest", "outcome")


def build_worker_receipt(
    *,
    worker_id: str,
    lease_id: str,
    fence: int,
    key_id: str,
    key_der: bytes,
    execution_sha256: str,
    output_digest: str,
) -> dict[str, Any]:
    """Build the daemon's entry about the worker. ``output_digest`` is that of the result before redaction."""
    return {
        "layer": LAYER,
        "asked": "run by an attested worker, in its own sandbox, under a lease for this call only",
        "got": f"settled by {worker_id} with a signed cleanup; what follows is the worker's own receipt",
        "worker_id": worker_id,
        "lease_id": lease_id,
        "fence": fence,
        "key_id": key_id,
        "public_key": base64.b64encode(key_der).decode(),
        "execution_sha256": execution_sha256,
        "output_digest": output_digest,
    }


def verify_worker_attestation(
    document: bytes, attestation: ToolAttestation, key_of: Callable[[bytes], Verifier]
) -> ToolAttestation | None:
    """Return the worker's statement in a call's document, or None if the call did not run on a worker.

    ``attestation`` is the daemon's, verified. Raises the fitting Tampered error if the two do not belong together.
    """
    # The first entry is the daemon's. The worker wrote the others.
    first = attestation.receipt[0] if attestation.receipt else {}
    entry = first if attestation.executor == WORKER_EXECUTOR and first.get("layer") == LAYER else None
    envelope = call_view(document).get("worker_attestation")
    if entry is None:
        if envelope is not None:
            raise DocumentDisagrees("the document has a worker's attestation and the daemon names no worker")
        return None
    if not isinstance(envelope, dict):
        raise DocumentDisagrees("the daemon names a worker and the document lacks that worker's attestation")
    try:
        key = key_of(base64.b64decode(str(entry.get("public_key", "")), validate=True))
    except (binascii.Error, ValueError) as error:
        raise AttestationMalformed("the receipt has no key of the worker") from error
    except PalyraError as error:
        raise AttestationMalformed(f"the receipt has no usable key of the worker: {error.message}") from error
    if key.key_id != entry.get("key_id"):
        raise DocumentDisagrees("the receipt's key and its name do not belong together", field="receipt")
    attested = verify_attestation(msgspec.json.encode(envelope), (key,))
    if execution_sha256(attested) != entry.get("execution_sha256") or attested.output_digest != entry.get(
        "output_digest"
    ):
        raise DocumentDisagrees("the worker's attestation is not the one that the daemon received")
    for name in _BOUND:
        if name == "outcome" and attestation.outcome != attested.outcome and attestation.outcome in _AFTERWARDS:
            continue
        if getattr(attested, name) != getattr(attestation, name):
            raise DocumentDisagrees(f"the worker attests another {name} than the daemon", field=name)
    return attested


# How the daemon may end a call after its worker has succeeded: the result is beyond the limit or against the tool's
# schema, a file may not be written, or the call was stopped meanwhile.
_AFTERWARDS: Final = frozenset(("failed", "timed_out", "cancelled"))


class AttestedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a call's end with its signed statement, and what the journal records besides."""

    record: CallRecord
    used: dict[BudgetKind, int]
    output_digest: str
    execution_sha256: str
    # The length of the result as JSON.
    result_bytes: int = 0


async def attest(started: CallRecord, executor: str, ended: ExecutionResult, signer: Signer) -> AttestedCall:
    """Attest the end of a call. A large result is digested and signed in a thread."""
    if ended.result_bytes <= MAX_QUICK_BYTES:
        return attest_result(started, executor, ended, signer)
    return await asyncio.to_thread(attest_result, started, executor, ended, signer)


def attest_result(started: CallRecord, executor: str, ended: ExecutionResult, signer: Signer) -> AttestedCall:
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
    return AttestedCall(
        record=record,
        used=ended.used,
        output_digest=output_digest,
        execution_sha256=digest,
        result_bytes=ended.result_bytes,
    )
