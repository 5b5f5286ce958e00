"""The end of a lease as its worker signed it: result, enforcement and cleanup in one statement.

After the cleanup the worker counts what is left and signs the counts. A worker can still lie. Where the lie shows, as
in heartbeats with more workspaces than leases, or traffic of an ended lease at the egress proxy, it is quarantined.
"""

import hashlib
from typing import Any, Literal

import msgspec

from palyra.canonical import NotCanonical, canonical_json
from palyra.errors import Denied, Failed, LimitExceeded, PalyraError
from palyra.fleet.domain.lease import CALL_FIELDS, LeaseOutcome, WorkerLease
from palyra.fleet.domain.signed_statement import SignedStatement, Statement, open_statement
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.fleet.limits import MAX_CLOCK_SKEW_MS
from palyra.signing.dsse import Verifier, parse_envelope
from palyra.signing.tool_attestation import ToolAttestation, verify_parsed
from palyra.strict_json import NotStrictJson, parse_strict


class CleanupForAnother(Denied):
    code = "worker_cleanup.other_lease"
    hint = "a cleanup statement names the lease, its fencing number and its nonce"


class CleanupOutOfTime(Denied):
    code = "worker_cleanup.out_of_time"
    hint = "the worker has to check its cleanup after the end of the call, and not in the future"


class CleanupIncomplete(Failed):
    code = "worker_cleanup.incomplete"
    hint = "look at the worker, clean it by hand, then release it with `palyra worker release`"


class CleanupContradicted(Denied):
    code = "worker_cleanup.contradicted"
    hint = "the worker's statement about a lease contradicts its behaviour: inspect it before it is released"


class CleanupProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The counts after a cleanup. ``workspace`` is the scratch folder's device and inode, so each check counts once."""

    lease_id: str
    fence: int
    nonce: str
    workspace: str
    ended_ms: int
    checked_ms: int
    entries_left: int
    processes_left: int
    mounts_left: int


def require_authentic(proof: CleanupProof, lease: WorkerLease, now_ms: int) -> None:
    """Raise for a proof that no honest worker makes."""
    if (proof.lease_id, proof.fence, proof.nonce) != (lease.lease_id, lease.fence, lease.nonce):
        raise CleanupForAnother("the cleanup statement is not about this lease", lease_id=lease.lease_id)
    earliest, latest = lease.granted_ms - MAX_CLOCK_SKEW_MS, now_ms + MAX_CLOCK_SKEW_MS
    if not earliest <= proof.ended_ms <= proof.checked_ms <= latest:
        raise CleanupOutOfTime("the cleanup was not checked between the end and now", lease_id=lease.lease_id)
    if min(proof.entries_left, proof.processes_left, proof.mounts_left) < 0:
        raise CleanupForAnother("the cleanup statement counts below zero", lease_id=lease.lease_id)


def require_clean(proof: CleanupProof) -> None:
    """Raise if the worker could not remove everything."""
    left = {
        "files": proof.entries_left,
        "processes": proof.processes_left,
        "mounts": proof.mounts_left,
    }
    if any(left.values()):
        words = ", ".join(f"{count} {name}" for name, count in left.items() if count)
        raise CleanupIncomplete(f"after the lease the worker still had {words}", lease_id=proof.lease_id, left=left)


