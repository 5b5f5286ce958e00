"""Everything that may happen to the fleet, as values. The ledger loads what a command names, and the manager decides.

``actor`` is who the journal says did it. A message of a worker carries the number of the session it came on.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from palyra.errors import PalyraError
from palyra.workers.disclaimer import LeaseDisclaimer
from palyra.workers.grant import WorkerApprovalGrant
from palyra.workers.settlement import LeaseSettlement
from palyra.workers.signed_statement import DeviceVerifier, SignedStatement
from palyra.workers.workspace_scope import ArtifactRef, WorkerWorkspaceScope


class FleetCommand(msgspec.Struct, frozen=True, kw_only=True):
    """``worker_id`` empty: the worker of the lease is meant."""

    actor: str
    worker_id: str = ""
    lease_id: str = ""
    grant_id: str = ""
    # What the ledger has to load besides the worker, lease and grant that are named.
    with_open_leases: ClassVar[bool] = False
    with_count: ClassVar[bool] = False
    with_fence: ClassVar[bool] = False
    # New work, which a full disk refuses; everything else is about work that already runs.
    begins_work: ClassVar[bool] = False


class OpenSession(FleetCommand, frozen=True, kw_only=True):
    """A worker connected. The first time registers it. ``named`` are the leases that it says it has."""

    name: str
    daemon: str
    boot_id: str
    slots: int
    nonce: str
    named: frozenset[str] = frozenset()
    with_open_leases = True
    with_count = True
    begins_work = True


class Challenge(FleetCommand, frozen=True, kw_only=True):
    """Asks for a new attestation; an open challenge stays as it is."""

    nonce: str


class PresentAttestation(FleetCommand, frozen=True, kw_only=True):
    session: int
    signed: SignedStatement
    key: DeviceVerifier
    egress_keys: Mapping[str, DeviceVerifier]
    with_open_leases = True


class ChangeSlots(FleetCommand, frozen=True, kw_only=True):
    session: int
    slots: int


class ReportWorkspaces(FleetCommand, frozen=True, kw_only=True):
    """How many scratch workspaces the worker has on disk, as its heartbeat says."""

    session: int
    count: int
    with_open_leases = True


class EndSession(FleetCommand, frozen=True, kw_only=True):
    session: int


class DeclareLost(FleetCommand, frozen=True, kw_only=True):
    with_open_leases = True


class LapseAttestation(FleetCommand, frozen=True, kw_only=True):
    """The worker's attestation became too old."""


class ClaimCleanup(FleetCommand, frozen=True, kw_only=True):
    """The worker is back and still has not shown that it cleaned up."""

    with_open_leases = True


class DrainWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""


class ResumeWorker(FleetCommand, frozen=True, kw_only=True):
    """Ends a drain."""


class QuarantineWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str
    with_open_leases = True


class ReportViolation(FleetCommand, frozen=True, kw_only=True):
    """What an egress proxy saw, said on its own connection."""

    egress_id: str
    violation: str
    with_open_leases = True


class ReleaseWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""


class RemoveWorker(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""
    with_open_leases = True


class IssueGrant(FleetCommand, frozen=True, kw_only=True):
    grant: WorkerApprovalGrant
    begins_work = True


class LeaseWork(FleetCommand, frozen=True, kw_only=True):
    """``worker_id`` is placement's choice, checked again. ``needs`` are capabilities. ``nonce`` is for the cleanup.

    ``grant`` is issued with the lease that uses it, unless there is one of that id: one wait for the disk, not two.
    """

    run_id: str
    call_id: str
    principal: str
    tool: str
    argument_digest: str
    needs: frozenset[str]
    scope: WorkerWorkspaceScope
    inputs: tuple[ArtifactRef, ...] = ()
    nonce: str
    idempotent: bool
    timeout_ms: int
    max_output_bytes: int
    grant: WorkerApprovalGrant | None = None
    with_fence = True
    begins_work = True


class CancelLease(FleetCommand, frozen=True, kw_only=True):
    reason: str = ""


class DeclineLease(FleetCommand, frozen=True, kw_only=True):
    session: int
    fence: int
    reason: str = ""
    with_open_leases = True


class SettleLease(FleetCommand, frozen=True, kw_only=True):
    """``statement`` was opened with the key of the worker's certificate; if that failed, ``refusal`` says how."""

    session: int
    statement: LeaseSettlement | None
    digest: str
    refusal: PalyraError | None = None
    with_open_leases = True


class NoteTaken(FleetCommand, frozen=True, kw_only=True):
    """The worker showed that it has the lease, by whatever it said or asked for."""

    with_open_leases = True


class DisclaimLease(FleetCommand, frozen=True, kw_only=True):
    """The worker says that it never began a lease whose cleanup it owes. ``refusal``: its word could not be opened."""

    session: int
    statement: LeaseDisclaimer | None
    refusal: PalyraError | None = None
    with_open_leases = True


class ExpireLease(FleetCommand, frozen=True, kw_only=True):
    with_open_leases = True


class RetryLease(FleetCommand, frozen=True, kw_only=True):
    """A new grant, ``grant_id``, for the call of a lease that was lost or declined."""

    valid_ms: int
    begins_work = True
