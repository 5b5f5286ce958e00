"""Logins of a running session in Playwright's format, out and in.

Local storage belongs to a site, and is reached through that site's document. Each origin gets an empty document of
ours in a tab of its own, so that neither the network nor the site takes part. Its address is judged as any other: a
session cannot get the storage of a site that it may not reach.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.session_api import ImportReport
from palyra.browser.engine.cdp_connection import CdpPipe
from palyra.browser.profiles.storage_state import (
    MAX_ORIGINS,
    SESSION_EXPIRES,
    StateCookie,
    StateOrigin,
    StorageItem,
    StorageState,
    from_cdp,
    origin_of_url,
    read_storage_state,
    to_cdp,
    write_storage_state,
)
from palyra.browser.service.session import BrowserSession
from palyra.browser.tabs.session_tabs import ChromiumPages
from palyra.errors import InvalidInput, PalyraError, Unavailable
from palyra.secret import Secret


async def all_cookies(cdp: CdpPipe) -> tuple[StateCookie, ...]:
    answer: dict[str, Any] = await cdp.send("Storage.getCookies")
    return tuple(map(from_cdp, answer.get("cookies", ())))


async def put_cookies(cdp: CdpPipe, cookies: Iterable[StateCookie]) -> int:
    given = [to_cdp(cookie) for cookie in cookies]
    if given:
        await cdp.send("Storage.setCookies", {"cookies": given})
    return len(given)


async def read_session_cookies(cdp: CdpPipe) -> bytes:
    found = [cookie for cookie in await all_cookies(cdp) if cookie.expires == SESSION_EXPIRES]
    readable = tuple(filter(_can_be_read, found))
    return write_storage_state(StorageState(cookies=readable)) if readable else b""


def _can_be_read(cookie: StateCookie) -> bool:
    """Whether a document can hold the cookie. A site can set one that no document holds."""
    try:
        read_storage_state(write_storage_state(StorageState(cookies=(cookie,))))
    except InvalidInput:
        return False
    return True


async def restore(cdp: CdpPipe, document: bytes) -> int:
    return await put_cookies(cdp, read_storage_state(document).cookies) if document else 0


ORIGIN_SECONDS: Final = 10.0
_EMPTY: Final = base64.b64encode(b"<!doctype html><title></title>").decode()


class OriginUnreachable(Unavailable):
    code = "browser.origin_unreachable"
    hint = "the session must be allowed to reach each site whose storage goes in or out"


async def export_state(session: BrowserSession) -> bytes:
    cdp = session.process.cdp
    origins = []
    for origin in _origins_seen(session.pages):
        try:
            async with _at(session, origin) as session_id:
                answer = await cdp.send("DOMStorage.getDOMStorageItems", {"storageId": _storage(origin)}, session_id)
        except PalyraError:
            # The session may not reach this site any more.
            continue
        items = tuple(StorageItem(str(name), Secret(str(value))) for name, value in answer.get("entries", ()))
        if items:
            origins.append(StateOrigin(origin=origin, local_storage=items))
    return write_storage_state(StorageState(cookies=await all_cookies(cdp), origins=tuple(origins)))


async def import_state(session: BrowserSession, document: bytes) -> ImportReport:
    state = read_storage_state(document)
    cdp = session.process.cdp
    for each in state.origins:
        await session.judge.judge_document(f"{each.origin}/")
    for each in state.origins:
        async with _at(session, each.origin) as session_id:
            for item in each.local_storage:
                given = {"storageId": _storage(each.origin), "key": item.name, "value": item.value.reveal()}
                await cdp.send("DOMStorage.setDOMStorageItem", given, session_id)
    cookies = await put_cookies(cdp, state.cookies)
    return ImportReport(cookies=cookies, origins=len(state.origins), left_out=state.left_out)


def _origins_seen(pages: ChromiumPages) -> list[str]:
    urls = [tab.url for tab in pages.tabs()] + [entry.url for entry in pages.network_log()]
    found = dict.fromkeys(origin for url in urls if (origin := origin_of_url(url)))
    return list(found)[:MAX_ORIGINS]


def _storage(origin: str) -> dict[str, Any]:
    return {"securityOrigin": origin, "isLocalStorage": True}


@asynccontextmanager
async def _at(session: BrowserSession, origin: str) -> AsyncIterator[str]:
    await session.judge.judge_document(f"{origin}/")
    cdp, pages = session.process.cdp, session.pages
    tab = await pages.new_tab()
    session_id = tab.session_id
    loaded = asyncio.Event()

    def on_event(event: CdpEvent) -> None:
        if event.method == "Page.loadEventFired":
            loaded.set()
        elif event.method == "Fetch.requestPaused":
            headers = [{"name": "Content-Type", "value": "text/html"}]
            answer = {"responseCode": 200, "responseHeaders": headers, "body": _EMPTY}
            cdp.post("Fetch.fulfillRequest", {"requestId": event.params["requestId"], **answer}, session_id)

    stop = cdp.subscribe(session_id, on_event)
    try:
        # A worker of the site would answer in our place.
        await cdp.send("Network.setBypassServiceWorker", {"bypass": True}, session_id)
        await cdp.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}, session_id)
        answer = await cdp.send("Page.navigate", {"url": f"{origin}/"}, session_id, timeout=ORIGIN_SECONDS)
        if answer.get("errorText"):
            raise OriginUnreachable(f"{origin} cannot be opened here: {answer['errorText']}", origin=origin)
        async with asyncio.timeout(ORIGIN_SECONDS):
            await loaded.wait()
        await cdp.send("DOMStorage.enable", {}, session_id)
        yield session_id
    except TimeoutError:
        raise OriginUnreachable(f"{origin} did not open in time", origin=origin) from None
    finally:
        stop()
        await pages.end_tab(tab)
