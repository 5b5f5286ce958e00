"""A settlement as it came over the wire: opened, and compared with itself and its lease, before the ledger hears it.

What the worker signed, the result beside it and its attestation of the call have to agree to the byte. No honest worker
sends anything else, so whoever does is not believed in anything.
"""

import hashlib
from typing import Any

import msgspec

from palyra.canonical import NotCanonical, canonical_json
from palyra.errors import PalyraError
from palyra.signing.dsse import parse_envelope
from palyra.strict_json import NotStrictJson, parse_strict
from palyra.tools.attestation import ToolAttestation, verify_parsed
from palyra.workers.lease import WorkerLease
from palyra.workers.settlement import LeaseSettlement, SettlementDisagrees, open_settlement
from palyra.workers.signed_statement import DeviceVerifier, SignedStatement


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
