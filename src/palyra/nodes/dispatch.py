"""The life of one request to a device. One table holds every transition; what is not in it is refused.

A request that has ended stays ended: no later word of the device, of the clock or of a person changes it.
"""

from enum import StrEnum
from typing import Final

from palyra.errors import InvalidInput


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


TRANSITIONS: Final[dict[tuple[RequestState, RequestEvent], RequestState]] = {
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
OPEN: Final = WITH_DEVICE | {RequestState.QUEUED}
ENDED: Final = frozenset(RequestState) - OPEN


class WrongRequestState(InvalidInput):
    code = "nodes.wrong_request_state"
    hint = "`palyra node show DEVICE` tells the state of its newest requests"
    http_status = 409


def after(state: RequestState, event: RequestEvent) -> RequestState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise WrongRequestState(f"a request that is {state.value} cannot {event.value}", state=state.value) from None
