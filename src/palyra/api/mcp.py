"""``/mcp``: the Model Context Protocol over streamable HTTP, and the lines that ``palyra mcp`` carries from stdio."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from palyra.api.described import described
from palyra.api.http import WrongShape
from palyra.api.service import ApiService
from palyra.errors import Denied
from palyra.ids import RunId

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class OriginRefused(Denied):
    code = "http.origin_refused"
    hint = "a page of another site must not speak to this daemon; agents send no Origin header"


class Delegated(Response):
    """An answer that somebody else gives, with the request's own channels."""

    def __init__(self, app: "ASGIApp") -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self._app(scope, receive, send)


@described("The Model Context Protocol over streamable HTTP.", answers="events")
async def protocol_request(service: ApiService, request: Request) -> Response:
    refuse_other_origins(request)
    door = service.mcp()
    visitor = door.admit(request)

    async def serve(scope: "Scope", receive: "Receive", send: "Send") -> None:
        await door.http(visitor, scope, receive, send)

    return Delegated(serve)


@described("The Model Context Protocol as lines of JSON.", answers="text")
async def protocol_stream(service: ApiService, request: Request) -> Response:
    refuse_other_origins(request)
    door = service.mcp()
    door.admit(request)
    if not request.headers.get("content-type", "").startswith("application/x-ndjson"):
        raise WrongShape("this takes lines of JSON, as application/x-ndjson", hint="use `palyra mcp`")
    door.require_room()

    async def serve(_scope: "Scope", receive: "Receive", send: "Send") -> None:
        await door.stream(request, f"stdio-{RunId.new()}", receive, send)

    return Delegated(serve)


def refuse_other_origins(request: Request) -> None:
    """A browser says where a request comes from, and nothing else need say it."""
    origin = request.headers.get("origin")
    if origin is not None and _host_of(origin) not in LOCAL_NAMES:
        raise OriginRefused("this request comes from another site")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        # No browser writes one like that.
        return None
