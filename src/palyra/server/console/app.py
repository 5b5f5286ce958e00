"""The console as one ASGI application."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palyra.errors import Denied, InternalError, LimitExceeded, PalyraError
from palyra.server.console import actions
from palyra.server.console.actions import LoginBody, hand_out, perform
from palyra.server.console.errors import (
    NoSuchPage,
    NotLoggedIn,
    RoleMissing,
    TooManyPagesOpen,
    answer_problem,
    problem_of,
)
from palyra.server.console.limits import KEEP_ALIVE_SECONDS, MAX_LISTENERS
from palyra.server.console.page import LIVE_HEADER, Listing, Page, Role, Section, Visit, authenticate
from palyra.server.console.pages import (
    access,
    approvals,
    browser,
    calls,
    devices,
    egress,
    journal,
    overview,
    policy,
    skills,
)
from palyra.server.console.rendering import Assets, environment, query_of
from palyra.server.console.security import FORGED, check_origin
from palyra.server.console.services import Console
from palyra.server.context import EventStream
from palyra.server.http.envelope import MethodRefused, answer
from palyra.server.http.openapi import DescribedRoute
from palyra.server.http.route_schema import RouteShape

# Events after which a session may be over.
_SESSION_ENDERS = ("console.logged_out", "credential.revoked", "policy.swapped")


async def follow(console: Console, request: Request) -> Response:
    """Send the kinds of new journal events to an open page, which then fetches itself again.

    The stream has an event's kind and ids only, so that it shows nobody more than the pages do.
    """
    visit = await authenticate(console, request, by_person=False)
    visit.require(Role.VIEWER)
    if console.listeners >= MAX_LISTENERS:
        raise TooManyPagesOpen(f"{console.listeners} pages are open")
    return StreamingResponse(
        _news(console, request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _news(console: Console, request: Request) -> AsyncIterator[bytes]:
    console.listeners += 1
    try:
        with console.store.subscribe() as news, console.service.streaming(news):
            yield b"event: ready\ndata: {}\n\n"
            while True:
                event = await _next(news)
                if event is None:
                    yield b"event: stopping\ndata: {}\n\n"
                    return
                if event.kind in _SESSION_ENDERS or event.kind == "":
                    try:
                        await authenticate(console, request, by_person=False)
                    except Denied:
                        yield b"event: over\ndata: {}\n\n"
                        return
                yield b": still here\n\n" if event.kind == "" else _line(event)
    finally:
        console.listeners -= 1


class News(msgspec.Struct, frozen=True):
    kind: str
    seq: int = 0
    run: str = ""
    call: str = ""


async def _next(stream: EventStream) -> News | None:
    """Return the next event. Its kind is empty after an idle time, and ``lost`` if the stream lost events."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_SECONDS):
            event = await anext(stream)
            return News(event.kind, event.seq, event.run, event.call)
    except TimeoutError:
        return News("")
    except LimitExceeded:
        return News("lost")
    except StopAsyncIteration:
        return None


def _line(event: News) -> bytes:
    return b"event: news\nid: %d\ndata: %s\n\n" % (event.seq, msgspec.json.encode(event))


# Every section of the console, in the order of its menu. README.md beside this file lists what else a new page needs.
SECTIONS: tuple[Section, ...] = (
    overview.SECTION,
    approvals.SECTION,
    calls.SECTION,
    journal.SECTION,
    policy.SECTION,
    skills.SECTION,
    devices.SECTION,
    browser.SECTION,
    access.VAULT_SECTION,
    egress.SECTION,
    access.SECTION,
    overview.DOCTOR_SECTION,
)


log = logging.getLogger("palyra.console")

Handler = Callable[[Request], Awaitable[Response]]
JSON_PREFIX = "/console/v1/"
_SESSION = f"{JSON_PREFIX}session"
# Scripts, styles, images and connections from our own origin only, and nothing inline.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types palyra"
)
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), clipboard-read=()"),
)


_TITLES: dict[type[PalyraError], str] = {RoleMissing: "Not for you", NoSuchPage: "No such page"}
# The titles of other errors by their status: a missing or ended thing is not a failure.
_TITLES_BY_STATUS: dict[int, str] = {HTTPStatus.NOT_FOUND: "Not there", HTTPStatus.GONE: "That is over"}


