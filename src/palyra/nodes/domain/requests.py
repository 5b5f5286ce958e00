"""The rules of a request to a device: when it may be sent, which result counts, and how it ends.

A result counts if it is the first one, from the right device, in time, and small enough. Others are refused by codes.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from palyra.devicelink import limits
from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.nodes.domain.capability import CapabilityWithheld, readable
from palyra.nodes.domain.records import (
    ENDED_REQUESTS,
    WITH_DEVICE,
    CapabilityRequestRecord,
    RequestEvent,
    RequestState,
    next_request_state,
)
from palyra.strict_json import parse_strict


class ResultUnknown(InvalidInput):
    code = "nodes.result_unknown"
    hint = "no such request was made, or it is so old that its record is gone"
    http_status = 404


class ResultFromOther(Denied):
    code = "nodes.result_wrong_device"
    hint = "a result counts from the device the request was sent to"


class ResultDuplicate(InvalidInput):
    code = "nodes.result_duplicate"
    hint = "the first result of a request is the only one"
    http_status = 409


class ResultLate(LimitExceeded):
    code = "nodes.result_late"
    hint = "the request had ended, by its deadline or by being cancelled, before the result came"
    http_status = 409


class ResultTooLarge(LimitExceeded):
    code = "nodes.result_too_large"
    hint = "ask for less; the setting nodes.max_result_bytes is the limit"


class ResultMalformed(InvalidInput):
    code = "nodes.result_malformed"
    hint = "a result is one JSON value, as strict as the arguments of a call"


class TooManyRequests(LimitExceeded):
    code = "nodes.too_many_requests"
    hint = "wait for requests to this device to end"


class RequestTimedOut(LimitExceeded):
    code = "nodes.timed_out"
    hint = "ask for less, or for a longer timeout_ms"
    http_status = 504


class DeviceOffline(Unavailable):
    code = "nodes.offline"
    hint = "the device did not connect before the deadline; `palyra node list` shows which devices are connected"


class RequestCancelled(Failed):
    code = "nodes.cancelled"
    hint = "somebody asked for the call to stop"
    http_status = 409


class RequestLost(Failed):
    code = "nodes.request_lost"
    hint = "the device began and then forgot it; it may have taken effect, so it is not sent again"


class DeviceFailed(Failed):
    code = "nodes.device_failed"
    hint = "the device's own code and message say why"
    http_status = 422


class DeviceRejected(Denied):
    code = "nodes.rejected"
    hint = "the person at the device said no, or nobody was there to ask"


class DeviceGone(Unavailable):
    code = "nodes.device_gone"
    hint = "the device was revoked while it had the request"


class Succeeded(NamedTuple):
    output_json: bytes


class Refused(NamedTuple):
    """The device could not, or its person refused. ``code`` and ``message`` are the device's text."""

    rejected: bool
    code: str
    message: str


Result = Succeeded | Refused
# A request with less time left than this is not sent.
_TOO_SHORT_MS: Final = 1


def may_send(request: CapabilityRequestRecord, now_ms: int) -> bool:
    """Return whether to send the request. One past its deadline is never sent."""
    return request.state is RequestState.QUEUED and now_ms + _TOO_SHORT_MS <= request.deadline_ms


def mark_sent(request: CapabilityRequestRecord, now_ms: int, event: RequestEvent) -> CapabilityRequestRecord:
    return msgspec.structs.replace(request, state=next_request_state(request.state, event), dispatched_ms=now_ms)


def end_request(
    request: CapabilityRequestRecord, event: RequestEvent, now_ms: int, *, code: str = "", output_digest: str = ""
) -> CapabilityRequestRecord:
    """End the request, and delete its input, which is no longer needed."""
    return msgspec.structs.replace(
        request,
        state=next_request_state(request.state, event),
        finished_ms=now_ms,
        error_code=code,
        output_digest=output_digest,
        input_json="",
    )


