"""``/v1/pairing``: codes for new devices, what waits for a person, and the person's answer."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.described import described
from palyra.api.http import answer, read_into, read_query
from palyra.api.service import ApiService
from palyra.api.views.devices import CodeData, CodeList, NewCodeData, PairingData, PairingList
from palyra.clock import rfc3339
from palyra.identity.device import DeviceKind
from palyra.nodes.limits import MAX_CODE_TTL_SECONDS, MAX_WRONG_GUESSES, MIN_CODE_TTL_SECONDS
from palyra.nodes.pairing import PairingState
from palyra.nodes.records import DevicePairingCodeRecord, DevicePairingRequestRecord, PairingMethod

if TYPE_CHECKING:
    from palyra.nodes.pairing_desk import PairingDesk

MAX_REASON_CHARS = 512
# Told here; the desk refuses what does not fit, with its own code.
TtlSeconds = Annotated[int, Meta(extra_json_schema={"minimum": MIN_CODE_TTL_SECONDS, "maximum": MAX_CODE_TTL_SECONDS})]


class PairingCodeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: PairingMethod = PairingMethod.PIN
    kind: DeviceKind = DeviceKind.NODE
    ttl_seconds: TtlSeconds | None = None


class PairingQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: PairingState | None = None


class PairingDecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    decision: Literal["approve", "reject"]
    comparison_code: Annotated[str, Meta(max_length=16)] | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON_CHARS)] | None = None


@described("Makes a code for one device; it is shown this once.", body=PairingCodeBody, data=NewCodeData, status=201)
async def make_code(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    body = await read_into(request, PairingCodeBody)
    service.require_pairing_operator(caller, body.kind.value)
    desk = await _desk(service)
    made = await desk.make_code(body.method, body.kind, actor=caller.actor, ttl_seconds=body.ttl_seconds)
    return answer(
        {
            **code_view(made.record),
            # Shown here and never again.
            "code": made.text.reveal(),
            "addresses": [str(address) for address in made.addresses],
            "ca_hash": made.ca_hash,
        },
        201,
    )


@described("The codes in force, without the codes themselves.", data=CodeList)
async def list_codes(service: ApiService, request: Request) -> Response:
    service.require_pairing_operator(service.caller(request))
    desk = await _desk(service)
    return answer({"codes": [code_view(code) for code in await desk.codes()]})


@described("Takes a code back.", data=CodeData)
async def withdraw_code(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_pairing_operator(caller)
    desk = await _desk(service)
    return answer(code_view(await desk.withdraw_code(request.path_params["code_id"], actor=caller.actor)))


@described("Requests to join, the newest first.", query=PairingQuery, data=PairingList)
async def list_pairings(service: ApiService, request: Request) -> Response:
    service.require_pairing_operator(service.caller(request))
    asked = read_query(request, PairingQuery)
    desk = await _desk(service)
    found = await desk.pairings(asked.state)
    return answer({"pairings": [pairing_view(pairing) for pairing in found]})


@described("One request to join.", data=PairingData)
async def show_pairing(service: ApiService, request: Request) -> Response:
    service.require_pairing_operator(service.caller(request))
    desk = await _desk(service)
    return answer(pairing_view(await desk.pairing(request.path_params["pairing_id"])))


@described("Lets a device in, or not.", body=PairingDecisionBody, data=PairingData)
async def decide_pairing(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    desk = await _desk(service)
    pairing_id = request.path_params["pairing_id"]
    # Whoever may not even see requests is not told which exist.
    service.require_pairing_operator(caller)
    service.require_pairing_operator(caller, (await desk.pairing(pairing_id)).kind.value)
    body = await read_into(request, PairingDecisionBody)
    reason = body.reason or ""
    if body.decision == "approve":
        decided = await desk.approve(
            pairing_id, actor=caller.actor, comparison_code=body.comparison_code, reason=reason
        )
    else:
        decided = await desk.reject(pairing_id, actor=caller.actor, reason=reason)
    return answer(pairing_view(decided))


async def _desk(service: ApiService) -> "PairingDesk":
    return (await service.nodes()).pairing


def code_view(code: DevicePairingCodeRecord) -> CodeData:
    """Nothing of the code itself."""
    return {
        "id": code.id,
        "nameplate": code.nameplate,
        "method": code.method,
        "kind": code.kind,
        "state": code.state,
        "guesses_left": max(0, MAX_WRONG_GUESSES - code.wrong_guesses),
        "created_by": code.created_by,
        "created_at": rfc3339(code.created_ms),
        "expires_at": rfc3339(code.expires_ms),
        "pairing_id": code.pairing_id or None,
    }


def pairing_view(pairing: DevicePairingRequestRecord) -> PairingData:
    return {
        "id": pairing.id,
        "state": pairing.state,
        "device_id": pairing.device_id,
        "kind": pairing.kind,
        "name": pairing.facts.name,
        "platform": pairing.facts.platform,
        "software_version": pairing.facts.software_version,
        "key_fingerprint": pairing.key_fingerprint,
        "comparison_code": pairing.comparison_code,
        "address": pairing.address,
        "method": pairing.method,
        "refused_claims": pairing.refused_claims,
        "created_at": rfc3339(pairing.created_ms),
        "expires_at": rfc3339(pairing.expires_ms) if pairing.open() else None,
        "decided_at": rfc3339(pairing.decided_ms) if pairing.decided_ms is not None else None,
        "decided_by": pairing.decided_by or None,
        "reason": pairing.reason,
    }