class LeaseDisclaimer(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's statement that it never began a lease, whose offer may be lost with a connection.

    It counts for one connection of one life of the process, and only if nothing showed that the worker has the lease:
    see ``WorkerLease.taken_ms``. ``cleanup`` names no workspace, and the moment of the check as the end.
    """

    statement_type = "application/vnd.palyra.lease-disclaimer.v1+json"
    format: Literal["palyra.lease.disclaimer.v1"] = "palyra.lease.disclaimer.v1"
    worker_id: str
    boot_id: str
    session: int
    cleanup: CleanupProof


def require_current(disclaimer: LeaseDisclaimer, worker: WorkerRecord) -> None:
    """Raise unless this worker made it on its present connection, and without a workspace."""
    stated = (disclaimer.worker_id, disclaimer.boot_id, disclaimer.session)
    if stated != (worker.worker_id, worker.boot_id, worker.session):
        raise CleanupForAnother("the disclaimer is another worker's, or of another life or connection of it")
    if disclaimer.cleanup.workspace:
        raise CleanupForAnother("a lease that was never begun has no workspace")


class SettlementDisagrees(Denied):
    code = "lease.settlement_mismatch"
    hint = "the statement names another worker or lease than the message around it"


class ResultTooLarge(LimitExceeded):
    code = "lease.result_too_large"
    hint = "report the call as failed, or return less and the rest as artifacts"


class LeaseSettlement(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``execution_sha256`` is the digest of the worker's tool attestation; ``output_digest`` of the call's result."""

    statement_type = "application/vnd.palyra.lease-settlement.v1+json"
    format: Literal["palyra.lease.settlement.v1"] = "palyra.lease.settlement.v1"
    worker_id: str
    lease_id: str
    fence: int
    outcome: LeaseOutcome
    error_code: str = ""
    output_digest: str
    output_bytes: int
    artifacts: tuple[ArtifactRef, ...] = ()
    execution_sha256: str
    started_ms: int
    ended_ms: int
    cleanup: CleanupProof


def settlement_digest(signed: SignedStatement) -> str:
    """Return the digest that tells a repeated settlement from a different one."""
    return hashlib.sha256(signed.payload).hexdigest()


class SettledResult(msgspec.Struct, frozen=True, kw_only=True):
    """A settlement with its result and attestation, which agree to the byte."""

    statement: LeaseSettlement
    attestation: ToolAttestation
    envelope: dict[str, Any]
    result: Any = None
    error: dict[str, Any] | None = None


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """A settled lease: the worker's signed result, and the key that signed it."""

    lease: WorkerLease
    settled: SettledResult
    key_id: str
    key_der: bytes
    worker_name: str


def read_settlement(
    signed: SignedStatement, result_json: bytes, attestation_json: bytes, error_json: bytes, key: Verifier
) -> SettledResult:
    """Open a settlement. Raise unless the key signed it, and SettlementDisagrees if its parts contradict each other."""
    statement = open_statement(LeaseSettlement, signed, key)
    if hashlib.sha256(result_json).hexdigest() != statement.output_digest or statement.output_bytes != len(result_json):
        raise SettlementDisagrees("the result is not the one that was signed")
    try:
        result = parse_strict(result_json, any_number_spelling=True)
        if canonical_json(result) != result_json:
            raise SettlementDisagrees("the result is not in its canonical spelling")
        error = _error(error_json)
        envelope = parse_envelope(attestation_json)
        attestation, execution = verify_parsed(envelope, (key,))
    except (NotStrictJson, NotCanonical) as failure:
        raise SettlementDisagrees(f"the settlement cannot be read: {failure.message}") from failure
    except SettlementDisagrees:
        raise
    except PalyraError as failure:
        raise SettlementDisagrees(f"the worker's attestation does not verify: {failure.code}") from failure
    attested = (execution, attestation.output_digest, attestation.outcome)
    if attested != (statement.execution_sha256, statement.output_digest, statement.outcome.value):
        raise SettlementDisagrees("the worker's attestation is about another execution than its settlement")
    if str((error or {}).get("code", "")) != statement.error_code:
        raise SettlementDisagrees("the error is not the one that was signed")
    return SettledResult(
        statement=statement, attestation=attestation, envelope=envelope.to_dict(), result=result, error=error
    )


def require_of_lease(settled: SettledResult, lease: WorkerLease) -> None:
    """Raise unless the attestation names the call that was leased."""
    for name in CALL_FIELDS:
        if getattr(settled.attestation, name) != getattr(lease, name):
            raise SettlementDisagrees(f"the worker's attestation names another {name}", lease_id=lease.lease_id)


def _error(raw: bytes) -> dict[str, Any] | None:
    if not raw:
        return None
    value = parse_strict(raw, any_number_spelling=True)
    if not isinstance(value, dict) or not isinstance(value.get("code"), str):
        raise SettlementDisagrees("the error of a settlement is an object with a code")
    return value
