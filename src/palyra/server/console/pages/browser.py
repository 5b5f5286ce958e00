"""Browser: sessions with a live picture and their log, takeover by a person, downloads in quarantine, profiles."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from palyra.browser.domain.budget import SessionOver
from palyra.browser.domain.limits import MAX_REASON_CHARS
from palyra.browser.domain.session_api import LiveFrame, NoSuchSession, OperatorInput, SessionEvent
from palyra.errors import PalyraError, Unavailable
from palyra.server.console.errors import TooManyPagesOpen
from palyra.server.console.limits import MAX_LISTENERS
from palyra.server.console.page import Download, Listing, Page, Section, Visit, Write, authenticate
from palyra.server.console.services import Console

# Events of a session that its page shows.
SHOWN_EVENTS = 100
MAX_INPUTS = 64
# How long pictures are still sent after a person's session or role has ended.
LOGIN_LOOK_SECONDS = 2.0


class SessionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["take_over", "hand_back", "close"]
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class OperateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    inputs: Annotated[list[OperatorInput], msgspec.Meta(min_length=1, max_length=MAX_INPUTS)]


class DownloadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["release", "delete"]


class ProfileBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["reset", "delete"]


class ProfilesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    change: Literal["accept"]


async def show_browser(console: Console, visit: Visit) -> dict[str, Any]:
    """Show the page also without a browser daemon, with the reason."""
    try:
        sessions = await console.service.browser().sessions(visit.caller.actor)
        profiles = await console.service.browser().profiles(visit.caller.actor)
    except Unavailable as error:
        return {"sessions": [], "profiles": [], "rolled_back": False, "away": error}
    rolled_back = console.service.browser().profiles_rolled_back
    return {"sessions": sessions, "profiles": profiles, "rolled_back": rolled_back, "away": None}


async def show_session(console: Console, visit: Visit) -> dict[str, Any]:
    session_id, actor, browser = visit.path("session_id"), visit.caller.actor, console.service.browser()
    session = await browser.session(session_id, actor)
    events, downloads = await asyncio.gather(browser.events(session_id, actor), browser.downloads(session_id, actor))
    return {
        "title": f"Browser of {session['principal']}",
        "session": session,
        "events": events[:SHOWN_EVENTS],
        "downloads": downloads,
        "yours": session["operator"] == actor,
    }


async def console_browser_profiles_list_handler(console: Console, visit: Visit) -> dict[str, Any]:
    return {"profiles": await console.service.browser().profiles(visit.caller.actor)}


async def list_sessions(console: Console, visit: Visit) -> dict[str, Any]:
    return {"sessions": await console.service.browser().sessions(visit.caller.actor)}


async def change_session(console: Console, visit: Visit, body: SessionBody) -> dict[str, Any]:
    console.service.require_operator(visit.caller, "browser.manage")
    browser, session_id, actor = console.service.browser(), visit.path("session_id"), visit.caller.actor
    match body.change:
        case "take_over":
            return await browser.take_over(session_id, actor, body.reason)
        case "hand_back":
            return await browser.hand_back(session_id, actor)
        case "close":
            return await browser.close(session_id, actor)


async def operate_session(console: Console, visit: Visit, body: OperateBody) -> dict[str, Any]:
    """Send the inputs of the person who took over. The journal has their kinds and number, never the typed text."""
    console.service.require_operator(visit.caller, "browser.manage")
    await console.service.browser().operate(visit.path("session_id"), visit.caller.actor, body.inputs)
    return {"inputs": len(body.inputs)}


async def change_download(console: Console, visit: Visit, body: DownloadBody) -> dict[str, Any]:
    console.service.require_operator(visit.caller, "browser.manage")
    browser = console.service.browser()
    change = browser.release if body.change == "release" else browser.delete
    return await change(visit.path("session_id"), visit.path("download_id"), visit.caller.actor)


async def change_profile(console: Console, visit: Visit, body: ProfileBody) -> dict[str, Any]:
    console.service.require_operator(visit.caller, "browser.manage")
    browser = console.service.browser()
    change = browser.reset_profile if body.change == "reset" else browser.delete_profile
    return await change(visit.path("profile_id"), visit.caller.actor)


async def change_profiles(console: Console, visit: Visit, body: ProfilesBody) -> dict[str, Any]:
    console.service.require_operator(visit.caller, "browser.manage")
    return await console.service.browser().accept_profiles(visit.caller.actor)


async def watch_session(console: Console, visit: Visit) -> Response:
    """Stream pictures of the active tab. The session's own record names the watcher too."""
    console.service.require_operator(visit.caller, "browser.manage")
    if console.listeners >= MAX_LISTENERS:
        raise TooManyPagesOpen(f"{console.listeners} pages are open")
    session_id, actor = visit.path("session_id"), visit.caller.actor
    try:
        await console.service.browser().session(session_id, actor)
        stream: AsyncIterator[bytes] | list[bytes] = _pictures(console, visit, session_id)
    except (NoSuchSession, SessionOver) as error:
        # It ended while its page was opened: send the same event as to a watcher.
        stream = [_over(error)]
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _pictures(console: Console, visit: Visit, session_id: str) -> AsyncIterator[bytes]:
    """Send pictures while the person is logged in, which is checked every few seconds."""
    clock, looked = console.service.clock, console.service.clock.monotonic()
    console.listeners += 1
    try:
        async for seen in console.service.browser().watch(session_id, visit.caller.actor):
            if clock.monotonic() - looked >= LOGIN_LOOK_SECONDS:
                looked = clock.monotonic()
                visit = await authenticate(console, visit.request, by_person=False)
                console.service.require_operator(visit.caller, "browser.manage")
            yield _line(seen)
        yield b"event: over\ndata: {}\n\n"
    except PalyraError as error:
        yield _over(error)
    finally:
        console.listeners -= 1


