"""Where the tabs of a session are, for its profile, and the way back there."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Protocol

from palyra.browser.action import LoadState
from palyra.browser.navigation import Navigator
from palyra.browser.page_address import AddressKind, kind_of
from palyra.browser.profile_record import MAX_TABS, MAX_TEXT_CHARS, TabState
from palyra.browser.tab_page import TabPage
from palyra.errors import PalyraError

_ASK_SECONDS: Final = 2.0
# A page may say anything; no page is taller.
_MAX_SCROLL: Final = 2**31
_WHERE: Final = "[Math.round(scrollX), Math.round(scrollY)]"


class TabMaker(Protocol):
    def active_tab(self) -> TabPage: ...

    async def new_tab(self) -> TabPage: ...

    async def activate(self, tab: TabPage) -> None: ...


async def saved_tabs(tabs: Iterable[TabPage]) -> tuple[TabState, ...]:
    """Pages of the web only: a blank tab is nothing to come back to."""
    wanted = [tab for tab in tabs if kind_of(tab.url) is AddressKind.WEB and len(tab.url) <= MAX_TEXT_CHARS]
    return tuple(await asyncio.gather(*(_state(tab) for tab in wanted[:MAX_TABS])))


async def restored_tabs(
    maker: TabMaker,
    navigator: Navigator,
    tabs: tuple[TabState, ...],
    timeout: float,  # noqa: ASYNC109
) -> None:
    """The first becomes the active one. One that is refused, or does not answer, is left blank and not a failure."""
    first = maker.active_tab()
    for number, state in enumerate(tabs[:MAX_TABS]):
        tab = first if number == 0 else await maker.new_tab()
        try:
            await navigator.navigate_with_guards(tab, state.url, LoadState.CONTENT, timeout)
            await _ask(tab, f"scrollTo({int(state.scroll_x)}, {int(state.scroll_y)})")
        except PalyraError:
            continue
    await maker.activate(first)


async def _state(tab: TabPage) -> TabState:
    try:
        x, y = await _ask(tab, _WHERE)
        return TabState(url=tab.url, scroll_x=_whole(x), scroll_y=_whole(y))
    except (PalyraError, TypeError, ValueError):
        return TabState(url=tab.url)


async def _ask(tab: TabPage, expression: str) -> Any:
    """In our own world of the page: its scripts cannot answer in its place."""
    if tab.dialog() is not None:
        return None
    world = await tab.world(tab.frame_table.main)
    params = {"expression": expression, "contextId": world, "returnByValue": True}
    answer = await tab.cdp.send("Runtime.evaluate", params, tab.session_id, _ASK_SECONDS)
    return answer["result"].get("value")


def _whole(number: object) -> int:
    return max(0, min(_MAX_SCROLL, int(number))) if isinstance(number, int | float) else 0
