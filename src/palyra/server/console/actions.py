"""Actions of people on the console: each is authenticated, authorized, recorded, performed, and recorded again."""

from typing import Any

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from palyra.clock import rfc3339
from palyra.errors import InternalError, PalyraError
from palyra.identity.api_tokens import Unauthenticated
from palyra.identity.api_tokens import authenticate as check_token_text
from palyra.ids import Principal
from palyra.server.console.errors import MEDIA_TYPE, JsonOnly, LoginRefused, NotLoggedIn, answer_problem
from palyra.server.console.page import Download, Visit, Write, authenticate, role_of
from palyra.server.console.security import CSRF_HEADER, SessionSecret, ended_cookie
from palyra.server.console.services import Console
from palyra.server.console.tables import KeptAnswer, WriteKey, claim, end_session, keep_answer, open_session, write_key
from palyra.server.context import Caller
from palyra.server.http.envelope import answer, read_object, shape_of
from palyra.store.event import NewEvent
from palyra.store.port import Transaction

KEY_HEADER = "idempotency-key"
REPLAYED_HEADER = "Idempotent-Replayed"
FIRST_ERROR_STATUS = 400
HIDDEN = "[not kept]"


async def perform(console: Console, write: Write, request: Request) -> Response:
    visit = await authenticate(console, request)
    visit.secret.check_csrf(request.headers.get(CSRF_HEADER))
    visit.require(write.role)
    raw = await read_json(request)
    body = shape_of(raw, write.body)
    if not write.recorded:
        return answer(await write.act(console, visit, body))
    key = None
    if (named := request.headers.get(KEY_HEADER)) is not None:
        key = write_key(str(visit.caller.principal), named, request.method, request.url.path, raw)
    action = _Action(console, visit, write, key)
    kept = await action.begin({**raw, **dict.fromkeys(raw.keys() & set(write.hides), HIDDEN)})
    if kept is not None:
        return Response(
            kept.body,
            kept.status,
            headers={REPLAYED_HEADER: "true", "Cache-Control": "no-store"},
            media_type=MEDIA_TYPE if kept.status >= FIRST_ERROR_STATUS else "application/json",
        )
    try:
        done = answer(await write.act(console, visit, body))
    except PalyraError as error:
        failed = answer_problem(error)
        await action.end(failed, error)
        return failed
    except Exception:
        # The guard of every route logs its text.
        await action.end(None, InternalError("the action broke inside Palyra"))
        raise
    await action.end(done)
    return done


async def hand_out(console: Console, download: Download, request: Request) -> Response:
    """Answer with a file, and record that before its first byte is sent."""
    visit = await authenticate(console, request)
    visit.require(download.role)
    action = _Action(console, visit, download, None)
    await action.begin(dict(request.query_params))
    try:
        made = await download.make(console, visit)
    except PalyraError as error:
        await action.end(None, error)
        raise
    await action.end(None)
    return made


async def read_json(request: Request) -> dict[str, Any]:
    """Read a JSON body. A form of another site can send text, but not with the media type of JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise JsonOnly("the body has to be application/json")
    return await read_object(request)


class _Action:
    """The journal entries of one action: the request, then the result."""

    def __init__(self, console: Console, visit: Visit, write: Write | Download, key: WriteKey | None) -> None:
        self._store = console.store
        self._actor = visit.caller.actor
        self._key = key
        self._shown_once = isinstance(write, Write) and write.shown_once
        self._facts: dict[str, Any] = {
            "action": write.name,
            "target": "/".join(map(str, visit.request.path_params.values())),
            "session": visit.session.id,
        }

    async def begin(self, arguments: dict[str, Any]) -> KeptAnswer | None:
        def work(tx: Transaction) -> KeptAnswer | None:
            kept = None if self._key is None else claim(tx, self._key)
            if kept is None:
                self._append(tx, "console.action_requested", arguments=arguments)
            return kept

        return await self._store.transact(work)

    async def end(self, response: Response | None, error: PalyraError | None = None) -> None:
        def work(tx: Transaction) -> None:
            if error is None:
                self._append(tx, "console.action_done")
            else:
                self._append(tx, "console.action_failed", error=msgspec.to_builtins(error.as_dict()))
            if self._key is not None and response is not None:
                keep_answer(tx, self._key, KeptAnswer(response.status_code, self._kept(response)))

        await self._store.transact(work, essential=True)

    def _kept(self, response: Response) -> bytes:
        if self._shown_once and response.status_code < FIRST_ERROR_STATUS:
            return bytes(answer({"shown_once": True}).body)
        return bytes(response.body)

    def _append(self, tx: Transaction, kind: str, **more: Any) -> None:
        tx.append(NewEvent(kind=kind, actor=self._actor, payload={**self._facts, **more}))


class LoginBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: str


async def log_in(console: Console, request: Request) -> Response:
    """Open a session for a valid token whose principal has a role. The browser's earlier session ends."""
    raw = shape_of(await read_json(request), LoginBody).token.strip()
    clock = console.service.clock
    try:
        token = check_token_text(console.store, raw, clock.now_ms())
    except Unauthenticated:
        # After the look-up: who sends wrong tokens must not lock out the holder of the right one.
        console.throttle.count_wrong(raw, clock.monotonic())
        refusal = answer_problem(LoginRefused("the token is not accepted"))
        # After the answer, so that its time tells an attacker nothing.
        refusal.background = BackgroundTask(console.service.note_rejected)
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
