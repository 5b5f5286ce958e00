"""One request of a person who is logged in: who it is, with which role, and what they ask for."""

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request

from palyra.api.caller import Caller
from palyra.console.errors import BadQuery, NotLoggedIn, RoleMissing
from palyra.console.limits import MAX_SEARCH_CHARS
from palyra.console.roles import ACTION_OF, HIGHEST_FIRST, Role, includes
from palyra.console.session import ConsoleSession, SessionSecret
from palyra.console.sqlite_sessions import find_session, note_use, token_of
from palyra.errors import Denied
from palyra.identity.principal import Principal

if TYPE_CHECKING:
    from palyra.console.console import Console

# A page that fetches itself anew says so: that a tab is open does not mean that somebody sits before it.
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
        """What stands in the address for ``name``; empty for nothing."""
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
    """The visit behind a request, or ``NotLoggedIn``. What a page does by itself does not prolong the session."""
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
    role = role_of(console, caller)
    if by_person and LIVE_HEADER not in request.headers and session.needs_note(now_ms):
        await console.store.transact(lambda tx: note_use(tx, secret))
    return Visit(request=request, session=session, secret=secret, caller=caller, role=role)


def role_of(console: "Console", caller: Caller) -> Role:
    """The highest role that policy gives, asked each time: a policy that changes counts at once."""
    refusal: Denied | None = None
    for role in HIGHEST_FIRST:
        try:
            console.service.require_console(caller, ACTION_OF[role])
            return role
        except Denied as error:
            refusal = error
    raise RoleMissing(f"{caller.principal} has no role on the console: {refusal}")
