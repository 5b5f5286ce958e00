"""One tab: its frames, how far its document has loaded, its dialog, and waiting for any of that to change."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from palyra.browser.domain.action import Dialog, LoadState, TabView
from palyra.browser.domain.budget import BudgetSpent
from palyra.browser.domain.cdp_messages import CdpEvent, CommandRefused
from palyra.browser.domain.document_state import FrameTable, FrameView, PageLoad
from palyra.browser.domain.page_address import AddressKind, Refusals, kind_of
from palyra.browser.domain.page_errors import DocumentGone, PageTimeout, TabCrashed, UnknownTab
from palyra.browser.engine.cdp_connection import CdpPipe, TargetGone
from palyra.browser.page.in_page_script import WORLD_NAME
from palyra.errors import LimitExceeded, PalyraError

# A navigation that a page requested starts within this. Otherwise it was, for example, a link to another program.
START_GRACE_SECONDS: Final = 0.25
# The pipe's own deadline for a command that has one here: later than that, so that it is never the first.
LATER_SECONDS: Final = 1.0
_MAX_MESSAGE_CHARS: Final = 2_048
_KINDS: Final = ("alert", "confirm", "prompt", "beforeunload")


class TabPage:
    """The `PageView` of one tab, fed with the events of its CDP sessions."""

    def __init__(
        self,
        cdp: CdpPipe,
        tab: str,
        target_id: str,
        session_id: str,
        committed: Callable[["TabPage", str, str], None],
        opener: str = "",
        *,
        binding: str = "",
    ) -> None:
        self._cdp = cdp
        self.tab = tab
        self.target_id = target_id
        self.session_id = session_id
        self.opener = opener
        self.title = ""
        # Whether the page has reported its title. It then reports every change too.
        self.title_reported = False
        # The address that could not be loaded, while the tab shows the error page.
        self.unreachable = ""
        self.load = PageLoad()
        self.frame_table = FrameTable(target_id, session_id)
        self.failure: PalyraError | None = None
        self.crashed = False
        self.ready = asyncio.Event()
        # Called with the address and the loader when the tab shows another document.
        self._committed = committed
        self._binding = binding
        self._dialog: Dialog | None = None
        # Our isolated world in the document of a frame, by session and frame.
        self._worlds: dict[tuple[str, str], int] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._dialogs: set[asyncio.Future[None]] = set()

    @property
    def cdp(self) -> CdpPipe:
        return self._cdp

    @property
    def url(self) -> str:
        return self.frame_table.main.url

    def view(self, *, active: bool) -> TabView:
        url = self.unreachable or self.url
        return TabView(tab=self.tab, url=url, title=self.title, active=active, opener=self.opener)

    def frames(self) -> tuple[FrameView, ...]:
        return self.frame_table.views()

    async def world(self, frame: FrameView) -> int:
        key = (frame.session_id, frame.frame_id)
        self._require_same(frame)
        known = self._worlds.get(key)
        if known is not None:
            return known
        params = {"frameId": frame.frame_id, "worldName": WORLD_NAME}
        try:
            made = await self._cdp.send("Page.createIsolatedWorld", params, frame.session_id)
        except (CommandRefused, TargetGone) as gone:
            raise DocumentGone("the frame went away") from gone
        self._require_same(frame)
        self._worlds[key] = int(made["executionContextId"])
        return self._worlds[key]

    def dialog(self) -> Dialog | None:
        return self._dialog

    def dialog_opened(self) -> "asyncio.Future[None]":
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._dialog is not None:
            opened.set_result(None)
        else:
            self._dialogs.add(opened)
            opened.add_done_callback(self._dialogs.discard)
        return opened

    async def settle(self, timeout: float, *, answered: bool = False) -> None:  # noqa: ASYNC109  one deadline for all
        deadline = time.monotonic() + timeout
        try:
            if not answered:
                await self.wait_until_answered(timeout)
            if self.load.requested:
                await self.until(lambda: not self.load.requested, min(START_GRACE_SECONDS, time_left(deadline)))
        except LimitExceeded:
            # The page is busy, or its request was not a navigation.
            self.load.requested = False
        if not self.load.moving:
            return
        commits = self.load.commits
        try:
            await self.until(lambda: self.load.commits > commits or not self.load.moving, time_left(deadline))
            if self.load.commits > commits:
                await self.until(lambda: self.load.has_reached(LoadState.CONTENT), time_left(deadline))
        except PageTimeout:
            # It goes on loading, and the outcome says so.
            return

    # Waiting.

    def failed(self) -> PalyraError | None:
        if self.failure is None and self.crashed:
            return TabCrashed(f"the page in tab {self.tab} crashed", tab=self.tab)
        return self.failure

    async def until(self, holds: Callable[[], bool], timeout: float) -> None:  # noqa: ASYNC109
        """Wait until it holds or a dialog is open, which stops everything else. Raise when the tab is gone."""
        try:
            async with asyncio.timeout(timeout):
                while not holds() and self._dialog is None:
                    failure = self.failed()
                    if failure is not None:
                        raise failure.with_traceback(None)
                    await self._change()
        except TimeoutError as late:
            raise PageTimeout(f"tab {self.tab} was waited for {timeout:.1f} s", tab=self.tab) from late

    async def ask(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any] | None:  # noqa: ASYNC109
        """Return the answer to a command, or None when a dialog opened first."""
        asked = self._cdp.ask(method, params, self.session_id, timeout + LATER_SECONDS)
        asked.add_done_callback(lambda _: self.changed())
        try:
            await self.until(asked.done, timeout)
            return asked.result() if asked.done() else None
        finally:
            asked.cancel()

    async def wait_until_answered(self, timeout: float) -> None:  # noqa: ASYNC109
        """Wait until the page's process has handled all earlier commands, or a dialog stops it."""
        await self.ask("Page.enable", {}, timeout)

    async def _change(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def changed(self) -> None:
        for waiting in tuple(self._waiting):
            if not waiting.done():
                waiting.set_result(None)

    def fail(self, why: PalyraError) -> None:
        if self.failure is None:
            self.failure = why
        self._dialog = None
        self.ready.set()
        self.changed()

    # Events, in the order in which Chromium sent them.

    def on_event(self, event: CdpEvent) -> None:
        handler = _HANDLERS.get(event.method)
        if handler is not None:
            handler(self, event.params, event.session_id)
            self.changed()

    def session_gone(self, session_id: str) -> None:
        self.frame_table.remove_session(session_id)
        self._worlds = {key: value for key, value in self._worlds.items() if key[0] != session_id}
        self.changed()

    def _is_main(self, params: dict[str, Any]) -> bool:
        return bool(params.get("frameId") == self.target_id)

    def _frame_attached(self, params: dict[str, Any], session_id: str) -> None:
        self.frame_table.attach(str(params["frameId"]), str(params["parentFrameId"]), session_id)

    def _frame_navigated(self, params: dict[str, Any], session_id: str) -> None:
        frame = self.frame_table.navigate(params["frame"], session_id)
        if frame is None:
            return
        self._worlds = {key: value for key, value in self._worlds.items() if key[1] != frame.frame_id}
        if frame.frame_id == self.target_id:
            self.crashed = False
            self.title = ""
            self.title_reported = False
            self.unreachable = str(params["frame"].get("unreachableUrl", ""))
            self.load.commit(frame.loader_id, restored=params.get("type") == "BackForwardCacheRestore")
            self._committed(self, frame.url, frame.loader_id)

    def _within_document(self, params: dict[str, Any], _: str) -> None:
        self.frame_table.move_within(str(params["frameId"]), str(params["url"]))
        if self._is_main(params):
            self.load.move_within()

    def _frame_detached(self, params: dict[str, Any], _: str) -> None:
        self.frame_table.detach(str(params["frameId"]), str(params.get("reason", "remove")))

    def _requested(self, params: dict[str, Any], _: str) -> None:
        # A request that opens another tab, or only a file, changes nothing here.
        if self._is_main(params) and params.get("disposition") == "currentTab":
            self.load.request()

    def _started(self, params: dict[str, Any], _: str) -> None:
        if self._is_main(params):
            self.load.start(str(params["loaderId"]), str(params.get("navigationType", "")))

    def _lifecycle(self, params: dict[str, Any], _: str) -> None:
        if self._is_main(params):
            self.load.reach(str(params["loaderId"]), str(params["name"]))

    def _stopped(self, params: dict[str, Any], _: str) -> None:
        if self._is_main(params):
            self.load.stop()

    def _response(self, params: dict[str, Any], _: str) -> None:
        if self._is_main(params) and params.get("type") == "Document":
            self.load.record_answer(str(params.get("loaderId", "")), int(params["response"].get("status", 0)))

    def _opening(self, params: dict[str, Any], _: str) -> None:
        kind = str(params.get("type", ""))
        dialog = Dialog(
            kind=kind if kind in _KINDS else "alert",  # type: ignore[arg-type]
            message=str(params.get("message", ""))[:_MAX_MESSAGE_CHARS],
            default_text=str(params.get("defaultPrompt", ""))[:_MAX_MESSAGE_CHARS],
        )
        self._dialog = dialog
        for waiting in tuple(self._dialogs):
            if not waiting.done():
                waiting.set_result(None)

    def _closed(self, params: dict[str, Any], _: str) -> None:
        if self._dialog is not None and self._dialog.kind == "beforeunload" and not params.get("result"):
            self.load.abandon()
        self._dialog = None

    def _target_crashed(self, _: dict[str, Any], session_id: str) -> None:
        if session_id == self.session_id:
            self.crashed = True
            self._dialog = None
            self._worlds.clear()
            self.load.abandon()

    def _context_created(self, params: dict[str, Any], session_id: str) -> None:
        context = params["context"]
        if context.get("name") == WORLD_NAME:
            frame_id = str(context.get("auxData", {}).get("frameId", ""))
            self._worlds[(session_id, frame_id)] = int(context["id"])

    def _title_changed(self, params: dict[str, Any], session_id: str) -> None:
        teller = params.get("executionContextId")
        # The world of a popup's first document stays when another document comes, and is not reported again.
        shown = self._worlds.get((self.session_id, self.target_id), teller)
        if params["name"] == self._binding and (session_id, teller) == (self.session_id, shown):
            self.title, self.title_reported = str(params.get("payload", "")), True

    def _context_destroyed(self, params: dict[str, Any], session_id: str) -> None:
        gone = params.get("executionContextId")
        self._worlds = {k: v for k, v in self._worlds.items() if k[0] != session_id or v != gone}

    def _contexts_cleared(self, _: dict[str, Any], session_id: str) -> None:
        self._worlds = {key: value for key, value in self._worlds.items() if key[0] != session_id}

    def _require_same(self, frame: FrameView) -> None:
        now = self.frame_table.get(frame.frame_id)
        if now is None or (now.loader_id, now.session_id) != (frame.loader_id, frame.session_id):
            raise DocumentGone("the frame shows another document now")


def shows_forbidden(url: str) -> bool:
    return kind_of(url) in (AddressKind.INSIDE, AddressKind.FORBIDDEN) and not url.startswith("chrome-error:")


def time_left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


_HANDLERS: Final[dict[str, Callable[[TabPage, dict[str, Any], str], None]]] = {
    "Page.frameAttached": TabPage._frame_attached,
    "Page.frameNavigated": TabPage._frame_navigated,
    "Page.navigatedWithinDocument": TabPage._within_document,
    "Page.frameDetached": TabPage._frame_detached,
    "Page.frameRequestedNavigation": TabPage._requested,
    "Page.frameStartedNavigating": TabPage._started,
    "Page.lifecycleEvent": TabPage._lifecycle,
    "Page.frameStoppedLoading": TabPage._stopped,
    "Network.responseReceived": TabPage._response,
    "Page.javascriptDialogOpening": TabPage._opening,
    "Page.javascriptDialogClosed": TabPage._closed,
    "Inspector.targetCrashed": TabPage._target_crashed,
    "Runtime.bindingCalled": TabPage._title_changed,
    "Runtime.executionContextCreated": TabPage._context_created,
    "Runtime.executionContextDestroyed": TabPage._context_destroyed,
    "Runtime.executionContextsCleared": TabPage._contexts_cleared,
}


class TabSet(Protocol):
    def find_tab(self, tab: str) -> TabPage: ...

    def all_tabs(self) -> tuple[TabPage, ...]: ...

    def active_tab(self) -> TabPage: ...

    async def new_tab(self) -> TabPage: ...

    async def activate(self, tab: TabPage) -> None: ...

    async def end_tab(self, tab: TabPage) -> None: ...


class TabRegistry:
    """The tabs of a session. A name is given once, so a caller's name of a gone tab never means another."""

    def __init__(self, most: int, refusals: Refusals) -> None:
        self._most = most
        self._refusals = refusals
        self._tabs: dict[str, TabPage] = {}
        self.active = ""
        self.given = 0

    def __len__(self) -> int:
        return len(self._tabs)

    def __contains__(self, tab: str) -> bool:
        return tab in self._tabs

    def all(self) -> tuple[TabPage, ...]:
        return tuple(self._tabs.values())

    def since(self, given: int) -> tuple[TabPage, ...]:
        """Return the tabs that came after the first ``given``."""
        return tuple(tab for tab in self._tabs.values() if int(tab.tab[1:]) > given)

    def find(self, tab: str) -> TabPage:
        found = self._tabs.get(tab or self.active)
        if found is None:
            raise UnknownTab(f"there is no tab {tab[:32]!r}", tabs=list(self._tabs))
        return found

    def require_room(self) -> None:
        if len(self._tabs) >= self._most:
            text = f"the session has {len(self._tabs)} tabs"
            raise BudgetSpent(text, hint="close a tab first", field="max_tabs_per_session")

    def add(self, make: Callable[[str], TabPage]) -> TabPage | None:
        """Add a tab. Where there is no room, return None and record a refusal."""
        try:
            self.require_room()
        except BudgetSpent as spent:
            self._refusals.add("popup", spent)
            return None
        self.given += 1
        tab = make(f"t{self.given}")
        self._tabs[tab.tab] = tab
        self.active = self.active or tab.tab
        return tab

    def remove(self, tab: TabPage) -> None:
        """Remove a tab. If it was active, its opener or the newest tab becomes active."""
        if self._tabs.pop(tab.tab, None) is None:
            return
        if self.active == tab.tab:
            self.active = tab.opener if tab.opener in self._tabs else next(reversed(self._tabs), "")
