"""All tabs of one session: actions in order, each with its outcome. It joins the page layer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

import msgspec

from palyra.browser.domain.action import (
    Action,
    ActionOutcome,
    ChromiumObserveSnapshot,
    Evaluate,
    LoadState,
    LogEntry,
    Made,
    ObserveAsk,
    TabView,
)
from palyra.browser.domain.budget import SessionMeter
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.page_address import (
    BLANK,
    AddressKind,
    Redact,
    Refusal,
    Refusals,
    RequestJudge,
    kind_of,
    render_address,
)
from palyra.browser.domain.page_errors import DialogOpen, PageTimeout, SchemeRefused
from palyra.browser.domain.page_logs import PageLogs
from palyra.browser.domain.profile import TabState
from palyra.browser.engine.background_tasks import BackgroundTasks
from palyra.browser.engine.cdp_connection import BrowserEnded, CdpPipe, TargetGone
from palyra.browser.page.in_page_script import PageScript, PageView
from palyra.browser.page.page import ElementActor
from palyra.browser.tabs.download_folder import DownloadSandboxSession
from palyra.browser.tabs.downloads import PageDownloads
from palyra.browser.tabs.navigation import Navigator, open_saved_tabs, saved_tabs
from palyra.browser.tabs.request_interception import Interception
from palyra.browser.tabs.screencast import ScreencastView
from palyra.browser.tabs.tab import TabPage, TabRegistry, shows_forbidden
from palyra.browser.tabs.tab_actions import PAST_DIALOGS, Mark, OutcomeTeller, SessionActions
from palyra.browser.tabs.targets import Targets
from palyra.clock import MS_PER_SECOND, Clock
from palyra.errors import PalyraError

log = logging.getLogger(__name__)

START_SECONDS: Final = 15.0
# Beyond an action's own limit, before the session's order is taken from it.
GRACE_SECONDS: Final = 2.0

ActorOf = Callable[[PageView], ElementActor]


class ChromiumPages:
    """The pages of one Chromium. Actions run one at a time and are taken from the budget. ``close`` must follow."""

    def __init__(
        self,
        cdp: CdpPipe,
        *,
        judge: RequestJudge,
        redact: Redact,
        meter: SessionMeter,
        clock: Clock,
        actor_of: ActorOf,
        script: PageScript,
        downloads: DownloadSandboxSession | None = None,
        allow_evaluate: bool = False,
    ) -> None:
        self._cdp = cdp
        self._redact = redact
        self._meter = meter
        self._clock = clock
        self._actor_of = actor_of
        self._actors: dict[str, ElementActor] = {}
        self._order = asyncio.Lock()
        self._replacing = asyncio.Lock()
        self._tasks = BackgroundTasks(log)
        self._closing = False
        self._refusals = Refusals(redact)
        self._tabs = TabRegistry(meter.budget.max_tabs_per_session, self._refusals)
        self._interception = Interception(cdp, judge, self._refusals)
        self._logs = PageLogs(meter.budget.max_log_entries, meter.budget.max_log_bytes, redact)
        self._downloads = PageDownloads(cdp, downloads, self._refusals, redact)
        self._script = script
        self._targets = Targets(cdp, self, script.setup)
        self._navigator = Navigator(self._interception, self._refusals, redact)
        self._live = ScreencastView(cdp, self.active_tab, self._quiet, clock.now_ms, redact)
        self._teller = OutcomeTeller(self._refusals, self._logs, self._downloads, self._targets.look, redact)
        self._actions = SessionActions(
            cdp, meter, redact, self, self.actor, self._navigator, allow_evaluate=allow_evaluate
        )

    @classmethod
    async def open(cls, cdp: CdpPipe, **parts: Any) -> Self:
        pages = cls(cdp, **parts)
        try:
            await pages._start()
        except BaseException:
            await pages.close()
            raise
        return pages

    async def _start(self) -> None:
        # Chromium runs them in this order, so every target is held from its first request on.
        await asyncio.gather(self._interception.start(), self._downloads.start(), self._targets.start())
        self._tasks.start(self._until_ended(), "the browser's end is waited for")
        try:
            async with asyncio.timeout(START_SECONDS):
                if not len(self._tabs):
                    await self.new_tab()
                await self.active_tab().ready.wait()
        except TimeoutError as late:
            raise PageTimeout(f"the browser's first page was not ready within {START_SECONDS:g} s") from late

    async def close(self) -> None:
        self._closing = True
        self._live.close()
        await self._tasks.cancel()
        await self._downloads.close()
        await self._targets.close()
        await self._interception.close()
        for tab in self._tabs.all():
            tab.fail(BrowserEnded("the session was closed"))

    async def perform(self, action: Action) -> ActionOutcome:
        self._meter.spend_action(self._clock.monotonic())
        timeout = self._actions.timeout(action, self._clock.monotonic())
        async with self._turn(timeout):
            tab = self._acting_on(action)
            mark = self._mark()
            if isinstance(action, Evaluate) and not tab.load.commits:
                # Requests of the blank document from before the session are not held, so it is replaced.
                await self._navigator.navigate_with_guards(tab, BLANK, LoadState.COMMITTED, timeout)
            try:
                made, tab = await self._actions.do(tab, action, timeout)
            except TargetGone:
                if tab.tab in self._tabs:
                    raise
                # The page closed its own tab: the outcome describes the next one.
                made, tab = Made(), await self._next_tab()
            return await self._teller.tell(tab, mark, made, self._new_tabs(mark), active=tab.tab == self._tabs.active)

    async def observe(self, ask: ObserveAsk) -> ChromiumObserveSnapshot:
        self._meter.spend_action(self._clock.monotonic())
        budget = self._meter.budget
        most = min(ask.max_bytes or budget.max_observe_snapshot_bytes, budget.max_observe_snapshot_bytes)
        timeout = self._meter.timeout_ms(None, "max_action_timeout_ms", self._clock.monotonic()) / MS_PER_SECOND
        async with self._turn(timeout):
            tab = self.find_tab(ask.tab)
            self.require_no_dialog(tab)
            seen = await self.actor(tab).observe(ask, most, budget.max_visible_text_bytes)
            if not all(each.title_reported for each in self._tabs.all()):
                await self._targets.look()
            return msgspec.structs.replace(
                seen,
                tab=tab.tab,
                text=self._redact(seen.text),
                url=self._view(tab).url,
                title=self._view(tab).title,
                tabs=self.tabs(),
            )

    def tabs(self) -> tuple[TabView, ...]:
        return tuple(self._view(tab) for tab in self._tabs.all())

    def console_log(self) -> tuple[LogEntry, ...]:
        return self._logs.console.entries()

    def network_log(self) -> tuple[LogEntry, ...]:
        return self._logs.network.entries()

    def refusals(self, since: int = 0) -> tuple[Refusal, ...]:
        return self._refusals.since(since)

    @property
    def refused(self) -> int:
        return self._refusals.total

    async def cookies(self) -> tuple[dict[str, object], ...]:
        found = await self._cdp.send("Storage.getCookies")
        shown = ("name", "domain", "path", "expires", "httpOnly", "secure", "sameSite", "session")
        return tuple({name: each[name] for name in shown if name in each} for each in found["cookies"])

    @property
    def live(self) -> ScreencastView:
        return self._live

    def permissions(self) -> dict[str, tuple[str, ...]]:
        return dict(self._actions.granted)

    async def restore_permissions(self, granted: dict[str, tuple[str, ...]]) -> None:
        for origin, names in granted.items():
            await self._actions.set_permissions(origin, names)

    async def saved_tabs(self) -> tuple[TabState, ...]:
        async with self._order:
            first = self.active_tab()
            return await saved_tabs([first, *(tab for tab in self._tabs.all() if tab is not first)])

    async def restore_tabs(self, tabs: tuple[TabState, ...]) -> tuple[str, ...]:
        mark = self._refusals.total
        timeout = self._meter.budget.max_navigation_timeout_ms / MS_PER_SECOND
        async with self._order:
            await open_saved_tabs(self, self._navigator, tabs, timeout)
        return tuple(refusal.line for refusal in self._refusals.since(mark) if refusal.document)

    # The tabs.

    def active_tab(self) -> TabPage:
        return self._tabs.find("")

    def find_tab(self, tab: str) -> TabPage:
        return self._tabs.find(tab)

    def all_tabs(self) -> tuple[TabPage, ...]:
        return self._tabs.all()

    def actor(self, tab: TabPage) -> ElementActor:
        if tab.tab not in self._actors:
            self._actors[tab.tab] = self._actor_of(tab)
        return self._actors[tab.tab]

    def require_no_dialog(self, tab: TabPage) -> None:
        dialog = tab.dialog()
        if dialog is not None:
            text = self._redact(dialog.message)
            raise DialogOpen(f"tab {tab.tab} shows a dialog ({dialog.kind}): {text[:200]!r}", kind=dialog.kind)

    async def new_tab(self) -> TabPage:
        self._tabs.require_room()
        made = await self._cdp.send("Target.createTarget", {"url": BLANK})
        tab = self._targets.tab_of(str(made["targetId"]))
        if tab is None:
            raise TargetGone("the new tab went away at once")
        await tab.ready.wait()
        return tab

    async def activate(self, tab: TabPage) -> None:
        self._tabs.active = tab.tab
        await self._cdp.send("Target.activateTarget", {"targetId": tab.target_id})
        await self._live.follow()

    async def end_tab(self, tab: TabPage) -> None:
        """Close the tab without asking the page, which may not want to go."""
        if len(self._tabs) == 1:
            await self.activate(await self.new_tab())
        await self._cdp.send("Target.closeTarget", {"targetId": tab.target_id})
        with suppress(TargetGone):
            await tab.until(lambda: tab.failure is not None, START_SECONDS)

    # Reports of targets and tabs.

    def on_tab_opened(self, target_id: str, session_id: str, opener_target: str) -> TabPage | None:
        opener = self._targets.tab_of(opener_target)

        def make(name: str) -> TabPage:
            by, binding = opener.tab if opener is not None else "", self._script.binding
            return TabPage(self._cdp, name, target_id, session_id, self.committed, by, binding=binding)

        return self._tabs.add(make)

    def on_tab_closed(self, tab: TabPage) -> None:
        self._actors.pop(tab.tab, None)
        was_active = self._tabs.active == tab.tab
        self._tabs.remove(tab)
        if was_active and not self._closing:
            self._tasks.start(self._next_tab(), "another tab is made active")

    def setup(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        viewport = self._actions.viewport
        return (("Emulation.setDeviceMetricsOverride", viewport),) if viewport else ()

    def on_event(self, tab: TabPage | None, event: CdpEvent) -> None:
        name = tab.tab if tab is not None else ""
        self._logs.on_event(event.method, event.params, name, self._clock.now_ms())
        self._downloads.on_event(event)
        self._live.on_event(tab, event)
        if event.method == "Network.webSocketCreated":
            url = str(event.params["url"])
            code = self._interception.look_at(url, tab.target_id if tab is not None else "")
            self._logs.add_socket(url, code or "opened", name, self._clock.now_ms())
        elif event.method == "Network.requestWillBeSent" and event.params.get("type") == "Prefetch":
            self._interception.look_at(str(event.params["request"]["url"]), str(event.params.get("frameId", "")))

    def committed(self, tab: TabPage, url: str, loader_id: str) -> None:
        if shows_forbidden(url):
            refused = SchemeRefused(f"a tab may not show {render_address(self._redact(url))!r}")
            self._refusals.add(url, refused, frame=tab.target_id, document=True)
            self._tasks.start(self._leave(tab), "a tab leaves what it may not show")
        elif kind_of(url) is AddressKind.WEB and not self._interception.was_judged(loader_id):
            # It came from a cache or a worker of the site: it was not intercepted, and is judged now.
            self._tasks.start(self._judge_document(tab, url), "a shown document is judged")

    @asynccontextmanager
    async def _turn(self, timeout: float) -> AsyncIterator[None]:  # noqa: ASYNC109
        """Run one action at a time, in order of the requests, and none while a person has the session."""
        deadline = self._clock.monotonic() + timeout
        while True:
            await self._live.agents_turn(max(0.0, deadline - self._clock.monotonic()))
            async with self._order:
                # A person may have taken the session over while this action waited.
                if self._live.taken_by:
                    continue
                try:
                    async with asyncio.timeout(timeout + GRACE_SECONDS):
                        yield
                except TimeoutError as late:
                    raise PageTimeout(f"the page did not do it within {timeout:.1f} s") from late
                return

    async def _quiet(self) -> None:
        async with self._order:
            return

    def _acting_on(self, action: Action) -> TabPage:
        tab = self.find_tab(action.tab)
        if not isinstance(action, PAST_DIALOGS):
            self.require_no_dialog(tab)
        return tab

    def _mark(self) -> Mark:
        return Mark(
            refusals=self._refusals.total,
            console=self._logs.console.total,
            downloads=len(self._downloads.begun),
            tabs=self._tabs.given,
        )

    def _new_tabs(self, mark: Mark) -> tuple[TabPage, ...]:
        return self._tabs.since(mark.tabs)

    def _view(self, tab: TabPage) -> TabView:
        return self._teller.view(tab, active=tab.tab == self._tabs.active)

    async def _next_tab(self) -> TabPage:
        """Activate another tab after the active one has gone. Open a blank one if no tab is left."""
        async with self._replacing:
            if not len(self._tabs):
                await self.new_tab()
            await self.activate(self.active_tab())
            return self.active_tab()

    async def _leave(self, tab: TabPage) -> None:
        await self._cdp.send("Page.navigate", {"url": BLANK}, tab.session_id)

    async def _judge_document(self, tab: TabPage, url: str) -> None:
        try:
            await self._interception.judge_document(url, frame=tab.target_id)
        except PalyraError:
            await self._leave(tab)

    async def _until_ended(self) -> None:
        await self._cdp.closed.wait()
        why = self._cdp.failure or BrowserEnded("Chromium ended")
        for tab in self._tabs.all():
            tab.fail(why)
