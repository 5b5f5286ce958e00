"""A lease: one call, given to one worker until a deadline. One table holds every transition; any other is refused.

A lease ends once. ``settled`` has the worker's result. After ``fenced`` and ``expired`` its result is refused.
Its fencing number is larger than those of all earlier leases of the fleet, so that the stores of artifacts and output
can tell an older holder from the present one.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.ids import Ulid

# The fields that identify a call, wherever it is named.
CALL_FIELDS: Final = ("run_id", "call_id", "principal", "tool", "argument_digest")


def call_fields(source: Any) -> dict[str, Any]:
    """Return the fields that identify the call of a request, a grant, a lease or a note."""
    return {name: getattr(source, name) for name in CALL_FIELDS}


class GrantId(Ulid):
    __slots__ = ()
    noun = "grant id"


class GrantUnknown(Denied):
    code = "worker_grant.unknown"
    hint = "a lease needs a grant that the pipeline issued for this call"


class GrantUsed(Denied):
    code = "worker_grant.used"
    hint = "a grant lets one lease begin; a retry gets a grant of its own"


class GrantExpired(Denied):
    code = "worker_grant.expired"
    hint = "make the call again"


class GrantForAnother(Denied):
    code = "worker_grant.other_call"
    hint = "a grant is bound to its run, call, tool and arguments: anything changed is another call"


class GrantRepeated(InvalidInput):
    code = "worker_grant.repeated"
    hint = "issue each grant under an id of its own"
    http_status = 409


class WorkerApprovalGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline's permission to run one call on a worker, once.

    ``approval_id`` is the person's approval if policy asked for one. ``used_by`` is the lease that used the grant.
    """

    grant_id: str
    run_id: str
    call_id: str
    principal: str
    tool: str
    argument_digest: str
    issued_ms: int
    expires_ms: int
    approval_id: str = ""
    attempt: int = 1
    used_by: str = ""

    def require(self, *, now_ms: int, **call: Any) -> None:
        """Raise unless the grant permits exactly this call now."""
        if self.used_by:
            raise GrantUsed(f"the grant was used by the lease {self.used_by}", grant_id=self.grant_id)
        differing = sorted(name for name, value in call.items() if getattr(self, name) != value)
        if differing:
            raise GrantForAnother(f"the grant is for another {', '.join(differing)}", grant_id=self.grant_id)
        if now_ms >= self.expires_ms:
            raise GrantExpired("the grant is not valid any more", grant_id=self.grant_id)


class LeaseId(Ulid):
    __slots__ = ()
    noun = "lease id"


class LeaseState(StrEnum):
    OPEN = "open"
    CANCELLING = "cancelling"
    SETTLED = "settled"
    DECLINED = "declined"
    FENCED = "fenced"
    EXPIRED = "expired"


class LeaseEvent(StrEnum):
    CANCEL = "cancel"
    SETTLE = "settle"
    DECLINE = "decline"
    FENCE = "fence"
    EXPIRE = "expire"


TRANSITIONS: Final[dict[tuple[LeaseState, LeaseEvent], LeaseState]] = {
    (LeaseState.OPEN, LeaseEvent.CANCEL): LeaseState.CANCELLING,
    (LeaseState.OPEN, LeaseEvent.SETTLE): LeaseState.SETTLED,
    (LeaseState.OPEN, LeaseEvent.DECLINE): LeaseState.DECLINED,
    (LeaseState.OPEN, LeaseEvent.FENCE): LeaseState.FENCED,
    (LeaseState.OPEN, LeaseEvent.EXPIRE): LeaseState.EXPIRED,
    (LeaseState.CANCELLING, LeaseEvent.SETTLE): LeaseState.SETTLED,
    (LeaseState.CANCELLING, LeaseEvent.DECLINE): LeaseState.DECLINED,
    (LeaseState.CANCELLING, LeaseEvent.FENCE): LeaseState.FENCED,
    (LeaseState.CANCELLING, LeaseEvent.EXPIRE): LeaseState.EXPIRED,
}
OPEN_STATES: Final = frozenset((LeaseState.OPEN, LeaseState.CANCELLING))
# After these ends it is unknown what the worker did.
LOST_STATES: Final = frozenset((LeaseState.FENCED, LeaseState.EXPIRED))


class LeaseOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


class UnknownLease(InvalidInput):
    code = "lease.unknown"
    hint = "the id is wrong, or the lease ended long ago and is only in the journal"
    http_status = 404


