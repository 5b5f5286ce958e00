"""What must outlive the worker's process: that a lease was begun, and how it ended, until the daemon has answered.

Nothing in it is signed: the key may be another by the time it is sent, and the digests stay the same.
"""

from typing import Any, Self

import msgspec

from palyra.canonical import canonical_json, digest_of
from palyra.tools.attestation import ToolAttestation
from palyra.workers.agent.offer import LeaseOffer
from palyra.workers.cleanup import CleanupProof
from palyra.workers.lease import LeaseOutcome
from palyra.workers.settlement import LeaseSettlement
from palyra.workers.workspace_scope import ArtifactRef

# What the worker knows of a decision: that the daemon leased the call to it. Its own statement says why.
LEASED = "leased"


class LeaseEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``error`` is a failure as every door shows one: code, message, hint."""

    outcome: LeaseOutcome
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    executor: str = ""
    artifacts: tuple[ArtifactRef, ...] = ()
    started_ms: int
    ended_ms: int
    cleanup: CleanupProof

    def as_failure(self, error: dict[str, Any]) -> Self:
        """The same end without what could not be taken. What was cleaned up stays cleaned up."""
        return msgspec.structs.replace(
            self, outcome=LeaseOutcome.FAILED, result=None, error=error, receipt=[], artifacts=()
        )


class LeaseNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``end`` is None while the call runs. ``restated``: it was already said differently once."""

    lease_id: str
    fence: int
    nonce: str
    run_id: str
    call_id: str
    principal: str
    tool: str
    argument_digest: str
    begun_ms: int
    end: LeaseEnd | None = None
    restated: bool = False

    @classmethod
    def of(cls, offer: LeaseOffer, begun_ms: int) -> Self:
        return cls(
            lease_id=offer.lease_id,
            fence=offer.fence,
            nonce=offer.nonce,
            run_id=offer.run_id,
            call_id=offer.call_id,
            principal=offer.principal,
            tool=offer.tool,
            argument_digest=offer.argument_digest,
            begun_ms=begun_ms,
        )

    def ended(self, end: LeaseEnd) -> Self:
        return msgspec.structs.replace(self, end=end)


def execution_of(note: LeaseNote, worker_id: str) -> ToolAttestation:
    """The worker's own statement about the call, to stand beside the daemon's."""
    end = _end_of(note)
    return ToolAttestation(
        call_id=note.call_id,
        run_id=note.run_id,
        principal=note.principal,
        tool=note.tool,
        argument_digest=note.argument_digest,
        decision=LEASED,
        policies=(f"lease/{note.lease_id}",),
        bundle_digest="",
        executor=f"worker/{worker_id}" + (f"/{end.executor}" if end.executor else ""),
        receipt=tuple(end.receipt),
        outcome=end.outcome.value,
        output_digest=digest_of(end.result),
        started_ms=end.started_ms,
        ended_ms=end.ended_ms,
    )


def settlement_of(note: LeaseNote, worker_id: str, execution_sha256: str) -> LeaseSettlement:
    end = _end_of(note)
    return LeaseSettlement(
        worker_id=worker_id,
        lease_id=note.lease_id,
        fence=note.fence,
        outcome=end.outcome,
        error_code=str((end.error or {}).get("code", "")),
        output_digest=digest_of(end.result),
        output_bytes=len(canonical_json(end.result)),
        artifacts=end.artifacts,
        execution_sha256=execution_sha256,
        started_ms=end.started_ms,
        ended_ms=end.ended_ms,
        cleanup=end.cleanup,
    )


def _end_of(note: LeaseNote) -> LeaseEnd:
    if note.end is None:
        raise ValueError("a lease that runs has no end to tell of")
    return note.end
