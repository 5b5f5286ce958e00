"""``/v1/mcp/servers``: the servers behind Palyra, what they offer, and its review."""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.described import described
from palyra.api.http import answer, read_into
from palyra.api.service import ApiService
from palyra.api.views.mcp import ServerData, ServerList
from palyra.clock import rfc3339
from palyra.limits import MAX_TOOL_NAME_CHARS
from palyra.mcp.behind.pinning import Pin
from palyra.mcp.behind.server_plan import ServerPlan

DigestText = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
ToolText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOOL_NAME_CHARS)]


class ServerApprovalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tools: dict[ToolText, DigestText]


@described("The servers behind Palyra and their tools.", data=ServerList)
async def list_servers(service: ApiService, request: Request) -> Response:
    service.require_config_change(service.caller(request))
    found = service.mcp_servers.servers()
    return answer({"servers": [server_view(name, plan, pins) for name, (plan, pins) in found.items()]})


@described("One server, with the definitions of its tools.", data=ServerData)
async def show_server(service: ApiService, request: Request) -> Response:
    service.require_config_change(service.caller(request))
    name = request.path_params["server"]
    return answer(server_view(name, *service.mcp_servers.server(name), whole=True))


@described("Starts a server, without hosts and secrets, to see what it offers.", data=ServerData)
async def look_at_server(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_config_change(caller)
    name = request.path_params["server"]
    listing = await service.mcp_servers.look(name, actor=caller.actor)
    return answer({**server_view(name, *service.mcp_servers.server(name), whole=True), "refused": listing.refused})


@described("Approves the definitions of tools as they were reviewed.", body=ServerApprovalBody, data=ServerData)
async def approve_tools(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_config_change(caller)
    body = await read_into(request, ServerApprovalBody)
    name = request.path_params["server"]
    await service.mcp_servers.approve(name, body.tools, by=str(caller.principal), actor=caller.actor)
    return answer(server_view(name, *service.mcp_servers.server(name)))


def server_view(name: str, plan: ServerPlan, pins: dict[str, Pin], *, whole: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "command": [plan.command, *plan.args],
        "hosts": list(plan.hosts),
        "secrets": sorted(set(plan.secrets.values())),
        "workspace": plan.workspace,
        "read_only": plan.read_only,
        "allow_interpreters": plan.allow_interpreters,
        "tools": [_tool_view(pins[tool], whole=whole) for tool in sorted(pins)],
    }


def _tool_view(pin: Pin, *, whole: bool) -> dict[str, Any]:
    seen = msgspec.to_builtins(pin.seen)
    approved = None if pin.approved is None else msgspec.to_builtins(pin.approved)
    shown: dict[str, Any] = {
        "tool": pin.tool,
        "state": pin.state.value,
        "digest": pin.seen.digest,
        "approved_digest": "" if pin.approved is None else pin.approved.digest,
        "title": pin.seen.title,
        "description": pin.seen.description,
        "changed_at": rfc3339(pin.changed_ms),
        "decided_by": pin.decided_by,
        "changed": [] if approved is None else [part for part in seen if seen[part] != approved[part]],
    }
    if whole:
        shown |= {"definition": seen, "approved": approved}
    return shown