def _over(error: PalyraError) -> bytes:
    return b"event: over\ndata: %s\n\n" % msgspec.json.encode(error.as_dict())


def _line(seen: LiveFrame | SessionEvent) -> bytes:
    if isinstance(seen, SessionEvent):
        return b"event: happened\ndata: %s\n\n" % msgspec.json.encode(seen)
    picture = base64.b64encode(seen.picture).decode()
    shown = {
        "url": seen.url,
        "width": seen.width,
        "height": seen.height,
        "type": seen.media_type,
        "picture": picture,
    }
    return b"event: frame\ndata: %s\n\n" % msgspec.json.encode(shown)


_SESSION = "/console/v1/browser/sessions/{session_id}"
SECTION = Section(
    pages=(
        Page(path="/browser", template="browser.html", title="Browser", show=show_browser, live=("browser.",)),
        Page(
            path="/browser/{session_id}",
            template="browser_session.html",
            title="Browser session",
            above="/browser",
            show=show_session,
            live=("browser.", "call."),
        ),
    ),
    listings=(
        Listing(path="/console/v1/browser/profiles", show=console_browser_profiles_list_handler),
        Listing(path="/console/v1/browser/sessions", show=list_sessions),
    ),
    writes=(
        Write(path=f"{_SESSION}/change", name="browser.change", act=change_session, body=SessionBody),
        Write(
            path=f"{_SESSION}/operate",
            name="browser.operate",
            act=operate_session,
            body=OperateBody,
            hides=("inputs",),
        ),
        Write(
            path=f"{_SESSION}/downloads/{{download_id}}/change",
            name="browser.download",
            act=change_download,
            body=DownloadBody,
        ),
        Write(
            path="/console/v1/browser/profiles/{profile_id}/change",
            name="browser.profile",
            act=change_profile,
            body=ProfileBody,
        ),
        Write(
            path="/console/v1/browser/profiles/change",
            name="browser.profiles",
            act=change_profiles,
            body=ProfilesBody,
        ),
    ),
    downloads=(Download(path=f"{_SESSION}/watch", name="browser.watch", make=watch_session, answers="events"),),
)
