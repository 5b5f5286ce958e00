"""``/mcp``: the Model Context Protocol over HTTP and stdio. ``/v1/mcp/servers``: upstream servers and their review."""

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.clock import rfc3339
from palyra.errors import Denied
from palyra.executors.mcp_upstream.pinning import Pin
from palyra.ids import RunId
from palyra.limits import MAX_TOOL_NAME_CHARS
from palyra.server.context import ApiService, note_open_body
from palyra.server.http.envelope import WrongShape, answer, read_into
from palyra.server.http.route_schema import Sha256, Time, describe

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class OriginRefused(Denied):
    code = "http.origin_refused"
    hint = "a page of another site must not speak to this daemon; agents send no Origin header"


class Delegated(Response):
    """An answer that another application gives, over the request's own channels."""

    def __init__(self, app: "ASGIApp") -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self._app(scope, receive, send)


@describe("The Model Context Protocol over streamable HTTP.", answers="events")
async def protocol_request(service: ApiService, request: Request) -> Response:
    refuse_other_origins(request)
    transport = service.mcp()
    caller = transport.admit(request)
    transport.require_session(caller, request)

    async def serve(scope: "Scope", receive: "Receive", send: "Send") -> None:
        await transport.http(caller, scope, receive, send)

    return Delegated(serve)


@describe("The Model Context Protocol as lines of JSON.", answers="text")
async def protocol_stream(service: ApiService, request: Request) -> Response:
    refuse_other_origins(request)
    transport = service.mcp()
    caller = transport.admit(request)
    if not request.headers.get("content-type", "").startswith("application/x-ndjson"):
        raise WrongShape("this takes lines of JSON, as application/x-ndjson", hint="use `palyra mcp`")
    transport.require_room(caller)
    note_open_body(request.scope)

    async def serve(_scope: "Scope", receive: "Receive", send: "Send") -> None:
        await transport.stream(request, f"stdio-{RunId.new()}", receive, send, principal=caller.principal)

    return Delegated(serve)


def refuse_other_origins(request: Request) -> None:
    """Refuse a request that a browser sends for a page of another site. Other clients send no Origin header."""
    origin = request.headers.get("origin")
    if origin is not None and _host_of(origin) not in LOCAL_NAMES:
        raise OriginRefused("this request comes from another site")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        # No browser writes such an origin.
        return None


class ServerToolData(msgspec.Struct, frozen=True, kw_only=True):
    """``definition`` is the server's present definition, ``approved`` the reviewed one. Listings omit both."""

    tool: str
    state: str
    digest: Sha256
    approved_digest: str
    title: str
    description: str
    changed_at: Time
    decided_by: str
    changed: list[str]
    definition: dict[str, Any] | None = None
    approved: dict[str, Any] | None = None


class ServerData(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    command: list[str]
    hosts: list[str]
    secrets: list[str]
    isolation: str
    workspace: str
    kept_folder: str
    read_only: bool
    allow_interpreters: bool
    tools: list[ServerToolData]
    refused: dict[str, str] | None = None


class ServerList(msgspec.Struct, frozen=True, kw_only=True):
    servers: list[ServerData]


DigestText = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
ToolText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOOL_NAME_CHARS)]


class ServerApprovalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tools: dict[ToolText, DigestText]


@describe("The servers behind Palyra and their tools.", data=ServerList)
async def list_servers(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "config.change")
    found = service.mcp_servers().servers()
    return answer({"servers": [server_view(service, name) for name in found]})


@describe("One server, with the definitions of its tools.", data=ServerData)
async def show_server(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "config.change")
    name = request.path_params["server"]
    return answer(server_view(service, name, whole=True))


@describe("Starts a server, without hosts and secrets, and lists its definitions.", data=ServerData)
async def look_at_server(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "config.change")
    name = request.path_params["server"]
    listing = await service.mcp_servers().look(name, actor=caller.actor)
    return answer({**server_view(service, name, whole=True), "refused": listing.refused})


@describe("Approves the definitions of tools as they were reviewed.", body=ServerApprovalBody, data=ServerData)
async def approve_tools(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "config.change")
    body = await read_into(request, ServerApprovalBody)
    name = request.path_params["server"]
    await service.mcp_servers().approve(name, body.tools, by=str(caller.principal), actor=caller.actor)
    return answer(server_view(service, name))


def server_view(service: ApiService, name: str, *, whole: bool = False) -> dict[str, Any]:
    servers = service.mcp_servers()
    plan, pins = servers.server(name)
    return {
        "name": name,
        "command": [plan.command, *plan.args],
        "hosts": list(plan.hosts),
        "secrets": sorted(set(plan.secrets.values())),
        "isolation": plan.isolation,
        "workspace": plan.workspace,
        "kept_folder": servers.kept_folder(name),
        "read_only": plan.read_only,
        "allow_interpreters": plan.allow_interpreters,
        "tools": [_tool_view(pins[tool], whole=whole) for tool in sorted(pins)],
    }


def _tool_view(pin: Pin, *, whole: bool) -> dict[str, Any]:
    seen = msgspec.to_builtins(pin.seen)
    approved = None if pin.approved is None else msgspec.to_builtins(pin.approved)
    view: dict[str, Any] = {
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
        view |= {"definition": seen, "approved": approved}
    return view
