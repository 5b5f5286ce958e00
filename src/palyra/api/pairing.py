"""``/v1/pairing``: codes for new devices, what waits for a person, and the person's answer."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.http import WrongShape, answer, read_into
from palyra.api.service import ApiService
from palyra.clock import rfc3339
from palyra.identity.device import DeviceKind
from palyra.nodes.limits import MAX_WRONG_GUESSES
from palyra.nodes.pairing import PairingState
from palyra.nodes.records import DevicePairingCodeRecord, DevicePairingRequestRecord, PairingMethod

if TYPE_CHECKING:
    from palyra.nodes.pairing_desk import PairingDesk

MAX_REASON_CHARS = 512


class PairingCodeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: PairingMethod = PairingMethod.PIN
    kind: DeviceKind = DeviceKind.NODE
    ttl_seconds: int | None = None


class PairingDecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    decision: Literal["approve", "reject"]
    comparison_code: Annotated[str, Meta(max_length=16)] | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON_CHARS)] | None = None


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


async def list_codes(service: ApiService, request: Request) -> Response:
    service.require_pairing_operator(service.caller(request))
    desk = await _desk(service)
    return answer({"codes": [code_view(code) for code in await desk.codes()]})


async def withdraw_code(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_pairing_operator(caller)
    desk = await _desk(service)
    return answer(code_view(await desk.withdraw_code(request.path_params["code_id"], actor=caller.actor)))


async def list_pairings(service: ApiService, request: Request) -> Response:
    service.require_pairing_operator(service.caller(request))
    raw = request.query_params.get("state")
    if raw is not None and raw not in set(PairingState):
        raise WrongShape(f"there is no pairing state {raw[:64]!r}; there are {', '.join(PairingState)}")
    desk = await _desk(service)
    found = await desk.pairings(None if raw is None else PairingState(raw))
    return answer({"pairings": [pairing_view(pairing) for pairing in found]})


async def show_pairing(service: ApiService, request: Request) -> Response:
    service.require_pairing_operator(service.caller(request))
    desk = await _desk(service)
    return answer(pairing_view(await desk.pairing(request.path_params["pairing_id"])))


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


def code_view(code: DevicePairingCodeRecord) -> dict[str, Any]:
    """Nothing of the code itself."""
    return {
        "id": code.id,
        "nameplate": code.nameplate,
        "method": code.method.value,
        "kind": code.kind.value,
        "state": code.state.value,
        "guesses_left": max(0, MAX_WRONG_GUESSES - code.wrong_guesses),
        "created_by": code.created_by,
        "created_at": rfc3339(code.created_ms),
        "expires_at": rfc3339(code.expires_ms),
        "pairing_id": code.pairing_id or None,
    }


def pairing_view(pairing: DevicePairingRequestRecord) -> dict[str, Any]:
    return {
        "id": pairing.id,
        "state": pairing.state.value,
        "device_id": pairing.device_id,
        "kind": pairing.kind.value,
        "name": pairing.facts.name,
        "platform": pairing.facts.platform,
        "software_version": pairing.facts.software_version,
        "key_fingerprint": pairing.key_fingerprint,
        "comparison_code": pairing.comparison_code,
        "address": pairing.address,
        "method": pairing.method.value,
        "refused_claims": pairing.refused_claims,
        "created_at": rfc3339(pairing.created_ms),
        "expires_at": rfc3339(pairing.expires_ms) if pairing.open() else None,
        "decided_at": rfc3339(pairing.decided_ms) if pairing.decided_ms is not None else None,
        "decided_by": pairing.decided_by or None,
        "reason": pairing.reason,
    }
