"""``/v1/nodes``: the paired devices, what of them is withheld, and the end of their access."""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.described import described
from palyra.api.http import answer, read_into
from palyra.api.service import ApiService
from palyra.api.views.devices import NodeData, NodeList
from palyra.nodes.rpc_limits import MAX_CAPABILITY_NAME_CHARS, MAX_REASON_CHARS


class RevokeNodeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class NodeCapabilityBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    capability: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CAPABILITY_NAME_CHARS)]


@described("Every device that was paired.", data=NodeList)
async def list_nodes(service: ApiService, request: Request) -> Response:
    service.require_device_manager(service.caller(request))
    desk = (await service.nodes()).desk
    return answer({"nodes": [desk.view(node) for node in desk.nodes()]})


@described("One device with its newest requests.", data=NodeData)
async def show_node(service: ApiService, request: Request) -> Response:
    """With its newest requests. A device is named by its id, or by the name it was paired under."""
    service.require_device_manager(service.caller(request))
    desk = (await service.nodes()).desk
    return answer(desk.view(desk.find(request.path_params["device"]), requests=True))


@described("Ends a device's access at once.", body=RevokeNodeBody, data=NodeData)
async def revoke_node(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_device_manager(caller)
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
    caller = service.caller(request)
    service.require_device_manager(caller)
    body = await read_into(request, NodeCapabilityBody)
    desk = (await service.nodes()).desk
    node = await desk.set_withheld(
        request.path_params["device"], body.capability, withheld=withheld, actor=caller.actor
    )
    return desk.view(node)
