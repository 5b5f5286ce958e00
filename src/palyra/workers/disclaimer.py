"""A worker's signed word that it never began a lease which ended while it was away.

An offer may be lost with the connection that carried it. The worker is then asked, and looks for traces of a lease that
it does not know. The word counts for one connection of one life of its process, and only where nothing showed that the
lease was there: see ``WorkerLease.taken_ms``.
"""

from typing import Final, Literal

import msgspec

from palyra.workers.cleanup import CleanupForAnother, CleanupProof
from palyra.workers.record import WorkerRecord
from palyra.workers.signed_statement import DeviceSigner, DeviceVerifier, SignedStatement
from palyra.workers.signed_statement import open_statement as _open
from palyra.workers.signed_statement import sign_statement as _sign

STATEMENT_TYPE: Final = "application/vnd.palyra.lease-disclaimer.v1+json"


class LeaseDisclaimer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cleanup`` is of nothing: it names no workspace, and no end but the moment of the look."""

    format: Literal["palyra.lease.disclaimer.v1"] = "palyra.lease.disclaimer.v1"
    worker_id: str
    boot_id: str
    session: int
    cleanup: CleanupProof


def sign_disclaimer(disclaimer: LeaseDisclaimer, signer: DeviceSigner) -> SignedStatement:
    return _sign(STATEMENT_TYPE, disclaimer, signer)


def open_disclaimer(signed: SignedStatement, key: DeviceVerifier) -> LeaseDisclaimer:
    """What the worker's key signed; raises BadSignature or MalformedStatement."""
    return _open(STATEMENT_TYPE, LeaseDisclaimer, signed, key)


def require_said_now(disclaimer: LeaseDisclaimer, worker: WorkerRecord) -> None:
    """Raises unless this worker says it, in the life and on the connection that it has now, and of no workspace."""
    said = (disclaimer.worker_id, disclaimer.boot_id, disclaimer.session)
    if said != (worker.worker_id, worker.boot_id, worker.session):
        raise CleanupForAnother("the word is another worker's, or of another life or connection of it")
    if disclaimer.cleanup.workspace:
        raise CleanupForAnother("a lease that was never begun has no workspace")
