"""The changes of requests in the state, each with its journal entries.

These are plain functions over a unit of work. The caller commits first, and sends, answers or raises afterwards.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from palyra.devicelink.limits import MAX_OPEN_INPUT_BYTES, MAX_OPEN_REQUESTS_PER_DEVICE
from palyra.errors import PalyraError
from palyra.identity.device import DeviceKind, actor_of
from palyra.nodes.domain import requests
from palyra.nodes.domain.records import WITH_DEVICE, CapabilityRequestRecord, RequestEvent, RequestState
from palyra.nodes.domain.requests import Refused, Result
from palyra.nodes.store.port import NodeUnit
from palyra.store.event import NewEvent

DAEMON = "palyrad"


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a request: its output, or its error. ``refusal`` is for a device whose result does not count."""

    request: CapabilityRequestRecord | None = None
    output_json: bytes = b""
    error: PalyraError | None = None
    refusal: PalyraError | None = None


def enter(unit: NodeUnit, request: CapabilityRequestRecord, *, connected: bool) -> CapabilityRequestRecord:
    """Enter a request: queue it, and mark it as sent if its device is connected."""
    waiting = [one for one in unit.requests.list() if one.open()]
    if sum(one.device_id == request.device_id for one in waiting) >= MAX_OPEN_REQUESTS_PER_DEVICE:
        raise requests.TooManyRequests(f"{MAX_OPEN_REQUESTS_PER_DEVICE} requests to this device are open")
    if sum(len(one.input_json) for one in waiting) + len(request.input_json) > MAX_OPEN_INPUT_BYTES:
        raise requests.TooManyRequests("the inputs of open requests are too large together")
    _append(
        unit,
        request,
        "node.request_queued",
        input_digest=request.input_digest,
        deadline_ms=request.deadline_ms,
        connected=connected,
    )
    if connected:
        return send(unit, request)
    unit.requests.put(request)
    return request


def send(unit: NodeUnit, request: CapabilityRequestRecord) -> CapabilityRequestRecord:
    again = request.state in WITH_DEVICE
    event = RequestEvent.REDELIVER if again else RequestEvent.DISPATCH
    request = requests.mark_sent(request, unit.now_ms, event)
    unit.requests.put(request)
    _append(unit, request, "node.request_dispatched", again=again, timeout_ms=request.deadline_ms - unit.now_ms)
    return request


def send_waiting(unit: NodeUnit, device_id: str, again: Iterable[str]) -> list[CapabilityRequestRecord]:
    """Mark all requests that wait for this device as sent, oldest first."""
    repeated = set(again)
    given = []
    for request in unit.requests.list():
        if request.device_id != device_id:
            continue
        returns = request.id in repeated and request.state in WITH_DEVICE and unit.now_ms <= request.deadline_ms
        if returns or requests.may_send(request, unit.now_ms):
            given.append(send(unit, request))
    return given


def accept(unit: NodeUnit, device_id: str, request_id: str) -> None:
    """Note that the device has begun, for a request that must not be done twice. Ignore other devices' requests."""
    request = unit.requests.get(request_id)
    if request is None or request.device_id != device_id or request.state not in WITH_DEVICE:
        return
    if request.idempotent or request.accepted_ms is not None:
        return
    unit.requests.put(msgspec.structs.replace(request, accepted_ms=unit.now_ms))


def ask_person(unit: NodeUnit, device_id: str, request_id: str) -> None:
    request = unit.requests.get(request_id)
    if request is None or request.device_id != device_id or request.state is not RequestState.DISPATCHED:
        return
    state = RequestState.AWAITING_LOCAL_MEDIATION
    unit.requests.put(msgspec.structs.replace(request, state=state, accepted_ms=request.accepted_ms or unit.now_ms))
    _append(unit, request, "node.request_mediated", actor=actor_of(DeviceKind.NODE, device_id))


