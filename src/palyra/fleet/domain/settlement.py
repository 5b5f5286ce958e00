"""How a lease ended, in the worker's own signed words: result, enforcement and cleanup in one statement."""

import hashlib
from typing import Any, Final, Literal

import msgspec

from palyra.canonical import NotCanonical, canonical_json
from palyra.errors import Denied, Failed, LimitExceeded, PalyraError
from palyra.fleet.domain.lease import LeaseOutcome, WorkerLease
from palyra.fleet.domain.signed_statement import DeviceSigner, DeviceVerifier, SignedStatement
from palyra.fleet.domain.signed_statement import open_statement as _open
from palyra.fleet.domain.signed_statement import sign_statement as _sign
from palyra.fleet.domain.worker import WorkerRecord
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.fleet.limits import MAX_CLOCK_SKEW_MS
from palyra.signing.dsse import parse_envelope
from palyra.signing.tool_attestation import ToolAttestation, verify_parsed
from palyra.strict_json import NotStrictJson, parse_strict

# What a worker states about the traces of a lease, and what is held against it.
#
# The worker looks again after it removed everything and counts what is left. The statement is bound to the lease, its
# fencing number and its nonce, and is part of the signed settlement. A worker can still lie; where the lie shows
# (more workspaces than leases in a heartbeat, traffic of an ended lease at the egress proxy) the worker is
# quarantined.


class CleanupForAnother(Denied):
    code = "worker_cleanup.other_lease"
    hint = "a cleanup statement names the lease, its fencing number and its nonce"


class CleanupOutOfTime(Denied):
    code = "worker_cleanup.out_of_time"
    hint = "the worker has to look after the call has ended, and not in the future"


class CleanupIncomplete(Failed):
    code = "worker_cleanup.incomplete"
    hint = "look at the worker, clean it by hand, then release it with `palyra worker release`"


class CleanupContradicted(Denied):
    code = "worker_cleanup.contradicted"
    hint = "what the worker said of a lease's traces is not what it showed: look at it before it is released"


class CleanupProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``workspace`` names the scratch folder (device and inode), so that two leases cannot share one look."""

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
    """Raises for what no honest worker states."""
    if (proof.lease_id, proof.fence, proof.nonce) != (lease.lease_id, lease.fence, lease.nonce):
        raise CleanupForAnother("the cleanup statement is not about this lease", lease_id=lease.lease_id)
    earliest, latest = lease.granted_ms - MAX_CLOCK_SKEW_MS, now_ms + MAX_CLOCK_SKEW_MS
    if not earliest <= proof.ended_ms <= proof.checked_ms <= latest:
        raise CleanupOutOfTime("the cleanup was not looked at between the end and now", lease_id=lease.lease_id)
    if min(proof.entries_left, proof.processes_left, proof.mounts_left) < 0:
        raise CleanupForAnother("the cleanup statement counts below zero", lease_id=lease.lease_id)


def require_clean(proof: CleanupProof) -> None:
    """Raises for what an honest worker could not clean up."""
    left = {
        "files": proof.entries_left,
        "processes": proof.processes_left,
        "mounts": proof.mounts_left,
    }
    if any(left.values()):
        words = ", ".join(f"{count} {name}" for name, count in left.items() if count)
        raise CleanupIncomplete(f"after the lease the worker still had {words}", lease_id=proof.lease_id, left=left)


# A worker's signed word that it never began a lease which ended while it was away.
#
# An offer may be lost with the connection that carried it. The worker is then asked, and looks for traces of a lease
# that it does not know. The word counts for one connection of one life of its process, and only where nothing showed
# that the lease was there: see ``WorkerLease.taken_ms``.

DISCLAIMER_STATEMENT_TYPE: Final = "application/vnd.palyra.lease-disclaimer.v1+json"


class LeaseDisclaimer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cleanup`` is of nothing: it names no workspace, and no end but the moment of the look."""

    format: Literal["palyra.lease.disclaimer.v1"] = "palyra.lease.disclaimer.v1"
    worker_id: str
    boot_id: str
    session: int
    cleanup: CleanupProof


