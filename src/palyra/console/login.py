"""Logging in with a token, and out again."""

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.caller import Caller
from palyra.api.http import answer, shape_of
from palyra.clock import rfc3339
from palyra.console.console import Console
from palyra.console.errors import LoginRefused, NotLoggedIn
from palyra.console.problem import answer_problem
from palyra.console.session import CSRF_HEADER, SessionSecret, ended_cookie
from palyra.console.sqlite_sessions import end_session, open_session
from palyra.console.visit import authenticate, role_of
from palyra.console.writes import read_json
from palyra.identity.api_token import Unauthenticated
from palyra.identity.principal import Principal
from palyra.identity.sqlite_tokens import authenticate as check_token_text
from palyra.tools.ports import Transaction


class LoginBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: str


async def log_in(console: Console, request: Request) -> Response:
    """A good token of somebody with a role becomes a session; the one that the browser had, if any, ends."""
    raw = shape_of(await read_json(request), LoginBody).token.strip()
    clock = console.service.clock
    console.throttle.check(raw, clock.monotonic())
    try:
        token = check_token_text(console.store, raw, clock.now_ms())
    except Unauthenticated:
        console.throttle.wrong(raw, clock.monotonic())
        refusal = answer_problem(LoginRefused("the token is not accepted"))
        # After the answer: whoever guesses learns nothing from how long a record takes.
        refusal.background = BackgroundTask(console.doorkeeper.note_rejected)
        return refusal
    caller = Caller(token=token, principal=Principal.parse(token.principal))
    role = role_of(console, caller)
    before = _secret_of(request)

    def work(tx: Transaction) -> SessionSecret:
        if before is not None:
            end_session(tx, before)
        return open_session(tx, token, role.value)

    secret = await console.store.transact(work)
    response = answer({"principal": str(caller.principal), "role": role.value, "csrf": secret.csrf()}, 201)
    response.headers["Set-Cookie"] = secret.cookie(secure=request.url.scheme == "https")
    return response


async def log_out(console: Console, request: Request) -> Response:
    secret = _secret_of(request)
    if secret is not None:
        secret.check_csrf(request.headers.get(CSRF_HEADER))
        await console.store.transact(lambda tx: end_session(tx, secret))
    response = answer({"logged_out": True})
    response.headers["Set-Cookie"] = ended_cookie()
    return response


async def show_session(console: Console, request: Request) -> Response:
    visit = await authenticate(console, request)
    return answer(
        {
            "principal": str(visit.caller.principal),
            "role": visit.role.value,
            "csrf": visit.secret.csrf(),
            "expires_at": rfc3339(visit.session.expires_ms()),
        }
    )


def _secret_of(request: Request) -> SessionSecret | None:
    try:
        return SessionSecret.from_cookies(request.headers.get("cookie", ""))
    except NotLoggedIn:
        return None
