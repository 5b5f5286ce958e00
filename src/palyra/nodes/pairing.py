"""The life of one request to pair. One table holds every transition; what is not in it is refused."""

from enum import StrEnum
from typing import Final

from palyra.errors import InvalidInput


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


TRANSITIONS: Final[dict[tuple[PairingState, PairingEvent], PairingState]] = {
    (PairingState.PENDING_APPROVAL, PairingEvent.APPROVE): PairingState.APPROVED,
    (PairingState.PENDING_APPROVAL, PairingEvent.REJECT): PairingState.REJECTED,
    (PairingState.PENDING_APPROVAL, PairingEvent.EXPIRE): PairingState.EXPIRED,
    # The device fetched its certificate.
    (PairingState.APPROVED, PairingEvent.COMPLETE): PairingState.COMPLETED,
    # It never did.
    (PairingState.APPROVED, PairingEvent.EXPIRE): PairingState.EXPIRED,
}
OPEN: Final = frozenset((PairingState.PENDING_APPROVAL, PairingState.APPROVED))
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


def after(state: PairingState, event: PairingEvent) -> PairingState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise PairingAlreadyDecided(
            f"a request that is {state.value} cannot {event.value}", state=state.value
        ) from None
