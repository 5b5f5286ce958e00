"""News for open pages: what kind of thing was recorded, as server-sent events. The page then fetches itself anew.

Nothing of an event but its kind and the ids it concerns goes out, so that a stream shows nobody more than their pages.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from palyra.api.service import News
from palyra.console.console import Console
from palyra.console.errors import TooManyPagesOpen
from palyra.console.limits import KEEP_ALIVE_SECONDS, MAX_LISTENERS
from palyra.console.roles import Role
from palyra.console.visit import authenticate
from palyra.errors import Denied, LimitExceeded

# Events after which somebody's session may be over.
_SESSION_ENDERS = ("console.logged_out", "credential.revoked", "policy.swapped")


async def follow(console: Console, request: Request) -> Response:
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
                said = await _next(news)
                if said is None:
                    yield b"event: stopping\ndata: {}\n\n"
                    return
                if said.kind in _SESSION_ENDERS or said.kind == "":
                    try:
                        await authenticate(console, request, by_person=False)
                    except Denied:
                        yield b"event: over\ndata: {}\n\n"
                        return
                yield b": still here\n\n" if said.kind == "" else _line(said)
    finally:
        console.listeners -= 1


class Heard(msgspec.Struct, frozen=True):
    kind: str
    seq: int = 0
    run: str = ""
    call: str = ""


async def _next(news: News) -> Heard | None:
    """The next thing that happened; no kind when nothing did for a while, ``lost`` when too much did."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_SECONDS):
            event = await anext(news)
            return Heard(event.kind, event.seq, event.run, event.call)
    except TimeoutError:
        return Heard("")
    except LimitExceeded:
        return Heard("lost")
    except StopAsyncIteration:
        return None


def _line(said: Heard) -> bytes:
    return b"event: news\nid: %d\ndata: %s\n\n" % (said.seq, msgspec.json.encode(said))
