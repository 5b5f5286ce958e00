"""What is kept about devices: codes, requests to pair, paired nodes, and what they were asked to do.

Every record is a frozen value with its id in ``id``; ids are ULIDs, so sorted by id is sorted by age. Unknown fields
are refused when a record is read: a newer program's state is not half understood.
"""

from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from palyra.devicelink.pairing.code import DeviceFacts, PairingMethod, StretchedCode
from palyra.errors import InvalidInput
from palyra.identity.device import DeviceKind
from palyra.ids import Ulid

# The life of one request to a device. One table holds every transition; what is not in it is refused.
#
# A request that has ended stays ended: no later word of the device, of the clock or of a person changes it.


class RequestState(StrEnum):
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    AWAITING_LOCAL_MEDIATION = "awaiting_local_mediation"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"


class RequestEvent(StrEnum):
    """``redeliver`` is a second sending of what the device certainly has not begun, or may begin twice."""

    DISPATCH = "dispatch"
    REDELIVER = "redeliver"
    ASK_PERSON = "ask_person"
    SUCCEED = "succeed"
    FAIL = "fail"
    REJECT = "reject"
    TIME_OUT = "time_out"
    CANCEL = "cancel"


REQUEST_TRANSITIONS: Final[dict[tuple[RequestState, RequestEvent], RequestState]] = {
    (RequestState.QUEUED, RequestEvent.DISPATCH): RequestState.DISPATCHED,
    (RequestState.QUEUED, RequestEvent.FAIL): RequestState.FAILED,
    (RequestState.QUEUED, RequestEvent.TIME_OUT): RequestState.TIMED_OUT,
    (RequestState.QUEUED, RequestEvent.CANCEL): RequestState.FAILED,
    (RequestState.DISPATCHED, RequestEvent.REDELIVER): RequestState.DISPATCHED,
    (RequestState.DISPATCHED, RequestEvent.ASK_PERSON): RequestState.AWAITING_LOCAL_MEDIATION,
    (RequestState.DISPATCHED, RequestEvent.SUCCEED): RequestState.SUCCEEDED,
    (RequestState.DISPATCHED, RequestEvent.FAIL): RequestState.FAILED,
    (RequestState.DISPATCHED, RequestEvent.REJECT): RequestState.REJECTED,
    (RequestState.DISPATCHED, RequestEvent.TIME_OUT): RequestState.TIMED_OUT,
    (RequestState.DISPATCHED, RequestEvent.CANCEL): RequestState.FAILED,
    (RequestState.AWAITING_LOCAL_MEDIATION, RequestEvent.REDELIVER): RequestState.DISPATCHED,
    (RequestState.AWAITING_LOCAL_MEDIATION, RequestEvent.SUCCEED): RequestState.SUCCEEDED,
    (RequestState.AWAITING_LOCAL_MEDIATION, RequestEvent.FAIL): RequestState.FAILED,
    (RequestState.AWAITING_LOCAL_MEDIATION, RequestEvent.REJECT): RequestState.REJECTED,
    (RequestState.AWAITING_LOCAL_MEDIATION, RequestEvent.TIME_OUT): RequestState.TIMED_OUT,
    (RequestState.AWAITING_LOCAL_MEDIATION, RequestEvent.CANCEL): RequestState.FAILED,
}
# The device has it, and nobody else does.
WITH_DEVICE: Final = frozenset((RequestState.DISPATCHED, RequestState.AWAITING_LOCAL_MEDIATION))
OPEN_REQUESTS: Final = WITH_DEVICE | {RequestState.QUEUED}
ENDED_REQUESTS: Final = frozenset(RequestState) - OPEN_REQUESTS


class WrongRequestState(InvalidInput):
    code = "nodes.wrong_request_state"
    hint = "`palyra node show DEVICE` tells the state of its newest requests"
    http_status = 409


def next_request_state(state: RequestState, event: RequestEvent) -> RequestState:
    try:
        return REQUEST_TRANSITIONS[state, event]
    except KeyError:
        raise WrongRequestState(f"a request that is {state.value} cannot {event.value}", state=state.value) from None


# The life of one request to pair. One table holds every transition; what is not in it is refused.


class PairingState(StrEnum):
    PENDING_APPROVAL = "pending_approval"
    APPROVED = "approved"
    COMPLETED = "completed"
    REJECTED = "rejected"
    EXPIRED = "expired"