def settle(unit: NodeUnit, device_id: str, request_id: str, result: Result, unfit: PalyraError | None) -> Settled:
    """Settle a request with a device's result. One with a fault (``unfit``) ends the request as failed."""
    try:
        request = requests.require_result_counts(unit.requests.get(request_id), request_id, device_id, unit.now_ms)
    except PalyraError as refusal:
        return Settled(refusal=refusal)
    actor = actor_of(DeviceKind.NODE, device_id)
    if unfit is not None:
        return msgspec.structs.replace(_finish(unit, request, RequestEvent.FAIL, unfit, actor=actor), refusal=unfit)
    if isinstance(result, Refused):
        event = RequestEvent.REJECT if result.rejected else RequestEvent.FAIL
        return _finish(unit, request, event, requests.to_error(result), actor=actor)
    digest = sha256(result.output_json).hexdigest()
    ended = requests.end_request(request, RequestEvent.SUCCEED, unit.now_ms, output_digest=digest)
    unit.requests.put(ended)
    _ended(unit, ended, None, actor=actor)
    return Settled(request=ended, output_json=result.output_json)


def time_out(unit: NodeUnit, request_id: str) -> Settled:
    request = unit.requests.get(request_id)
    if request is None or not request.open():
        return Settled(request=request)
    return _finish(unit, request, RequestEvent.TIME_OUT, requests.to_timeout_error(request))


def cancel(unit: NodeUnit, request_id: str) -> Settled:
    request = unit.requests.get(request_id)
    if request is None or not request.open():
        return Settled(request=request)
    return _finish(unit, request, RequestEvent.CANCEL, requests.RequestCancelled("the call was stopped"))


def time_out_overdue(unit: NodeUnit, spared: Iterable[str]) -> list[Settled]:
    """Time out all overdue requests, except those with a caller in this process (``spared``)."""
    watched = set(spared)
    return [
        time_out(unit, request.id)
        for request in requests.list_overdue(unit.requests.list(), unit.now_ms)
        if request.id not in watched
    ]


def fail_all_of(unit: NodeUnit, device_id: str) -> list[Settled]:
    """Fail all requests of a device that can no longer connect."""
    gone = requests.DeviceGone("the device may no longer connect", device=device_id)
    return [
        _finish(unit, request, RequestEvent.FAIL, gone)
        for request in unit.requests.list()
        if request.device_id == device_id and request.open()
    ]


def fail_capability(unit: NodeUnit, device_id: str, capability: str, error: PalyraError) -> list[Settled]:
    return [
        _finish(unit, request, RequestEvent.FAIL, error)
        for request in unit.requests.list()
        if request.device_id == device_id and request.capability == capability and request.open()
    ]


def reunite(unit: NodeUnit, device_id: str, still_open: Sequence[str]) -> tuple[requests.Reunion, list[Settled]]:
    reunion = requests.reunite(unit.requests.list(), device_id, still_open, unit.now_ms)
    lost = requests.RequestLost("the device began this and no longer knows of it", device=device_id)
    return reunion, [_finish(unit, request, RequestEvent.FAIL, lost) for request in reunion.lost]


def _finish(
    unit: NodeUnit, request: CapabilityRequestRecord, event: RequestEvent, error: PalyraError, *, actor: str = DAEMON
) -> Settled:
    ended = requests.end_request(request, event, unit.now_ms, code=error.code)
    unit.requests.put(ended)
    _ended(unit, ended, error, actor=actor)
    return Settled(request=ended, error=error)


def _ended(unit: NodeUnit, request: CapabilityRequestRecord, error: PalyraError | None, *, actor: str) -> None:
    _append(
        unit,
        request,
        "node.request_ended",
        actor=actor,
        state=request.state.value,
        output_digest=request.output_digest,
        error=None if error is None else error.as_dict(),
    )


def _append(
    unit: NodeUnit, request: CapabilityRequestRecord, kind: str, *, actor: str = DAEMON, **payload: Any
) -> None:
    about = {"request_id": request.id, "device_id": request.device_id, "capability": request.capability, **payload}
    unit.append(NewEvent(kind=kind, actor=actor, principal=request.principal, call=request.call_id, payload=about))
