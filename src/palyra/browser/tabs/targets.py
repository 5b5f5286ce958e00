"""Attaches to everything a browser makes: pages, frames of other sites, and workers.

Each waits until it was set up. All commands are sent at once, and the one that lets the target run is the last:
Chromium runs them in order. A popup without an opener has no process to answer the first of them before it runs.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.engine.background_tasks import BackgroundTasks
from palyra.browser.engine.cdp_connection import CdpPipe, TargetGone
from palyra.browser.tabs.tab import TabPage
from palyra.errors import PalyraError

log = logging.getLogger(__name__)

_WAITING: Final = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
# Service workers belong to the browser, not to the page that registered them: else each would be attached to twice.
_OF_A_PAGE: Final = {**_WAITING, "filter": [{"type": "service_worker", "exclude": True}, {}]}
# Bodies are never read, so Chromium need not keep any.
_NETWORK: Final = {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0}
_PAGE: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("Target.setAutoAttach", _OF_A_PAGE),
    ("Page.enable", {}),
    ("Page.setLifecycleEventsEnabled", {"enabled": True}),
    ("Runtime.enable", {}),
    ("Log.enable", {}),
    ("Network.enable", _NETWORK),
)
# A tab in the background has its focus too: an agent works in any of them.
_MAIN: Final[tuple[tuple[str, dict[str, Any]], ...]] = (("Emulation.setFocusEmulationEnabled", {"enabled": True}),)
_WORKER: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("Target.setAutoAttach", _WAITING),
    ("Network.enable", _NETWORK),
)
_WORKERS: Final = frozenset(("worker", "shared_worker", "service_worker"))


class TargetWatcher(Protocol):
    def on_tab_opened(self, target_id: str, session_id: str, opener_target: str) -> TabPage | None:
        """Make a tab. None if there is no room: the page is then closed at once."""

    def on_tab_closed(self, tab: TabPage) -> None: ...

    def setup(self) -> tuple[tuple[str, dict[str, Any]], ...]: ...

    def on_event(self, tab: TabPage | None, event: CdpEvent) -> None: ...


class Targets:
    """``script`` has the commands that put our script into every document, before the page's own."""

    def __init__(self, cdp: CdpPipe, watcher: TargetWatcher, script: tuple[tuple[str, dict[str, Any]], ...]) -> None:
        self._cdp = cdp
        self._page = (*_PAGE, *script)
        self._watcher = watcher
        # Which tab a session belongs to; workers of no tab belong to none.
        self._of_session: dict[str, TabPage | None] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self._tasks = BackgroundTasks(log)
        self._closing = False

    async def start(self) -> None:
        self._stops[""] = self._cdp.subscribe(None, self._on_event)
        await self._cdp.send("Target.setAutoAttach", _WAITING)

    async def close(self) -> None:
        self._closing = True
        for stop in self._stops.values():
            stop()
        self._stops.clear()
        await self._tasks.cancel()

    def tab_of(self, target_id: str) -> TabPage | None:
        return next((tab for tab in self._of_session.values() if tab is not None and tab.target_id == target_id), None)

    async def look(self) -> None:
        """Read from the browser the titles of pages that reported none, as those that could not be loaded."""
        found = await self._cdp.send("Target.getTargets", {"filter": [{"type": "page"}]})
        for info in found["targetInfos"]:
            tab = self.tab_of(str(info["targetId"]))
            if tab is not None and not tab.title_reported:
                tab.title = _title(str(info.get("title", "")), str(info.get("url", "")))

    def _on_event(self, event: CdpEvent) -> None:
        tab = self._of_session.get(event.session_id)
        if event.method == "Target.attachedToTarget":
            self._attached(event.params, tab, event.session_id)
        elif event.method == "Target.detachedFromTarget":
            self._detached(str(event.params["sessionId"]))
        else:
            if tab is not None:
                tab.on_event(event)
            self._watcher.on_event(tab, event)

    def _attached(self, params: dict[str, Any], parent: TabPage | None, by: str) -> None:
        session_id, info = str(params["sessionId"]), params["targetInfo"]
        kind, target_id = str(info["type"]), str(info["targetId"])
        if kind == "page" and not by:
            tab = self._watcher.on_tab_opened(target_id, session_id, str(info.get("openerId", "")))
            if tab is None:
                self._tasks.start(self._ended(target_id, session_id), "a tab too many is closed")
                return
            self._own(session_id, tab)
            self._tasks.start(self._set_up_tab(tab, session_id), "a tab is set up")
        elif kind == "iframe" and parent is not None:
            parent.frame_table.adopt(target_id, str(info.get("parentFrameId", "")), session_id)
            self._own(session_id, parent)
            self._tasks.start(self._set_up_frame(parent, session_id), "a frame is set up")
        elif kind in _WORKERS:
            self._own(session_id, parent)
            self._tasks.start(self._set_up(session_id, _WORKER), "a worker is set up")
        else:
            # A page cannot make such a target. It may not run unobserved.
            self._tasks.start(self._detach(session_id), "a target is left alone")

    def _own(self, session_id: str, tab: TabPage | None) -> None:
        self._of_session[session_id] = tab
        self._stops[session_id] = self._cdp.subscribe(session_id, self._on_event)

    def _detached(self, session_id: str) -> None:
        tab = self._of_session.pop(session_id, None)
        stop = self._stops.pop(session_id, None)
        if stop is not None:
            stop()
        if tab is None:
            return
        if session_id == tab.session_id:
            tab.fail(TargetGone(f"tab {tab.tab} was closed", tab=tab.tab))
            self._watcher.on_tab_closed(tab)
        else:
            tab.session_gone(session_id)

    async def _set_up(
        self, session_id: str, commands: tuple[tuple[str, dict[str, Any]], ...], *, tree: bool = False
    ) -> dict[str, Any]:
        every = [*commands]
        every += [("Page.getFrameTree", {})] if tree else []
        every += [("Runtime.runIfWaitingForDebugger", {})]
        answers = await asyncio.gather(
            *(self._cdp.send(method, params, session_id) for method, params in every), return_exceptions=True
        )
        for (method, _), answer in zip(every, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, PalyraError):
                raise answer
            if isinstance(answer, PalyraError) and not self._closing and session_id in self._of_session:
                log.info("%s failed while a target was set up: %s", method, answer.message)
        found = answers[-2] if tree else {}
        return found["frameTree"] if isinstance(found, dict) and "frameTree" in found else {}

    async def _set_up_tab(self, tab: TabPage, session_id: str) -> None:
        tree = await self._set_up(session_id, (*self._page, *_MAIN, *self._watcher.setup()), tree=True)
        if tree:
            tab.frame_table.seed(tree, session_id)
            if not tab.load.loader:
                tab.load.begin(tab.frame_table.main.loader_id)
        tab.ready.set()
        tab.changed()

    async def _set_up_frame(self, tab: TabPage, session_id: str) -> None:
        tree = await self._set_up(session_id, self._page, tree=True)
        if tree and session_id in self._of_session:
            tab.frame_table.seed(tree, session_id)
            tab.changed()

    async def _detach(self, session_id: str) -> None:
        await self._cdp.send("Target.detachFromTarget", {"sessionId": session_id})

    async def _ended(self, target_id: str, session_id: str) -> None:
        """Close a tab too many. It must run to end: its opener may share its process, and would wait with it."""
        with suppress(PalyraError):
            await self._cdp.send("Runtime.runIfWaitingForDebugger", {}, session_id)
        await self._cdp.send("Target.closeTarget", {"targetId": target_id})


def _title(title: str, url: str) -> str:
    """Drop a title that is only the page's address, with or without the scheme."""
    return "" if title and title.rstrip("/") in (url.rstrip("/"), url.partition("://")[2].rstrip("/")) else title
