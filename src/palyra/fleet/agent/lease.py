"""A lease on its worker: the errors, the offer, and the note that outlives the process.

The error codes also appear in settlements, and through them in the daemon's journal.
"""

import hashlib
import re
from typing import Any, Final, Self

import msgspec

from palyra.canonical import canonical_json, digest_of
from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, PalyraError, Tampered, Unavailable
from palyra.fleet import limits
from palyra.fleet.domain.lease import LeaseId, LeaseOutcome, call_fields
from palyra.fleet.domain.settlement import CleanupProof, LeaseSettlement
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope, require_artifacts
from palyra.fleet.limits import NONCE_HEX_CHARS
from palyra.policy.decision import EGRESS, TIERS, Obligations
from palyra.signing.tool_attestation import ToolAttestation
from palyra.strict_json import NotStrictJson, parse_strict


class BadOffer(InvalidInput):
    code = "worker_offer.malformed"
    hint = "update the worker or the daemon: they do not speak the same version"


class ToolNotOffered(Unavailable):
    code = "worker_offer.tool_not_offered"
    hint = "the worker attests which tools and tiers it has; `palyra worker show` lists them"


class NoSlot(LimitExceeded):
    code = "worker_offer.no_slot"
    hint = "every slot of the worker is taken: the daemon offers it to another"


class WindingDown(Unavailable):
    code = "worker_offer.winding_down"
    hint = "the worker is being stopped and takes no new work"


class ArtifactDamaged(Tampered):
    code = "worker_artifact.damaged"
    hint = "what came is not what the lease names by its digest: look at the daemon's artifact store"


class Disclaimed(Denied):
    code = "worker_offer.disclaimed"
    hint = "the worker said that it never began this lease, and does not begin it afterwards"


class NoRoom(LimitExceeded):
    code = "worker_artifact.no_room"
    hint = "free space on the worker's disk, or give the call fewer files"


class TooMuchLeft(LimitExceeded):
    code = "worker_artifact.too_many_entries"
    hint = "the call made more files than a worker gathers: let it work in fewer, or in an archive"


class ArtifactsUnsent(Failed):
    code = "worker.artifacts_unsent"
    hint = "the call ran, but its files did not reach the daemon before the deadline"


class ArtifactMissing(Failed):
    code = "worker.artifact_missing"
    hint = "the daemon did not give the worker an input of the lease before the deadline"


class Interrupted(Failed):
    code = "worker.interrupted"
    hint = "the worker stopped while it worked; whether the call had an effect is not known, look before asking again"


class NoteBad(Tampered):
    code = "worker.note_bad"
    hint = "a note of a lease cannot be read: the lease is reported as interrupted"


class WorkerRefused(Denied):
    code = "worker.refused"
    hint = "ask the operator: the daemon no longer knows this worker (revoked, locked, or paired again elsewhere)"


class WorkerCertificateEnded(Denied):
    code = "worker.certificate_ended"
    hint = "the worker was away for longer than its certificate lasts: `palyra-workerd leave --forget`, then join again"


class ImageFileBad(Unavailable):
    code = "worker.image_file_bad"
    hint = "the file that names this machine's image has to be JSON with image_digest_sha256; see the image's build"


_NONCE: Final = re.compile(rf"[0-9a-f]{{{NONCE_HEX_CHARS}}}")
# The tier of a tool that has no sandbox of its own.
_NO_TIER: Final = ("", "builtin")


class LeaseOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as the daemon sent it. ``timeout_ms`` counts from its arrival, so the clocks may differ."""

    lease_id: str
    fence: int
    run_id: str
    call_id: str
    principal: str
    tool: str
    arguments: dict[str, Any]
    argument_digest: str
    tier: str = ""
    obligations: Obligations = Obligations()
    scope: WorkerWorkspaceScope
    inputs: tuple[ArtifactRef, ...] = ()
    nonce: str
    timeout_ms: int
    max_output_bytes: int


class OwedLease(msgspec.Struct, frozen=True):
    """The daemon's question about a lease that ended without this worker."""

    lease_id: str
    fence: int
    nonce: str