class WrongWorker(Denied):
    code = "lease.wrong_worker"
    hint = "only the worker that holds a lease can report its end"


class StaleFence(Denied):
    code = "lease.stale_fence"
    hint = "the fencing number is not that of the lease"


class DuplicateResult(InvalidInput):
    code = "lease.duplicate_result"
    hint = "the lease is settled; a worker that did not get the answer may forget it now"
    http_status = 409


class FencedResult(Denied):
    code = "lease.fenced"
    hint = "the worker was given up while it held the lease; the result does not count"


class LateResult(LimitExceeded):
    code = "lease.late"
    hint = "the deadline passed; the result does not count"


class LeaseEnded(InvalidInput):
    code = "lease.ended"
    hint = "a lease ends once"
    http_status = 409


class NotOwed(InvalidInput):
    code = "lease.not_owed"
    hint = "a worker disclaims a lease once, after the daemon asked about it; it declines an open lease"
    http_status = 409


class NotRetryable(Denied):
    code = "lease.not_retryable"
    hint = "a lost or declined lease is tried again once, a lost one only if its tool is idempotent"


class LeaseLost(Failed):
    code = "lease.lost"
    hint = "the call may have had effects; repeat it if that does no harm"
    http_status = 502


class LeaseNotTaken(Failed):
    code = "lease.not_taken"
    hint = "the worker's own reason is in the message; `palyra worker list` shows what each worker can do"
    http_status = 502


class WorkerLease(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's record of a lease. The worker's cleanup proof repeats ``nonce``.

    ``taken_ms`` is the time of the first sign that the worker has the lease: its name in a hello, output, a result, a
    request for its files. 0 means no sign, which proves nothing. ``disclaimed_ms`` is the time when the worker stated
    that it never began the lease.
    """

    lease_id: str
    worker_id: str
    grant_id: str
    fence: int
    state: LeaseState
    run_id: str
    call_id: str
    principal: str
    tool: str
    argument_digest: str
    scope: WorkerWorkspaceScope
    inputs: tuple[ArtifactRef, ...]
    nonce: str
    idempotent: bool
    attempt: int
    max_output_bytes: int
    granted_ms: int
    deadline_ms: int
    ended_ms: int = 0
    outcome: LeaseOutcome | None = None
    output_digest: str = ""
    settlement_digest: str = ""
    reason: str = ""
    retried_as: str = ""
    taken_ms: int = 0
    disclaimed_ms: int = 0

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    def due_ms(self, policy: WorkerFleetPolicy) -> int:
        """Return when the reaper ends it. The grace is for the worker to kill, clean up and report."""
        return self.deadline_ms + policy.settle_grace_ms

    def ended(self, event: LeaseEvent, now_ms: int, **facts: Any) -> "WorkerLease":
        return msgspec.structs.replace(self, state=after(self.state, event), ended_ms=now_ms, **facts)


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``needs`` are capabilities. ``hosts`` and ``egress_bytes`` are the limits of the worker's proxy for the call."""

    run_id: str
    call_id: str
    principal: str
    tool: str
    arguments_json: bytes
    argument_digest: str
    tier: str
    obligations_json: bytes = b"{}"
    needs: frozenset[str]
    scope: WorkerWorkspaceScope
    inputs: tuple[ArtifactRef, ...] = ()
    idempotent: bool
    timeout_ms: int
    max_output_bytes: int
    approval_id: str = ""
    hosts: tuple[str, ...] = ()
    egress_bytes: int = 0
    egress_tunnels: int = 0


def after(state: LeaseState, event: LeaseEvent) -> LeaseState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise LeaseEnded(f"a lease that is {state.value} cannot {event.value}", state=state.value) from None


def require_retryable(lease: WorkerLease, policy: WorkerFleetPolicy) -> None:
    """Raise unless the lease may be tried again. A declined lease did nothing; a lost one may have run."""
    if lease.retried_as:
        raise NotRetryable("the lease was tried again already", lease_id=lease.lease_id)
    if lease.state is not LeaseState.DECLINED:
        if lease.state not in LOST_STATES:
            raise NotRetryable(f"the lease is {lease.state.value}", lease_id=lease.lease_id)
        if not (lease.idempotent or policy.retry_lost):
            raise NotRetryable(f"{lease.tool} is not idempotent and may have run", lease_id=lease.lease_id)
    if lease.attempt >= policy.max_attempts:
        raise NotRetryable(f"this was attempt {lease.attempt} of {policy.max_attempts}", lease_id=lease.lease_id)
