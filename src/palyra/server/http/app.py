"""The agent API as one ASGI application."""

from collections.abc import Awaitable, Callable, Iterable
from functools import cache

import msgspec
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from palyra.identity.api_tokens import Unauthenticated
from palyra.server.context import ApiService
from palyra.server.http import browser, calls, devices, mcp, operator, skills, workers
from palyra.server.http.envelope import (
    EXIT_CODE_HEADER,
    HostRefused,
    MethodRefused,
    NoSuchRoute,
    answer,
    answer_error,
    guard,
    read_query,
)
from palyra.server.http.openapi import DescribedRoute, TableOfRoutes, openapi_document
from palyra.server.http.route_schema import describe, find_shape
from palyra.server.http.views import HealthData, ReadyData
from palyra.version import VERSION

Endpoint = Callable[[ApiService, Request], Awaitable[Response]]
OtherRoutes = Callable[[], Iterable[DescribedRoute]]

ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("POST", "/v1/tool-calls", calls.make_call),
    ("GET", "/v1/tool-calls/{call_id}", calls.show_call),
    ("DELETE", "/v1/tool-calls/{call_id}", calls.cancel_call),
    ("GET", "/v1/tool-calls/{call_id}/events", calls.follow_call),
    ("GET", "/v1/tool-calls/{call_id}/arguments", calls.show_arguments),
    ("GET", "/v1/tools", calls.list_tools),
    ("GET", "/v1/tools/{name}", calls.show_tool),
    ("POST", "/v1/runs", calls.create_run),
    ("GET", "/v1/runs/{run_id}", calls.show_run),
    ("GET", "/v1/approvals", operator.list_requests),
    ("GET", "/v1/approvals/{approval_id}", operator.show_request),
    ("POST", "/v1/approvals/{approval_id}/decision", operator.decide_request),
    ("POST", "/v1/tokens", operator.make_token),
    ("GET", "/v1/tokens", operator.show_tokens),
    ("DELETE", "/v1/tokens/{token_id}", operator.end_token),
    ("GET", "/v1/vault/secrets", operator.list_secrets),
    ("PUT", "/v1/vault/secrets/{ref:path}", operator.put_secret),
    ("DELETE", "/v1/vault/secrets/{ref:path}", operator.delete_secret),
    ("POST", "/v1/vault/reveal", operator.reveal_secret),
    ("POST", "/v1/vault/rotate", operator.rotate_vault),
    ("GET", "/v1/identity", devices.show_identity),
    ("POST", "/v1/identity/rotation", devices.rotate_authority),
    ("GET", "/v1/skills", skills.list_skills),
    ("POST", "/v1/skills", skills.install_skill),
    ("POST", "/v1/skills/audit", skills.audit_skill),
    ("GET", "/v1/skills/{skill_id}", skills.show_skill),
    ("DELETE", "/v1/skills/{skill_id}", skills.remove_skill),
    ("DELETE", "/v1/skills/{skill_id}/data", skills.purge_skill),
    ("POST", "/v1/skills/{skill_id}/approve", skills.approve_skill),
    ("POST", "/v1/skills/{skill_id}/disable", skills.pause_skill),
    ("POST", "/v1/skills/{skill_id}/enable", skills.pause_skill),
    ("POST", "/v1/skills/{skill_id}/quarantine", skills.change_skill),
    ("POST", "/v1/skills/{skill_id}/rollback", skills.change_skill),
    ("PUT", "/v1/skills/{skill_id}/configuration", skills.configure_skill),
    ("GET", "/v1/publishers", skills.list_publishers),
    ("POST", "/v1/publishers", skills.add_publisher),
    ("POST", "/v1/publishers/rotation", skills.rotate_publisher),
    ("POST", "/v1/publishers/revocation", skills.revoke_key),
    ("DELETE", "/v1/publishers/{publisher}/{key_id}", skills.remove_publisher),
    ("POST", "/v1/pairing/codes", devices.make_code),
    ("GET", "/v1/pairing/codes", devices.list_codes),
    ("DELETE", "/v1/pairing/codes/{code_id}", devices.withdraw_code),
    ("GET", "/v1/pairing/requests", devices.list_pairings),
    ("GET", "/v1/pairing/requests/{pairing_id}", devices.show_pairing),
    ("POST", "/v1/pairing/requests/{pairing_id}/decision", devices.decide_pairing),
    ("GET", "/v1/nodes", devices.list_nodes),
    ("GET", "/v1/nodes/{device}", devices.show_node),
    ("POST", "/v1/nodes/{device}/revoke", devices.revoke_node),
    ("POST", "/v1/nodes/{device}/withhold", devices.withhold_capability),
    ("POST", "/v1/nodes/{device}/allow", devices.allow_capability),
    ("GET", "/v1/mcp/servers", mcp.list_servers),
    ("GET", "/v1/mcp/servers/{server}", mcp.show_server),
    ("POST", "/v1/mcp/servers/{server}/look", mcp.look_at_server),
    ("POST", "/v1/mcp/servers/{server}/approve", mcp.approve_tools),
    ("GET", "/v1/workers", workers.list_workers),
    ("GET", "/v1/workers/{worker}", workers.show_worker),
    ("POST", "/v1/workers/{worker}/drain", workers.change_worker),
    ("POST", "/v1/workers/{worker}/resume", workers.change_worker),
    ("POST", "/v1/workers/{worker}/quarantine", workers.change_worker),
    ("POST", "/v1/workers/{worker}/release", workers.change_worker),
    ("POST", "/v1/workers/{worker}/remove", workers.change_worker),
    ("GET", "/v1/leases", workers.list_leases),
    ("GET", "/v1/leases/{lease_id}", workers.show_lease),
    ("GET", "/v1/browser/sessions", browser.list_sessions),
    ("GET", "/v1/browser/sessions/{session}", browser.show_session),
    ("POST", "/v1/browser/sessions/{session}/close", browser.close_session),
    ("POST", "/v1/browser/sessions/{session}/takeover", browser.take_over),
    ("POST", "/v1/browser/sessions/{session}/handback", browser.hand_back),
    ("GET", "/v1/browser/sessions/{session}/downloads", browser.list_downloads),
    ("POST", "/v1/browser/sessions/{session}/downloads/{download}/release", browser.release_download),
    ("DELETE", "/v1/browser/sessions/{session}/downloads/{download}", browser.delete_download),
    ("GET", "/v1/browser/profiles", browser.list_profiles),
    ("POST", "/v1/browser/profiles", browser.create_profile),
    ("POST", "/v1/browser/profiles/accept", browser.accept_profiles),
    ("POST", "/v1/browser/profiles/{profile}/reset", browser.reset_profile),
    ("DELETE", "/v1/browser/profiles/{profile}", browser.delete_profile),
    ("GET", "/v1/channels/{name}/events", skills.follow_channel),
    ("GET", "/v1/status", operator.show_status),
)


