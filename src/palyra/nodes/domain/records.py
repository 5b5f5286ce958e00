"""The stored records: pairing codes, requests to pair, paired nodes, and requests to devices.

Every record is a frozen value with its id in ``id``. Ids are ULIDs, so their order is that of age. A reader refuses
unknown fields, because it must not misunderstand a newer program's state.
"""

from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from palyra.devicelink.pairing.code import DeviceFacts, PairingMethod, StretchedCode
from palyra.errors import InvalidInput
from palyra.identity.device import DeviceKind
from palyra.ids import Ulid

# The states of a request to a device. Every transition is in the table; others are refused.
#
# No later event changes a request that has ended.


class RequestState(StrEnum):
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    AWAITING_LOCAL_MEDIATION = "awaiting_local_mediation"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"


class RequestEvent(StrEnum):
    """``redeliver`` sends a request again that the device has not begun, or may do twice."""

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
# The device has the request.
WITH_DEVICE: Final = frozenset((RequestState.DISPATCHED, RequestState.AWAITING_LOCAL_MEDIATION))
OPEN_REQUESTS: Final = WITH_DEVICE | {RequestState.QUEUED}
ENDED_REQUESTS: Final = frozenset(RequestState) - OPEN_REQUESTS


class WrongRequestState(InvalidInput):
    code = "nodes.wrong_request_state"
    hint = "`palyra node show DEVICE` shows the state of its newest requests"
    http_status = 409


def next_request_state(state: RequestState, event: RequestEvent) -> RequestState:
    try:
        return REQUEST_TRANSITIONS[state, event]
    except KeyError:
        raise WrongRequestState(f"a request that is {state.value} cannot {event.value}", state=state.value) from None


# The states of a request to pair. Every transition is in the table; others are refused.


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
# The journal's kind for each event.
KIND_OF: Final = {
    PairingEvent.APPROVE: "pairing.approved",
    PairingEvent.REJECT: "pairing.rejected",
    PairingEvent.COMPLETE: "pairing.completed",
    PairingEvent.EXPIRE: "pairing.expired",
}


class PairingAlreadyDecided(InvalidInput):
    code = "pairing.already_decided"
    hint = "a request is decided once; make a new code and pair the device again"
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
        """Return whether a device can still prove it: any device while live, only its own one once used."""
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
    # SHA-256 of the public key (SubjectPublicKeyInfo) in the CSR, in hex: only this key may claim the code again.
    key_fingerprint: str
    # Six digits that the device shows too.
    comparison_code: str
    # SHA-256 of the secret with which only this device fetches the answer.
    collect_sha256: bytes
    address: str
    created_ms: int
    expires_ms: int
    decided_ms: int | None = None
    decided_by: str = ""
    reason: str = ""
    # How often another key proved the used code, so that another party knows it.
    refused_claims: int = 0

    def open(self) -> bool:
        return self.state in OPEN_PAIRINGS


class DeviceCapabilityView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A capability that a device reports. The operator sets ``withheld``, which later reports do not change."""

    name: str
    description: str = ""
    input_schema_json: str = ""
    local_mediation: bool = False
    idempotent: bool = False
    withheld: bool = False


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paired device. Its id is the device id. ``palyra.identity`` decides whether it is revoked."""

    id: str
    kind: DeviceKind
    name: str
    platform: str
    software_version: str
    paired_ms: int
    pairing_id: str
    capabilities: tuple[DeviceCapabilityView, ...] = ()
    # Names that an operator withheld, even if the device does not offer them at present.
    withheld: tuple[str, ...] = ()
    registered_ms: int | None = None
    revoked_ms: int | None = None
    revoked_reason: str = ""


class CapabilityRequestRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request to one device. It keeps the input until it ends, so that any process can send it."""

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
    # When the device reported that it has begun.
    accepted_ms: int | None = None

    def open(self) -> bool:
        return self.state in OPEN_REQUESTS
