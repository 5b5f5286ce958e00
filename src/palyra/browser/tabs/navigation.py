"""Navigates a tab to an address, back, forward, or reloads it: judged first, then waited for by events."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from palyra.browser.domain.action import LoadState
from palyra.browser.domain.page_address import (
    AddressKind,
    Redact,
    Refusals,
    kind_of,
    render_address,
    require_tab_address,
)
from palyra.browser.domain.page_errors import NavigationFailed, NavigationTimeout, NoHistory, PageTimeout, SchemeRefused
from palyra.browser.domain.profile import MAX_TABS, MAX_TEXT_CHARS, TabState
from palyra.browser.tabs.request_interception import Interception
from palyra.browser.tabs.tab import TabPage, TabSet, time_left
from palyra.errors import PalyraError

# Chromium answers this when a download, or no content at all, came instead of a document.
_NO_DOCUMENT: Final = "net::ERR_ABORTED"
_BLOCKED: Final = "net::ERR_BLOCKED_BY_CLIENT"
_STOP_SECONDS: Final = 1.0
_ERROR_PAGE_SECONDS: Final = 1.0
_END_SECONDS: Final = 1.0


class Navigator:
    def __init__(self, interception: Interception, refusals: Refusals, redact: Redact) -> None:
        self._interception = interception
        self._refusals = refusals
        self._redact = redact

    async def navigate_with_guards(self, tab: TabPage, url: str, wait: LoadState, timeout: float) -> None:  # noqa: ASYNC109
        """Judge the address before Chromium gets it, and every redirect when Chromium requests it."""
        deadline = time.monotonic() + timeout
        mark, commits = self._refusals.total, tab.load.commits
        if self._require_address(tab, url) is AddressKind.WEB:
            await self._judge_address(tab, url, deadline)
        answer = await self._send(tab, "Page.navigate", {"url": url}, deadline)
        if answer is None:
            return
        error = str(answer.get("errorText", ""))
        if error == _NO_DOCUMENT:
            # Chromium reports the end of loading a moment after the answer.
            loader = str(answer.get("loaderId", ""))
            with suppress(PageTimeout):
                await tab.until(lambda: not loader or tab.load.pending != loader, _END_SECONDS)
        if error and not answer.get("isDownload"):
            if error != _NO_DOCUMENT:
                # Chromium shows an error page, which the tab shows from then on.
                with suppress(PageTimeout):
                    await tab.until(lambda: tab.load.commits > commits, _ERROR_PAGE_SECONDS)
            self._raise(tab, url, error, mark)
        elif answer.get("loaderId") and not error:
            await self._await_load(tab, lambda: tab.load.commits > commits, wait, deadline)

    def _require_address(self, tab: TabPage, url: str) -> AddressKind:
        try:
            return require_tab_address(url)
        except SchemeRefused as refused:
            self._refusals.add(url, refused, frame=tab.target_id, document=True)
            raise

    async def reload(self, tab: TabPage, wait: LoadState, timeout: float) -> None:  # noqa: ASYNC109
        deadline = time.monotonic() + timeout
        mark, commits = self._refusals.total, tab.load.commits
        if kind_of(tab.url) is AddressKind.WEB:
            await self._judge_address(tab, tab.url, deadline)
        if await self._send(tab, "Page.reload", {}, deadline) is None:
            return
        await self._await_move(tab, lambda: tab.load.commits > commits, wait, deadline, mark)

    async def go(self, tab: TabPage, steps: int, wait: LoadState, timeout: float) -> None:  # noqa: ASYNC109
        deadline = time.monotonic() + timeout
        history = await tab.cdp.send("Page.getNavigationHistory", {}, tab.session_id)
        index = int(history["currentIndex"]) + steps
        if not 0 <= index < len(history["entries"]):
            raise NoHistory("there is nothing further back" if steps < 0 else "there is nothing further forward")
        entry = history["entries"][index]
        url = str(entry["url"])
        kind = kind_of(url)
        if kind is AddressKind.WEB:
            await self._judge_address(tab, url, deadline)
        elif kind is not AddressKind.BLANK:
            raise SchemeRefused(f"a tab may not go to {render_address(url)!r}")
        mark, commits, within = self._refusals.total, tab.load.commits, tab.load.within
        asked = await self._send(tab, "Page.navigateToHistoryEntry", {"entryId": entry["id"]}, deadline)
        if asked is not None:
            await self._await_move(
                tab, lambda: tab.load.commits > commits or tab.load.within > within, wait, deadline, mark
            )

    async def _judge_address(self, tab: TabPage, url: str, deadline: float) -> None:
        try:
            async with asyncio.timeout(time_left(deadline)):
                await self._interception.judge_document(url, frame=tab.target_id)
        except TimeoutError as late:
            raise NavigationTimeout("the address could not be judged in time", url=self._render_address(url)) from late

    async def _send(self, tab: TabPage, method: str, params: dict[str, Any], deadline: float) -> dict[str, Any] | None:
        """Return the answer, which comes when the navigation committed or failed. None when a dialog opened first."""
        # A page that crashed comes back with the next document.
        tab.crashed = False
        try:
            return await tab.ask(method, params, time_left(deadline))
        except PageTimeout as late:
            await self._give_up(tab)
            raise NavigationTimeout("the site did not answer in time", tab=tab.tab, committed=False) from late

    async def _give_up(self, tab: TabPage) -> None:
        with suppress(PalyraError):
            await tab.cdp.send("Page.stopLoading", {}, tab.session_id, _STOP_SECONDS)
        tab.load.abandon()

    async def _await_load(self, tab: TabPage, moved: Callable[[], bool], wait: LoadState, deadline: float) -> None:
        """Wait for that document, or for the one that it went on to by itself."""
        try:
            await tab.until(moved, time_left(deadline))
            await tab.until(lambda: tab.load.has_reached(wait) and not tab.load.pending, time_left(deadline))
        except PageTimeout as late:
            raise NavigationTimeout(
                f"the page did not get as far as {wait}", tab=tab.tab, url=self._render_address(tab.url), committed=True
            ) from late

    async def _await_move(
        self, tab: TabPage, moved: Callable[[], bool], wait: LoadState, deadline: float, mark: int
    ) -> None:
        ends = tab.load.ends
        try:
            await tab.until(lambda: moved() or tab.load.ends > ends, time_left(deadline))
        except PageTimeout as late:
            await self._give_up(tab)
            raise NavigationTimeout("the site did not answer in time", tab=tab.tab, committed=False) from late
        refused = self._refusals.of_document(tab.target_id, mark)
        if refused is not None:
            raise refused.with_traceback(None)
        if tab.dialog() is None and moved():
            await self._await_load(tab, moved, wait, deadline)

    def _raise(self, tab: TabPage, url: str, error: str, mark: int) -> None:
        refused = self._refusals.of_document(tab.target_id, mark)
        if refused is not None and error == _BLOCKED:
            raise refused.with_traceback(None)
        if error != _NO_DOCUMENT:
            raise NavigationFailed(f"{self._render_address(url)} could not be opened: {error}", net_error=error)

    def _render_address(self, url: str) -> str:
        return render_address(self._redact(url))


_ASK_SECONDS: Final = 2.0
# A page may report any number. No page is taller.
_MAX_SCROLL: Final = 2**31
_WHERE: Final = "[Math.round(scrollX), Math.round(scrollY)]"


async def saved_tabs(tabs: Iterable[TabPage]) -> tuple[TabState, ...]:
    wanted = [tab for tab in tabs if kind_of(tab.url) is AddressKind.WEB and len(tab.url) <= MAX_TEXT_CHARS]
    return tuple(await asyncio.gather(*(_state(tab) for tab in wanted[:MAX_TABS])))


async def open_saved_tabs(
    tab_set: TabSet,
    navigator: Navigator,
    tabs: tuple[TabState, ...],
    timeout: float,  # noqa: ASYNC109
) -> None:
    """Open saved tabs; the first becomes the active one. One that is refused or does not answer stays blank."""
    first = tab_set.active_tab()
    for number, state in enumerate(tabs[:MAX_TABS]):
        tab = first if number == 0 else await tab_set.new_tab()
        try:
            await navigator.navigate_with_guards(tab, state.url, LoadState.CONTENT, timeout)
            await _ask(tab, f"scrollTo({int(state.scroll_x)}, {int(state.scroll_y)})")
        except PalyraError:
            continue
    await tab_set.activate(first)


async def _state(tab: TabPage) -> TabState:
    try:
        x, y = await _ask(tab, _WHERE)
        return TabState(url=tab.url, scroll_x=_whole(x), scroll_y=_whole(y))
    except (PalyraError, TypeError, ValueError):
        return TabState(url=tab.url)


async def _ask(tab: TabPage, expression: str) -> Any:
    """Evaluate in our own world of the page, where its scripts cannot answer in its place."""
    if tab.dialog() is not None:
        return None
    world = await tab.world(tab.frame_table.main)
    params = {"expression": expression, "contextId": world, "returnByValue": True}
    answer = await tab.cdp.send("Runtime.evaluate", params, tab.session_id, _ASK_SECONDS)
    return answer["result"].get("value")


def _whole(number: object) -> int:
    return max(0, min(_MAX_SCROLL, int(number))) if isinstance(number, int | float) else 0