def require_sound(offer: LeaseOffer) -> None:
    """Raise for an offer that no honest daemon sends."""
    try:
        LeaseId.parse(offer.lease_id)
        given = offer.scope
        scope = WorkerWorkspaceScope.parse(
            given.root, given.allowed_paths, read_only=given.read_only, folders=given.folders
        )
        require_artifacts(offer.inputs, scope, written=False)
    except PalyraError as error:
        raise BadOffer(error.message, reason=error.code) from error
    if scope != offer.scope:
        raise BadOffer("the scope is not in its canonical spelling")
    if not _NONCE.fullmatch(offer.nonce):
        raise BadOffer(f"the nonce of the cleanup has {NONCE_HEX_CHARS} hex digits")
    if offer.fence < 0 or offer.timeout_ms < 1 or offer.max_output_bytes < 0:
        raise BadOffer("a fencing number, a time or a size is out of range")
    if offer.tier not in (*_NO_TIER, *TIERS):
        raise BadOffer(f"{offer.tier[:16]!r} is not a tier")


def read_arguments(raw: bytes, digest: str) -> dict[str, Any]:
    """Read the arguments. Raise unless they have the digest that the grant names."""
    if len(raw) > limits.MAX_ARGUMENT_BYTES:
        raise BadOffer(f"the arguments have more than {limits.MAX_ARGUMENT_BYTES} bytes")
    if hashlib.sha256(raw).hexdigest() != digest:
        raise BadOffer("the arguments are not those that the lease names by their digest")
    try:
        value = parse_strict(raw)
    except NotStrictJson as error:
        raise BadOffer(f"the arguments are not strict JSON: {error.message}") from error
    if type(value) is not dict:
        raise BadOffer("the arguments are not an object")
    return value


def read_obligations(raw: bytes) -> Obligations:
    """Read the obligations of the decision. Refuse an unknown one: this worker could not fulfil it."""
    if len(raw) > limits.MAX_OBLIGATION_BYTES:
        raise BadOffer(f"the obligations have more than {limits.MAX_OBLIGATION_BYTES} bytes")
    try:
        document = parse_strict(raw or b"{}")
    except NotStrictJson as error:
        raise BadOffer(f"the obligations are not strict JSON: {error.message}") from error
    if type(document) is not dict or (unknown := sorted(set(document) - set(Obligations.__struct_fields__))):
        named = "" if type(document) is not dict else f": {', '.join(unknown)[:100]}"
        raise BadOffer(f"the obligations are not those of this version{named}")
    try:
        obliged = msgspec.convert(document, Obligations)
    except msgspec.ValidationError as error:
        raise BadOffer(f"an obligation has no such value: {error}") from error
    numbers = (obliged.timeout_ms, obliged.max_output_bytes, obliged.memory_bytes, obliged.cpu_seconds)
    if any(number is not None and number < 1 for number in numbers):
        raise BadOffer("an obligation is a number below one")
    if obliged.tier not in (None, *TIERS) or obliged.egress not in (None, *EGRESS):
        raise BadOffer("an obligation names an unknown tier or kind of egress")
    return obliged


class LeaseEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a lease. ``error`` has the shape of all errors: code, message, hint."""

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
        """Return this end as a failure without result and artifacts. The cleanup proof stays."""
        return msgspec.structs.replace(
            self, outcome=LeaseOutcome.FAILED, result=None, error=error, receipt=[], artifacts=()
        )


class LeaseNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that outlives the process. It is unsigned, because the key may change before the report is sent.

    ``end`` is None while the call runs. ``restated``: the result was already replaced by a failure.
    """

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
            lease_id=offer.lease_id, fence=offer.fence, nonce=offer.nonce, begun_ms=begun_ms, **call_fields(offer)
        )

    def ended(self, end: LeaseEnd) -> Self:
        return msgspec.structs.replace(self, end=end)


def execution_of(note: LeaseNote, worker_id: str) -> ToolAttestation:
    """Return the worker's own attestation of the call. The daemon adds it to its own."""
    end = _end_of(note)
    return ToolAttestation(
        **call_fields(note),
        # The daemon's own attestation has the reasons of the decision.
        decision="leased",
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
        raise ValueError("a lease that runs has no end to report")
    return note.end
