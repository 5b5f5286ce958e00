"""``/v1/identity``: the authorities, the devices with their certificates, and the replacing of an authority."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from palyra.clock import rfc3339
from palyra.devicelink.limits import (
    MAX_CAPABILITY_NAME_CHARS,
    MAX_CODE_TTL_SECONDS,
    MAX_REASON_CHARS,
    MAX_WRONG_GUESSES,
    MIN_CODE_TTL_SECONDS,
)
from palyra.devicelink.pairing.code import PairingMethod
from palyra.identity.device import DeviceKind
from palyra.nodes.domain.records import DevicePairingCodeRecord, DevicePairingRequestRecord, PairingState
from palyra.server.context import ApiService
from palyra.server.http.envelope import answer, read_into, read_query
from palyra.server.http.route_schema import described
from palyra.server.http.views import (
    AuthorityData,
    CodeData,
    CodeList,
    DeviceIdentityData,
    IdentityData,
    NewCodeData,
    NodeData,
    NodeList,
    PairingData,
    PairingList,
)

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager
    from palyra.identity.records import AuthorityView, DeviceIdentity
    from palyra.nodes.pairing.service import PairingDesk


class AuthorityRotationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to say: a rotation has no choices."""


@described("The authorities, and the devices with their certificates.", data=IdentityData)
async def show_identity(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "identity.manage")
    return answer(await asyncio.to_thread(_shown, service.identity()))


@described("Replaces the authority.", body=AuthorityRotationBody, data=IdentityData)
async def rotate_authority(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "identity.manage")
    await read_into(request, AuthorityRotationBody)
    identity = service.identity()
    await identity.rotate_authority(actor=caller.actor)
    return answer(await asyncio.to_thread(_shown, identity))


def _shown(identity: "IdentityManager") -> IdentityData:
    return {
        "trust_domain": identity.known_trust_domain(),
        "authorities": [authority_view(authority) for authority in identity.authorities()],
        "devices": [device_view(device) for device in identity.devices()],
    }


def authority_view(authority: "AuthorityView") -> AuthorityData:
    return {
        "authority_id": authority.authority_id,
        "state": authority.state.value,
        "created_at": rfc3339(authority.created_ms),
        "ends_at": rfc3339(authority.not_after_ms),
        "needed_until": rfc3339(authority.needed_until_ms) if authority.needed_until_ms else None,
    }


def device_view(device: "DeviceIdentity") -> DeviceIdentityData:
    return {
        "device_id": str(device.device_id),
        "kind": device.kind,
        "state": device.state.value,
        "reason": device.reason,
        "generation": device.generation,
        "used_generation": device.used_generation,
        "fingerprint": device.fingerprint,
        "created_at": rfc3339(device.created_ms),
        "changed_at": rfc3339(device.changed_ms),
        "certificate_ends_at": rfc3339(device.not_after_ms),
    }


# ``/v1/nodes``: the paired devices, what of them is withheld, and the end of their access.


class RevokeNodeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class NodeCapabilityBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    capability: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CAPABILITY_NAME_CHARS)]


@described("Every device that was paired.", data=NodeList)
async def list_nodes(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.manage")
    desk = (await service.nodes()).desk
    return answer({"nodes": [desk.view(node) for node in desk.nodes()]})


@described("One device with its newest requests.", data=NodeData)
async def show_node(service: ApiService, request: Request) -> Response:
    """With its newest requests. A device is named by its id, or by the name it was paired under."""
    service.admit_operator(request, "device.manage")
    desk = (await service.nodes()).desk
    return answer(desk.view(desk.find(request.path_params["device"]), requests=True))


@described("Ends a device's access at once.", body=RevokeNodeBody, data=NodeData)
async def revoke_node(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "device.manage")
    body = await read_into(request, RevokeNodeBody)
    desk = (await service.nodes()).desk
    node = await desk.revoke(request.path_params["device"], reason=body.reason, actor=caller.actor)
    return answer(desk.view(node))


@described("Nobody gets the capability of the device any more.", body=NodeCapabilityBody, data=NodeData)
async def withhold_capability(service: ApiService, request: Request) -> Response:
    return answer(await _set_withheld(service, request, withheld=True))


@described("Gives a withheld capability back.", body=NodeCapabilityBody, data=NodeData)
async def allow_capability(service: ApiService, request: Request) -> Response:
    return answer(await _set_withheld(service, request, withheld=False))


async def _set_withheld(service: ApiService, request: Request, *, withheld: bool) -> dict[str, Any]:
    caller = service.admit_operator(request, "device.manage")
    body = await read_into(request, NodeCapabilityBody)
    desk = (await service.nodes()).desk
    node = await desk.set_withheld(
        request.path_params["device"], body.capability, withheld=withheld, actor=caller.actor
    )
    return desk.view(node)


# ``/v1/pairing``: codes for new devices, what waits for a person, and the person's answer.

MAX_REJECTION_CHARS = 512
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
    reason: Annotated[str, Meta(max_length=MAX_REJECTION_CHARS)] | None = None


@described("Makes a code for one device; it is shown this once.", body=PairingCodeBody, data=NewCodeData, status=201)
async def make_code(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    body = await read_into(request, PairingCodeBody)
    service.require_operator(caller, "device.pair", kind=body.kind.value)
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
    service.admit_operator(request, "device.pair", kind="any")
    desk = await _desk(service)
    return answer({"codes": [code_view(code) for code in await desk.codes()]})


@described("Takes a code back.", data=CodeData)
async def withdraw_code(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "device.pair", kind="any")
    desk = await _desk(service)
    return answer(code_view(await desk.withdraw_code(request.path_params["code_id"], actor=caller.actor)))


@described("Requests to join, the newest first.", query=PairingQuery, data=PairingList)
async def list_pairings(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.pair", kind="any")
    asked = read_query(request, PairingQuery)
    desk = await _desk(service)
    found = await desk.pairings(asked.state)
    return answer({"pairings": [pairing_view(pairing) for pairing in found]})


@described("One request to join.", data=PairingData)
async def show_pairing(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.pair", kind="any")
    desk = await _desk(service)
    return answer(pairing_view(await desk.pairing(request.path_params["pairing_id"])))


@described("Lets a device in, or not.", body=PairingDecisionBody, data=PairingData)
async def decide_pairing(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    desk = await _desk(service)
    pairing_id = request.path_params["pairing_id"]
    # Whoever may not even see requests is not told which exist.
    service.require_operator(caller, "device.pair", kind="any")
    service.require_operator(caller, "device.pair", kind=(await desk.pairing(pairing_id)).kind.value)
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