class ConsoleApp:
    """Routes of all sections, each behind the same guard."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._assets = Assets.load()
        self._templates = environment(self._assets)
        self.pages = [page for section in SECTIONS for page in section.pages]
        self.listings = [listing for section in SECTIONS for listing in section.listings]
        self.writes = [write for section in SECTIONS for write in section.writes]
        self.downloads = [download for section in SECTIONS for download in section.downloads]

    def routes(self) -> Sequence[Route]:
        console = self._console
        return [
            *(self._route(page.path, partial(self._show_page, page)) for page in self.pages),
            *(self._route(each.path, partial(self._show_listing, each)) for each in self.listings),
            *(self._route(write.path, partial(perform, console, write), write.method) for write in self.writes),
            *(self._route(each.path, partial(hand_out, console, each)) for each in self.downloads),
            self._route("/login", self._login_page),
            self._route(_SESSION, partial(actions.log_in, console), "POST"),
            self._route(_SESSION, partial(actions.log_out, console), "DELETE"),
            self._route(_SESSION, partial(actions.show_session, console)),
            self._route("/console/v1/events", partial(follow, console)),
            self._route("/static/{digest}/{name}", self._assets.serve),
        ]

    def _route(self, path: str, handler: Handler, method: str = "GET") -> Route:
        return Route(path, self._guarded(handler), methods=[method])

    async def not_found(self, request: Request, _: Exception) -> Response:
        return self._refusal(request, NoSuchPage(f"there is nothing at {request.url.path[:128]}"))

    async def wrong_method(self, request: Request, error: Exception) -> Response:
        refusal = self._refusal(request, MethodRefused(f"{request.method} is not for {request.url.path[:128]}"))
        refusal.headers.update(getattr(error, "headers", None) or {})
        return refusal

    async def _show_page(self, page: Page, request: Request) -> Response:
        visit = await authenticate(self._console, request)
        visit.require(page.role)
        shown = await page.show(self._console, visit)
        shown |= {"page": page, "title": shown.get("title", page.title), "counts": await self._console.counts()}
        return self._render(page.template, visit, **shown)

    async def _show_listing(self, listing: Listing, request: Request) -> Response:
        visit = await authenticate(self._console, request)
        visit.require(listing.role)
        return answer(await listing.show(self._console, visit))

    async def _login_page(self, request: Request) -> Response:
        try:
            await authenticate(self._console, request)
        except PalyraError:
            return self._page_of("login.html", title="Log in", page=None)
        return RedirectResponse("/", HTTPStatus.SEE_OTHER)

    def _render(self, template: str, visit: Visit, **shown: Any) -> Response:
        given = dict(visit.request.query_params)
        return self._page_of(
            template,
            visit=visit,
            csrf=visit.secret.csrf(),
            menu=[page for page in self.pages if not page.above],
            query=lambda **changes: query_of(given, **changes),
            **shown,
        )

    def _page_of(self, template: str, *, http_status: int = HTTPStatus.OK, **shown: Any) -> Response:
        text = self._templates.get_template(template).render(**shown)
        return HTMLResponse(text, http_status, headers={"Cache-Control": "no-store"})

    def _guarded(self, handler: Handler) -> Handler:
        """Check the origin of every request, and turn every error into its document or page."""

        async def respond(request: Request) -> Response:
            try:
                own = f"{request.url.scheme}://{request.headers.get('host', '')}"
                check_origin(request.method, own, request.headers)
                return await handler(request)
            except PalyraError as error:
                refusal = self._refusal(request, error)
                if isinstance(error, FORGED):
                    # After the answer, so that it does not wait for the record.
                    note = self._console.forgeries.note
                    site = request.headers.get("origin", "")
                    refusal.background = BackgroundTask(note, error.code, request.method, request.url.path, site)
                return refusal
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception:
                log.exception("%s %s broke", request.method, request.url.path)
                hint = "this is a fault in Palyra; the daemon's log has the details"
                return self._refusal(request, InternalError("the page broke inside Palyra", hint=hint))

        return respond

    def _refusal(self, request: Request, error: PalyraError) -> Response:
        path = request.url.path
        if LIVE_HEADER in request.headers and error.http_status in _TITLES_BY_STATUS:
            # A page refreshes something that is gone: answer without an error that a browser would log.
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if path.startswith(JSON_PREFIX) or "text/html" not in request.headers.get("accept", ""):
            return answer_problem(error)
        if isinstance(error, NotLoggedIn) and request.method == "GET":
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        return self._page_of(
            "problem.html",
            http_status=error.http_status,
            title=_TITLES.get(type(error)) or _TITLES_BY_STATUS.get(error.http_status, "That did not work"),
            problem=problem_of(error),
            page=None,
        )


class SecurityHeaders:
    """Puts the same security headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def create_console_app(console: Console) -> ASGIApp:
    made = ConsoleApp(console)
    app = Starlette(routes=made.routes(), exception_handlers={404: made.not_found, 405: made.wrong_method})
    app.router.redirect_slashes = False
    return SecurityHeaders(app)


def describe_routes() -> Iterator[DescribedRoute]:
    """Describe the console's JSON routes for ``/openapi.json``."""
    for section in SECTIONS:
        for listing in section.listings:
            yield _route("GET", listing.path, f"Lists what the page shows; for the role {listing.role.value}.")
        for write in section.writes:
            summary = (
                f"{write.name}, recorded before and after; for the role {write.role.value}. Needs the CSRF header."
            )
            yield _route(write.method, write.path, summary, body=write.body, body_rules=write.body_rules)
        for download in section.downloads:
            summary = f"{download.name}, recorded; for the role {download.role.value}."
            yield _route("GET", download.path, summary, answers=download.answers)
    yield _route("POST", _SESSION, "Opens a web session for a token.", body=LoginBody, access="open", status=201)
    yield _route("GET", _SESSION, "The web session as it stands.")
    yield _route("DELETE", _SESSION, "Ends the web session.")
    yield _route("GET", "/console/v1/events", "What happens, as it happens.", answers="events")


def _route(method: str, path: str, summary: str, **shape: Any) -> DescribedRoute:
    words = path.replace("{", "").replace("}", "").strip("/").replace("/", "_").replace("-", "_")
    whole = RouteShape(**{"summary": summary, "access": "session", "refuses": "problem", **shape})
    return DescribedRoute(method=method, path=path, name=f"{method.lower()}_{words}", shape=whole)