def sign_disclaimer(disclaimer: LeaseDisclaimer, signer: DeviceSigner) -> SignedStatement:
    return _sign(DISCLAIMER_STATEMENT_TYPE, disclaimer, signer)


def open_disclaimer(signed: SignedStatement, key: DeviceVerifier) -> LeaseDisclaimer:
    """What the worker's key signed; raises BadSignature or MalformedStatement."""
    return _open(DISCLAIMER_STATEMENT_TYPE, LeaseDisclaimer, signed, key)


def require_said_now(disclaimer: LeaseDisclaimer, worker: WorkerRecord) -> None:
    """Raises unless this worker says it, in the life and on the connection that it has now, and of no workspace."""
    said = (disclaimer.worker_id, disclaimer.boot_id, disclaimer.session)
    if said != (worker.worker_id, worker.boot_id, worker.session):
        raise CleanupForAnother("the word is another worker's, or of another life or connection of it")
    if disclaimer.cleanup.workspace:
        raise CleanupForAnother("a lease that was never begun has no workspace")


SETTLEMENT_STATEMENT_TYPE: Final = "application/vnd.palyra.lease-settlement.v1+json"


class SettlementDisagrees(Denied):
    code = "lease.settlement_mismatch"
    hint = "the statement names another worker or lease than the message around it"


class ResultTooLarge(LimitExceeded):
    code = "lease.result_too_large"
    hint = "report the call as failed, or return less and the rest as artifacts"


class LeaseSettlement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``execution_sha256`` is the digest of the worker's tool attestation; ``output_digest`` of the call's result."""

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


def sign_settlement(settlement: LeaseSettlement, signer: DeviceSigner) -> SignedStatement:
    return _sign(SETTLEMENT_STATEMENT_TYPE, settlement, signer)


def open_settlement(signed: SignedStatement, key: DeviceVerifier) -> LeaseSettlement:
    """What the worker's key signed; raises BadSignature or MalformedStatement."""
    return _open(SETTLEMENT_STATEMENT_TYPE, LeaseSettlement, signed, key)


def settlement_digest(signed: SignedStatement) -> str:
    """Tells a repeated message from a second opinion."""
    return hashlib.sha256(signed.payload).hexdigest()


# A settlement as it came over the wire: opened, and compared with itself and its lease, before the ledger hears it.
#
# What the worker signed, the result beside it and its attestation of the call have to agree to the byte. No honest
# worker sends anything else, so whoever does is not believed in anything.


class SettledResult(msgspec.Struct, frozen=True, kw_only=True):
    statement: LeaseSettlement
    attestation: ToolAttestation
    envelope: dict[str, Any]
    result: Any = None
    error: dict[str, Any] | None = None


def read_settlement(
    signed: SignedStatement, result_json: bytes, attestation_json: bytes, error_json: bytes, key: DeviceVerifier
) -> SettledResult:
    """Raises for what the key did not sign, and SettlementDisagrees where parts of it contradict each other."""
    statement = open_settlement(signed, key)
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
    said = (execution, attestation.output_digest, attestation.outcome)
    if said != (statement.execution_sha256, statement.output_digest, statement.outcome.value):
        raise SettlementDisagrees("the worker's attestation is about another execution than its settlement")
    if str((error or {}).get("code", "")) != statement.error_code:
        raise SettlementDisagrees("the error is not the one that was signed")
    return SettledResult(
        statement=statement, attestation=attestation, envelope=envelope.to_dict(), result=result, error=error
    )


def require_of_lease(settled: SettledResult, lease: WorkerLease) -> None:
    """The attestation names the call that was leased, and no other."""
    for name in ("call_id", "run_id", "principal", "tool", "argument_digest"):
        if getattr(settled.attestation, name) != getattr(lease, name):
            raise SettlementDisagrees(f"the worker's attestation names another {name}", lease_id=lease.lease_id)


def _error(raw: bytes) -> dict[str, Any] | None:
    if not raw:
        return None
    value = parse_strict(raw, any_number_spelling=True)
    if not isinstance(value, dict) or not isinstance(value.get("code"), str):
        raise SettlementDisagrees("the error of a settlement is an object with a code")
    return value