def require_result_counts(
    request: CapabilityRequestRecord | None, request_id: str, device_id: str, now_ms: int
) -> CapabilityRequestRecord:
    """Return the request if a result counts. Otherwise raise: unknown, wrong device, duplicate or late."""
    if request is None:
        raise ResultUnknown("there is no such request", request=request_id)
    if request.device_id != device_id:
        raise ResultFromOther("the request was not sent to this device", request=request_id)
    if request.state is RequestState.TIMED_OUT or _was_ended_here(request):
        raise ResultLate("the request had ended before", request=request_id, ended_by=request.error_code)
    if request.state in ENDED_REQUESTS:
        raise ResultDuplicate("the request has its result", request=request_id)
    if request.state not in WITH_DEVICE:
        raise ResultUnknown("the request was not sent yet", request=request_id)
    if now_ms > request.deadline_ms:
        raise ResultLate("the deadline has passed", request=request_id)
    return request


def _was_ended_here(request: CapabilityRequestRecord) -> bool:
    """Return whether the daemon ended it, and not the device."""
    return request.error_code in {RequestCancelled.code, RequestLost.code, DeviceGone.code, CapabilityWithheld.code}


def find_fault(result: Result, most: int) -> PalyraError | None:
    """Return the fault of a result: it is too large, or it is not JSON."""
    if isinstance(result, Refused):
        return None
    size = len(result.output_json)
    if size > most:
        return ResultTooLarge(f"the result has {size} bytes and may have {most}", limit=most)
    try:
        parse_strict(result.output_json, any_number_spelling=True)
    except InvalidInput as error:
        return ResultMalformed(f"the result cannot be read: {error.message}")
    return None


def to_error(refused: Refused) -> PalyraError:
    """Make an error of a device's failure, with its text made safe to store and show."""
    kind: type[PalyraError] = DeviceRejected if refused.rejected else DeviceFailed
    message = readable(refused.message, limits.MAX_FAILURE_MESSAGE_CHARS) or "the device gave no reason"
    return kind(message, device_code=readable(refused.code, limits.MAX_FAILURE_CODE_CHARS))


class Reunion(NamedTuple):
    """The open requests of a device that is back: which to send again, which are lost."""

    redeliver: tuple[CapabilityRequestRecord, ...]
    lost: tuple[CapabilityRequestRecord, ...]
    # Requests that the device still has, but that no longer count.
    abandoned: tuple[str, ...]


def reunite(
    requests: Iterable[CapabilityRequestRecord], device_id: str, still_open: Sequence[str], now_ms: int
) -> Reunion:
    """Compare the requests that a returning device names with those that were sent to it.

    An unnamed one never arrived, or was begun and forgotten. It is sent again if it was not begun, or is idempotent.
    """
    known = {request.id: request for request in requests if request.device_id == device_id}
    named = set(still_open)
    redeliver, lost = [], []
    for request in known.values():
        if request.state not in WITH_DEVICE or request.id in named or now_ms > request.deadline_ms:
            continue
        if request.accepted_ms is None or request.idempotent:
            redeliver.append(request)
        else:
            lost.append(request)
    abandoned = [
        name
        for name in still_open
        if (one := known.get(name)) is None or one.state not in WITH_DEVICE or now_ms > one.deadline_ms
    ]
    return Reunion(tuple(redeliver), tuple(lost), tuple(abandoned))


def list_overdue(requests: Iterable[CapabilityRequestRecord], now_ms: int) -> list[CapabilityRequestRecord]:
    return [request for request in requests if request.open() and now_ms > request.deadline_ms]


def to_timeout_error(request: CapabilityRequestRecord) -> PalyraError:
    """Return the error for a deadline: the device was offline, or it did not answer."""
    if request.dispatched_ms is None:
        return DeviceOffline("the device was not connected before the deadline", request=request.id)
    return RequestTimedOut("the device did not answer in time", request=request.id)
