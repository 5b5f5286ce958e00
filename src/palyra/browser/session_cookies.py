"""The cookies of a running browser: those that it would forget, kept for the next session, and those of a document."""

from collections.abc import Iterable
from typing import Any

from palyra.browser.page_port import Cdp
from palyra.browser.storage_state import (
    SESSION_EXPIRES,
    StateCookie,
    StorageState,
    from_cdp,
    read_storage_state,
    to_cdp,
    write_storage_state,
)
from palyra.errors import InvalidInput


async def all_cookies(cdp: Cdp) -> tuple[StateCookie, ...]:
    answer: dict[str, Any] = await cdp.send("Storage.getCookies")
    return tuple(map(from_cdp, answer.get("cookies", ())))


async def put_cookies(cdp: Cdp, cookies: Iterable[StateCookie]) -> int:
    given = [to_cdp(cookie) for cookie in cookies]
    if given:
        await cdp.send("Storage.setCookies", {"cookies": given})
    return len(given)


async def forgettable(cdp: Cdp) -> bytes:
    """A storage state of the cookies that end with the browser; empty where there are none."""
    found = [cookie for cookie in await all_cookies(cdp) if cookie.expires == SESSION_EXPIRES]
    readable = tuple(filter(_can_be_read, found))
    return write_storage_state(StorageState(cookies=readable)) if readable else b""


def _can_be_read(cookie: StateCookie) -> bool:
    """A site can set one that no document may hold: it must not cost the others."""
    try:
        read_storage_state(write_storage_state(StorageState(cookies=(cookie,))))
    except InvalidInput:
        return False
    return True


async def restore(cdp: Cdp, document: bytes) -> int:
    return await put_cookies(cdp, read_storage_state(document).cookies) if document else 0