@describe("The process answers.", data=HealthData, access="open")
async def healthz(_service: ApiService, _request: Request) -> Response:
    return answer({"status": "ok"})


@describe("Whether calls are taken.", data=ReadyData, access="open", also=(503,))
async def readyz(service: ApiService, _request: Request) -> Response:
    missing = service.ready()
    return answer({"status": "ready" if not missing else "not ready", "missing": missing}, 503 if missing else 200)


@describe("Counters for Prometheus.", answers="text", access="open")
async def metrics(service: ApiService, _request: Request) -> Response:
    return PlainTextResponse(service.metrics(), media_type="text/plain; version=0.0.4", headers={EXIT_CODE_HEADER: "0"})


@describe("This document.", answers="document", access="open")
async def openapi(_service: ApiService, request: Request) -> Response:
    document = _document(request.app.state.other_routes)
    return Response(document, media_type="application/json", headers={EXIT_CODE_HEADER: "0"})


PROBES: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/healthz", healthz),
    ("GET", "/readyz", readyz),
    ("GET", "/metrics", metrics),
    ("GET", "/openapi.json", openapi),
)
# The protocol has its own specification, so the document of this API omits it.
PROTOCOL: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/mcp", mcp.protocol_request),
    ("POST", "/mcp", mcp.protocol_request),
    ("DELETE", "/mcp", mcp.protocol_request),
    ("POST", "/mcp/stdio", mcp.protocol_stream),
)
# The tables that `/openapi.json` describes, beside the routes of the console.
TABLES: tuple[TableOfRoutes, ...] = (ROUTES, PROBES)


@cache
def _document(other_routes: OtherRoutes) -> bytes:
    return msgspec.json.encode(openapi_document(TABLES, version=VERSION, elsewhere=other_routes()))


class _NoQuery(msgspec.Struct, frozen=True):
    """The query of routes without parameters."""


def create_app(service: ApiService, other_routes: OtherRoutes = tuple) -> ASGIApp:
    """Make the application, which answers to any name: a listener puts a ``HostGuard`` before it.

    ``/openapi.json`` describes ``other_routes`` too.
    """

    def bind(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        shape = find_shape(endpoint)

        async def handle(request: Request) -> Response:
            try:
                if shape.query is None and request.scope["query_string"]:
                    if shape.access == "token":
                        # Check the token first, as everywhere.
                        service.caller(request)
                    read_query(request, _NoQuery)
                return await endpoint(service, request)
            except Unauthenticated as error:
                refusal = answer_error(error)
                # After the answer, so that its time tells an attacker nothing.
                refusal.background = BackgroundTask(service.note_rejected)
                return refusal

        return guard(handle)

    async def not_found(request: Request, _: Exception) -> Response:
        return answer_error(NoSuchRoute(f"there is nothing at {request.url.path[:128]}"))

    async def wrong_method(request: Request, error: Exception) -> Response:
        refusal = answer_error(MethodRefused(f"{request.method} is not for {request.url.path[:128]}"))
        refusal.headers.update(getattr(error, "headers", None) or {})
        return refusal

    routes = [
        Route(path, bind(endpoint), methods=[method])
        for table in (ROUTES, PROBES, PROTOCOL)
        for method, path, endpoint in table
    ]
    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: wrong_method})
    app.router.redirect_slashes = False
    app.state.other_routes = other_routes
    return app


NoteRefused = Callable[[str, str, str, str], Awaitable[None]]


class HostGuard:
    """Refuses requests under a host name that is not the daemon's.

    A page of another site makes a browser send them by pointing its own name at the loopback address. ``note`` gets
    the code, method, path and name of each refused request.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], note: NoteRefused | None = None) -> None:
        self._app = app
        self._hosts = hosts
        self._note = note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            named = [value for name, value in scope["headers"] if name == b"host"]
            if len(named) != 1 or _without_port(named[0].decode("latin-1")) not in self._hosts:
                await answer_error(HostRefused("this daemon does not have that name"))(scope, receive, send)
                if self._note is not None:
                    site = b", ".join(named).decode("latin-1")
                    await self._note(HostRefused.code, scope["method"], scope["path"], site)
                return
        await self._app(scope, receive, send)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0].lower()
