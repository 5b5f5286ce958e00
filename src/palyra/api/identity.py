"""``/v1/identity``: the authorities, the devices with their certificates, and the replacing of an authority."""

import asyncio
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.described import described
from palyra.api.http import answer, read_into
from palyra.api.service import ApiService
from palyra.api.views.devices import AuthorityData, DeviceIdentityData, IdentityData
from palyra.clock import rfc3339

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager
    from palyra.identity.records import AuthorityView, DeviceIdentity


class AuthorityRotationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to say: a rotation has no choices."""


@described("The authorities, and the devices with their certificates.", data=IdentityData)
async def show_identity(service: ApiService, request: Request) -> Response:
    service.require_identity_manager(service.caller(request))
    return answer(await asyncio.to_thread(_shown, service.identity()))


@described("Replaces the authority.", body=AuthorityRotationBody, data=IdentityData)
async def rotate_authority(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_identity_manager(caller)
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
