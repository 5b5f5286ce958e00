"""The parts of the console's sections: pages, listings, writes and downloads; roles, and the visit of each request."""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.errors import Denied
from palyra.ids import Principal
from palyra.server.console.errors import BadQuery, NotLoggedIn, RoleMissing
from palyra.server.console.limits import MAX_SEARCH_CHARS
from palyra.server.console.security import ConsoleSession, SessionSecret
from palyra.server.console.tables import find_session, note_use, token_of
from palyra.server.context import Action, Caller, note_admitted

if TYPE_CHECKING:
    from palyra.server.console.services import Console


class Role(StrEnum):
    """A role on the console, by policy. Each role includes those before it."""

    VIEWER = "viewer"
    """See the pages."""
    OPERATOR = "operator"
    """Decide approvals, skills, devices, workers and browsers; verify and hand out the journal."""
    ADMIN = "admin"
    """Make and end tokens."""


ACTION_OF: dict[Role, Action] = {
    Role.VIEWER: "console.view",
    Role.OPERATOR: "console.operate",
    Role.ADMIN: "console.administer",
}
HIGHEST_FIRST = (Role.ADMIN, Role.OPERATOR, Role.VIEWER)


def includes(role: Role, wanted: Role) -> bool:
    return HIGHEST_FIRST.index(role) <= HIGHEST_FIRST.index(wanted)


# A page that refreshes itself sends this header: such a request is no sign that a person is present.
LIVE_HEADER = "palyra-live"


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    request: Request
    session: ConsoleSession
    secret: SessionSecret
    caller: Caller
    role: Role

    def require(self, role: Role) -> None:
        if not includes(self.role, role):
            raise RoleMissing(f"{self.caller.principal} is {self.role.value} here, and this needs {role.value}")

    def may(self, role: str) -> bool:
        return includes(self.role, Role(role))

    def path(self, name: str) -> str:
        value: str = self.request.path_params[name]
        return value

    def query(self, name: str) -> str:
        value = self.request.query_params.get(name, "").strip()
        if len(value) > MAX_SEARCH_CHARS:
            raise BadQuery(f"{name} is longer than {MAX_SEARCH_CHARS} characters")
        return value

    def number(self, name: str) -> int | None:
        raw = self.query(name)
        if not raw:
            return None
        if not (raw.isascii() and raw.isdigit() and len(raw) < 16):
            raise BadQuery(f"{name} is not a number")
        return int(raw)


async def authenticate(console: "Console", request: Request, *, by_person: bool = True) -> Visit:
    """Return the visit of a request, or raise ``NotLoggedIn``. A page that refreshes itself prolongs no session."""
    now_ms = console.service.clock.now_ms()
    secret = SessionSecret.from_cookies(request.headers.get("cookie", ""))
    session = find_session(console.store, secret, now_ms)
    if session is None:
        raise NotLoggedIn("this needs a login")
    try:
        token = token_of(console.store, session, now_ms)
    except Denied as error:
        raise NotLoggedIn(error.message) from error
    caller = Caller(token=token, principal=Principal.parse(token.principal))
    note_admitted(request.scope, token.principal)
    role = role_of(console, caller)
    if by_person and LIVE_HEADER not in request.headers and session.needs_note(now_ms):
        await console.store.transact(lambda tx: note_use(tx, secret))
    return Visit(request=request, session=session, secret=secret, caller=caller, role=role)


def role_of(console: "Console", caller: Caller) -> Role:
    """Return the highest role that policy permits now, so that a changed policy counts at once."""
    refusal: Denied | None = None
    for role in HIGHEST_FIRST:
        try:
            console.service.require_permitted(caller, ACTION_OF[role])
            return role
        except Denied as error:
            refusal = error
    raise RoleMissing(f"{caller.principal} has no role on the console: {refusal}")


Show = Callable[["Console", "Visit"], Awaitable[dict[str, Any]]]
Act = Callable[["Console", "Visit", Any], Awaitable[Any]]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    template: str
    title: str
    # Returns the values of the template.
    show: Show
    # The page to which it belongs. A page without one is in the menu, under ``menu`` or its title.
    above: str = ""
    menu: str = ""
    # Prefixes of the kinds of journal events after which the page fetches itself again.
    live: tuple[str, ...] = ()
    role: Role = Role.VIEWER

    @property
    def icon(self) -> str:
        return self.template.removesuffix(".html")


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a page as JSON, under ``/console/v1``."""

    path: str
    show: Show
    role: Role = Role.VIEWER


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a person. It is recorded before ``act`` is called, and its result afterwards."""

    path: str
    # Its name in the journal.
    name: str
    act: Act
    body: type[msgspec.Struct]
    # The rules of the body's schema beyond its fields.
    body_rules: Mapping[str, Any] = {}
    method: str = "POST"
    role: Role = Role.OPERATOR
    # Whether the answer is not kept for a repetition with the same Idempotency-Key.
    shown_once: bool = False
    # Fields of the body that the journal does not keep: a person may type a password into a page.
    hides: tuple[str, ...] = ()
    # False for a question with a body, which changes nothing.
    recorded: bool = True


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or a stream of events. It is recorded like an action, because its content leaves the machine."""

    path: str
    name: str
    make: Callable[["Console", "Visit"], Awaitable[Response]]
    role: Role = Role.OPERATOR
    answers: Literal["file", "events"] = "file"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """All that one module of ``pages`` adds to the console."""

    pages: tuple[Page, ...] = ()
    listings: tuple[Listing, ...] = ()
    writes: tuple[Write, ...] = ()
    downloads: tuple[Download, ...] = ()
