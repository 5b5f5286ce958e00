"""How a lease ended, in the worker's own signed words: result, enforcement and cleanup in one statement."""

import hashlib
from typing import Final, Literal

import msgspec

from palyra.errors import Denied, LimitExceeded
from palyra.workers.cleanup import CleanupProof
from palyra.workers.lease import LeaseOutcome
from palyra.workers.signed_statement import DeviceSigner, DeviceVerifier, SignedStatement
from palyra.workers.signed_statement import open_statement as _open
from palyra.workers.signed_statement import sign_statement as _sign
from palyra.workers.workspace_scope import ArtifactRef

STATEMENT_TYPE: Final = "application/vnd.palyra.lease-settlement.v1+json"


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
    return _sign(STATEMENT_TYPE, settlement, signer)


def open_settlement(signed: SignedStatement, key: DeviceVerifier) -> LeaseSettlement:
    """What the worker's key signed; raises BadSignature or MalformedStatement."""
    return _open(STATEMENT_TYPE, LeaseSettlement, signed, key)


def settlement_digest(signed: SignedStatement) -> str:
    """Tells a repeated message from a second opinion."""
    return hashlib.sha256(signed.payload).hexdigest()
