"""``/v1/identity``, ``/v1/nodes`` and ``/v1/pairing``: authorities, certificates, paired devices, and new ones."""

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
from palyra.server.context import ApiService, Caller
from palyra.server.http.envelope import answer, read_into, read_query, to_view
from palyra.server.http.route_schema import describe
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
    from palyra.nodes.pairing.service import PairingService


class AuthorityRotationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a rotation: it has no fields."""


@describe("The authorities, and the devices with their certificates.", data=IdentityData)
async def show_identity(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "identity.manage")
    return answer(await asyncio.to_thread(_identity_view, service.identity()))


@describe("Replaces the authority.", body=AuthorityRotationBody, data=IdentityData)
async def rotate_authority(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "identity.manage")
    await read_into(request, AuthorityRotationBody)
    identity = service.identity()
    await identity.rotate_authority(actor=caller.actor)
    return answer(await asyncio.to_thread(_identity_view, identity))


def _identity_view(identity: "IdentityManager") -> IdentityData:
    return {
        "trust_domain": identity.known_trust_domain(),
        "authorities": [authority_view(authority) for authority in identity.authorities()],
        "devices": [device_view(device) for device in identity.devices()],
    }


def authority_view(authority: "AuthorityView") -> AuthorityData:
    needed_until = rfc3339(authority.needed_until_ms) if authority.needed_until_ms else None
    return to_view(AuthorityData, authority, ends_at=rfc3339(authority.not_after_ms), needed_until=needed_until)


def device_view(device: "DeviceIdentity") -> DeviceIdentityData:
    return to_view(
        DeviceIdentityData, device, device_id=str(device.device_id), certificate_ends_at=rfc3339(device.not_after_ms)
    )


# ``/v1/nodes``: the paired devices, their withheld capabilities, and the end of their access.


class RevokeNodeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class NodeCapabilityBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    capability: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CAPABILITY_NAME_CHARS)]


@describe("Every device that was paired.", data=NodeList)
async def list_nodes(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.manage")
    nodes = (await service.nodes()).node_service
    return answer({"nodes": [nodes.view(node) for node in nodes.nodes()]})


@describe("One device with its newest requests.", data=NodeData)
async def show_node(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.manage")
    nodes = (await service.nodes()).node_service
    return answer(nodes.view(nodes.find(request.path_params["device"]), requests=True))


@describe("Ends a device's access at once.", body=RevokeNodeBody, data=NodeData)
async def revoke_node(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "device.manage")
    body = await read_into(request, RevokeNodeBody)
    nodes = (await service.nodes()).node_service
    node = await nodes.revoke(request.path_params["device"], reason=body.reason, actor=caller.actor)
    return answer(nodes.view(node))


@describe("Nobody gets the capability of the device any more.", body=NodeCapabilityBody, data=NodeData)
async def withhold_capability(service: ApiService, request: Request) -> Response:
    return answer(await _set_withheld(service, request, withheld=True))


@describe("Gives a withheld capability back.", body=NodeCapabilityBody, data=NodeData)
async def allow_capability(service: ApiService, request: Request) -> Response:
    return answer(await _set_withheld(service, request, withheld=False))


async def _set_withheld(service: ApiService, request: Request, *, withheld: bool) -> dict[str, Any]:
    caller = service.admit_operator(request, "device.manage")
    body = await read_into(request, NodeCapabilityBody)
    nodes = (await service.nodes()).node_service
    node = await nodes.set_withheld(
        request.path_params["device"], body.capability, withheld=withheld, actor=caller.actor
    )
    return nodes.view(node)


# ``/v1/pairing``: codes for new devices, requests to join, and a person's decisions on them.

MAX_REJECTION_CHARS = 512
# For the document only: the pairing service refuses other values, with its own code.
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


@describe("Makes a code for one device; it is shown this once.", body=PairingCodeBody, data=NewCodeData, status=201)
async def make_code(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    body = await read_into(request, PairingCodeBody)
    service.require_operator(caller, "device.pair", kind=body.kind.value)
    pairing = await _pairing(service)
    made = await pairing.make_code(body.method, body.kind, actor=caller.actor, ttl_seconds=body.ttl_seconds)
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


@describe("The codes in force, without the codes themselves.", data=CodeList)
async def list_codes(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.pair", kind="any")
    pairing = await _pairing(service)
    return answer({"codes": [code_view(code) for code in await pairing.codes()]})


@describe("Takes a code back.", data=CodeData)
async def withdraw_code(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "device.pair", kind="any")
    pairing = await _pairing(service)
    return answer(code_view(await pairing.withdraw_code(request.path_params["code_id"], actor=caller.actor)))


@describe("Requests to join, the newest first.", query=PairingQuery, data=PairingList)
async def list_pairings(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.pair", kind="any")
    found = await (await _pairing(service)).pairings(read_query(request, PairingQuery).state)
    return answer({"pairings": [pairing_view(each) for each in found]})


@describe("One request to join.", data=PairingData)
async def show_pairing(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "device.pair", kind="any")
    pairing = await _pairing(service)
    return answer(pairing_view(await pairing.pairing(request.path_params["pairing_id"])))


@describe("Lets a device in, or not.", body=PairingDecisionBody, data=PairingData)
async def decide_pairing(service: ApiService, request: Request) -> Response:
    caller, pairing_id = service.caller(request), request.path_params["pairing_id"]
    pairing = await admit_pairing_decision(service, caller, pairing_id)
    body = await read_into(request, PairingDecisionBody)
    return answer(await apply_pairing_decision(pairing, pairing_id, body, caller.actor))


async def admit_pairing_decision(service: ApiService, caller: Caller, pairing_id: str) -> "PairingService":
    """Refuse a caller who may not decide this request."""
    # Before the request is read: a caller who may see no requests must not learn which exist.
    service.require_operator(caller, "device.pair", kind="any")
    pairing = await _pairing(service)
    service.require_operator(caller, "device.pair", kind=(await pairing.pairing(pairing_id)).kind.value)
    return pairing


async def apply_pairing_decision(
    pairing: "PairingService", pairing_id: str, body: PairingDecisionBody, actor: str
) -> PairingData:
    reason = body.reason or ""
    if body.decision == "approve":
        code = body.comparison_code
        return pairing_view(await pairing.approve(pairing_id, actor=actor, comparison_code=code, reason=reason))
    return pairing_view(await pairing.reject(pairing_id, actor=actor, reason=reason))


async def _pairing(service: ApiService) -> "PairingService":
    return (await service.nodes()).pairing


def code_view(code: DevicePairingCodeRecord) -> CodeData:
    guesses_left = max(0, MAX_WRONG_GUESSES - code.wrong_guesses)
    return to_view(CodeData, code, guesses_left=guesses_left, pairing_id=code.pairing_id or None)


def pairing_view(pairing: DevicePairingRequestRecord) -> PairingData:
    return to_view(
        PairingData,
        pairing,
        name=pairing.facts.name,
        platform=pairing.facts.platform,
        software_version=pairing.facts.software_version,
        expires_at=rfc3339(pairing.expires_ms) if pairing.open() else None,
        decided_by=pairing.decided_by or None,
    )