class PairingEvent(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    COMPLETE = "complete"
    EXPIRE = "expire"


PAIRING_TRANSITIONS: Final[dict[tuple[PairingState, PairingEvent], PairingState]] = {
    (PairingState.PENDING_APPROVAL, PairingEvent.APPROVE): PairingState.APPROVED,
    (PairingState.PENDING_APPROVAL, PairingEvent.REJECT): PairingState.REJECTED,
    (PairingState.PENDING_APPROVAL, PairingEvent.EXPIRE): PairingState.EXPIRED,
    # The device fetched its certificate.
    (PairingState.APPROVED, PairingEvent.COMPLETE): PairingState.COMPLETED,
    # It never did.
    (PairingState.APPROVED, PairingEvent.EXPIRE): PairingState.EXPIRED,
}
OPEN_PAIRINGS: Final = frozenset((PairingState.PENDING_APPROVAL, PairingState.APPROVED))
# What the journal calls each event.
KIND_OF: Final = {
    PairingEvent.APPROVE: "pairing.approved",
    PairingEvent.REJECT: "pairing.rejected",
    PairingEvent.COMPLETE: "pairing.completed",
    PairingEvent.EXPIRE: "pairing.expired",
}


class PairingAlreadyDecided(InvalidInput):
    code = "pairing.already_decided"
    hint = "a request is decided once; make a new code and let the device ask anew"
    http_status = 409


def next_pairing_state(state: PairingState, event: PairingEvent) -> PairingState:
    try:
        return PAIRING_TRANSITIONS[state, event]
    except KeyError:
        raise PairingAlreadyDecided(
            f"a request that is {state.value} cannot {event.value}", state=state.value
        ) from None


class CodeId(Ulid):
    __slots__ = ()
    noun: ClassVar[str] = "code id"


class PairingId(Ulid):
    __slots__ = ()
    noun: ClassVar[str] = "pairing id"


class RequestId(Ulid):
    __slots__ = ()
    noun: ClassVar[str] = "request id"


class CodeState(StrEnum):
    LIVE = "live"
    # A device proved it; only that device's key may prove it again, after a lost reply.
    USED = "used"
    BURNED = "burned"
    WITHDRAWN = "withdrawn"


class DevicePairingCodeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    # Three digits that find the record; no secret. Unique among the codes in force.
    nameplate: str
    method: PairingMethod
    kind: DeviceKind
    stretched: StretchedCode
    created_ms: int
    expires_ms: int
    created_by: str
    state: CodeState = CodeState.LIVE
    wrong_guesses: int = 0
    # The request that used it.
    pairing_id: str = ""

    def in_force(self, now_ms: int) -> bool:
        """It can still be proved: by anybody while live, by its own device once used."""
        return self.state in (CodeState.LIVE, CodeState.USED) and now_ms < self.expires_ms

    def ended(self, now_ms: int) -> bool:
        return not self.in_force(now_ms)


class DevicePairingRequestRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    device_id: str
    kind: DeviceKind
    code_id: str
    method: PairingMethod
    state: PairingState
    facts: DeviceFacts
    csr_der: bytes
    # SHA-256 of the public key (SubjectPublicKeyInfo) in the CSR, in hex: who may ask again.
    key_fingerprint: str
    # Six digits that the device shows too.
    comparison_code: str
    # SHA-256 of what lets the device, and nobody else, fetch the answer.
    collect_sha256: bytes
    address: str
    created_ms: int
    expires_ms: int
    decided_ms: int | None = None
    decided_by: str = ""
    reason: str = ""
    # How often another key proved the same code after it was used: somebody else knows it.
    refused_claims: int = 0

    def open(self) -> bool:
        return self.state in OPEN_PAIRINGS


class DeviceCapabilityView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing a device says it can do. ``withheld`` is the operator's, and outlives what the device reports."""

    name: str
    description: str = ""
    input_schema_json: str = ""
    local_mediation: bool = False
    idempotent: bool = False
    withheld: bool = False


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paired device. Its id is the device id; whether it is revoked is identity's to say."""

    id: str
    kind: DeviceKind
    name: str
    platform: str
    software_version: str
    paired_ms: int
    pairing_id: str
    capabilities: tuple[DeviceCapabilityView, ...] = ()
    # Names withheld by an operator, whether or not the device offers them at the moment.
    withheld: tuple[str, ...] = ()
    registered_ms: int | None = None
    revoked_ms: int | None = None
    revoked_reason: str = ""


class CapabilityRequestRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request to one device. The input is here for as long as it may have to be sent, also by another process."""

    id: str
    device_id: str
    capability: str
    state: RequestState
    principal: str
    call_id: str
    input_digest: str
    idempotent: bool
    created_ms: int
    deadline_ms: int
    dispatched_ms: int | None = None
    finished_ms: int | None = None
    output_digest: str = ""
    error_code: str = ""
    # Of the daemon process that waits for the result.
    instance_id: str = ""
    # Canonical JSON; empty once the request has ended.
    input_json: str = ""
    # When the device said that it has begun: from then on only it knows how far it got.
    accepted_ms: int | None = None

    def open(self) -> bool:
        return self.state in OPEN_REQUESTS
