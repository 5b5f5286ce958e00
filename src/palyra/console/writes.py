"""How everything that a person does on the console goes: who they are, that the page is ours, that they may, on record,
done, on record."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.http import answer, read_object, shape_of
from palyra.console.console import Console
from palyra.console.errors import JsonOnly
from palyra.console.page import Download, Write
from palyra.console.problem import MEDIA_TYPE, answer_problem
from palyra.console.session import CSRF_HEADER
from palyra.console.sqlite_requests import KeptAnswer, WriteKey, claim, keep_answer, write_key
from palyra.console.visit import Visit, authenticate
from palyra.errors import InternalError, PalyraError
from palyra.journal.event import NewEvent
from palyra.tools.ports import Transaction

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
        # Its text goes to the log, where the guard of every route puts it.
        await action.end(None, InternalError("the action broke inside Palyra"))
        raise
    await action.end(done)
    return done


async def hand_out(console: Console, download: Download, request: Request) -> Response:
    """A file, on record before its first byte goes out."""
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
    """A form of another site can send text, but not JSON under its name."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise JsonOnly("the body has to be application/json")
    return await read_object(request)


class _Action:
    """One action on record: what is to be done, then what came of it."""

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
