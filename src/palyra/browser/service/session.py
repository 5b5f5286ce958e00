"""One session: its owner, budget, browser and pages. Every request to it is counted and on record."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from palyra.browser.domain import limits
from palyra.browser.domain import session_api as log
from palyra.browser.domain.action import (
    Action,
    ActionOutcome,
    ChromiumObserveSnapshot,
    ObserveAsk,
    Screenshot,
    SetFileInput,
    Type,
)
from palyra.browser.domain.budget import BudgetSpent, SessionBudget, SessionMeter
from palyra.browser.domain.download import DownloadRecord
from palyra.browser.domain.page_address import Redact, RequestJudge
from palyra.browser.domain.profile import BrowserProfileRecord
from palyra.browser.domain.session_api import (
    ActReport,
    BadRequest,
    Caller,
    HealthView,
    LiveFrame,
    OperatorInput,
    SessionAsk,
    SessionEvent,
    SessionLog,
    SessionState,
    SessionView,
    WatchAsk,
)
from palyra.browser.engine.chromium import ChromiumProcess
from palyra.browser.service.chromium_session_proxy import SessionListener
from palyra.browser.tabs.download_folder import DownloadSandboxSession
from palyra.browser.tabs.screencast import TooManyWatchers
from palyra.browser.tabs.session_tabs import ChromiumPages
from palyra.clock import MS_PER_SECOND, Clock
from palyra.egress.domain.events import EgressEvent
from palyra.errors import PalyraError
from palyra.journal.redaction import Redactor

HealthOf = Callable[[], HealthView]


class Browsers(Protocol):
    async def blank(self) -> ChromiumProcess:
        """Return a browser with an empty profile, from those that are ready if there is one."""
        ...

    async def with_profile(self, archive: bytes) -> ChromiumProcess: ...


class PagesNeeds(msgspec.Struct, frozen=True, kw_only=True):
    process: ChromiumProcess
    judge: RequestJudge
    meter: SessionMeter
    downloads: DownloadSandboxSession
    redact: Redact
    allow_evaluate: bool


# The pages are ready for the first action, and every request is judged from the first one on.
OpenPages = Callable[[PagesNeeds], Awaitable[ChromiumPages]]


class SessionMetrics(Protocol):
    """Counts with closed sets of labels."""

    def opened(self) -> None: ...

    def closed(self, reason: str) -> None: ...

    def acted(self, kind: str, code: str) -> None: ...

    def egress(self, event: EgressEvent) -> None: ...


_GOOD: Final = ""


@dataclass(kw_only=True, eq=False)
class BrowserSession:
    """``profile`` is None for a session that starts empty and keeps nothing."""

    session_id: str
    principal: str
    ask: SessionAsk
    meter: SessionMeter
    process: ChromiumProcess
    guard: SessionListener
    pages: ChromiumPages
    judge: RequestJudge
    downloads: DownloadSandboxSession
    redactor: Redactor
    log: SessionLog
    clock: Clock
    metrics: SessionMetrics
    profile: BrowserProfileRecord | None = None

    def __post_init__(self) -> None:
        self.closing = False
        self.over = asyncio.Event()
        self._created_ms = self.clock.now_ms()
        self._began = self.clock.monotonic()
        self._used = self._began
        self._watchers = 0
        self._download_lock = asyncio.Lock()

    @property
    def persistent(self) -> bool:
        return self.profile is not None and self.profile.persistence and not self.profile.private

    def why_over(self) -> str | None:
        return self.meter.why_over(self.clock.monotonic())

    def use(self) -> None:
        """Count a use. Raise when the session's time is up, or its browser gone."""
        now = self.clock.monotonic()
        self.meter.use(now)
        self._used = now
        if (failure := self.process.failure) is not None:
            raise type(failure)(failure.message)

    def view(self) -> SessionView:
        budget = self.meter.budget
        taken_by = self.pages.live.taken_by
        state = SessionState.TAKEN_OVER if taken_by else SessionState.OPEN
        return SessionView(
            session_id=self.session_id,
            principal=self.principal,
            state=SessionState.CLOSING if self.closing else state,
            created_ms=self._created_ms,
            ends_ms=self._created_ms + budget.max_session_lifetime_ms,
            idle_ends_ms=self._created_ms + round((self._used - self._began) * MS_PER_SECOND) + budget.idle_ttl_ms,
            label=self.ask.label,
            profile_id=self.profile.profile_id if self.profile else "",
            persistent=self.persistent,
            budget=msgspec.structs.asdict(budget),
            spent=self._spent(),
            hosts=self.ask.hosts,
            private_targets=self.ask.private_targets,
            any_public_host=self.ask.any_public_host,
            allow_evaluate=self.ask.allow_evaluate,
            tabs=self.pages.tabs(),
            fences_json=msgspec.json.encode(self.process.receipt),
            fences_waived=tuple(map(str, self.process.receipt.waived)),
            product=self.process.product,
            operator=taken_by,
        )

    async def act(self, caller: Caller, actions: Sequence[Action], *, picture_on_failure: bool = False) -> ActReport:
        outcomes: list[ActionOutcome] = []
        for action in actions:
            try:
                outcomes.append(await self.perform(caller, action))
            except PalyraError as problem:
                picture = await self._picture() if picture_on_failure else None
                return ActReport(outcomes=tuple(outcomes), problem=problem, picture=picture)
        return ActReport(outcomes=tuple(outcomes))

    async def perform(self, caller: Caller, action: Action) -> ActionOutcome:
        kind = str(action.__struct_config__.tag)
        try:
            self.use()
            self._require_allowed(action)
            if isinstance(action, Type) and action.secret is not None:
                self.redactor.register(action.secret)
            outcome = await self.pages.perform(action)
            if outcome.media_type.startswith("image/"):
                self.meter.require("max_screenshot_bytes", len(outcome.content))
        except PalyraError as problem:
            self.metrics.acted(kind, problem.code)
            self.log.add(log.ACTED, text=kind, code=problem.code, tab=action.tab, caller=caller)
            raise
        self.metrics.acted(kind, _GOOD)
        self.log.add(log.ACTED, text=f"{kind} at {outcome.url}", tab=outcome.tab, caller=caller)
        return outcome

    async def observe(self, caller: Caller, ask: ObserveAsk) -> ChromiumObserveSnapshot:
        try:
            self.use()
            snapshot = await self.pages.observe(ask)
        except PalyraError as problem:
            self.metrics.acted("observe", problem.code)
            self.log.add(log.OBSERVED, code=problem.code, tab=ask.tab, caller=caller)
            raise
        self.metrics.acted("observe", _GOOD)
        self.log.add(log.OBSERVED, text=snapshot.url, tab=snapshot.tab, caller=caller)
        return snapshot

    # Downloads.

    async def read_download(self, download_id: str) -> bytes:
        async with self._download_lock:
            return await asyncio.to_thread(self.downloads.read, download_id)

    async def release_download(self, caller: Caller, download_id: str) -> DownloadRecord:
        async with self._download_lock:
            record = await asyncio.to_thread(self.downloads.release, download_id, caller.operator)
        self.log.add(log.DOWNLOAD_RELEASED, text=f"{record.id} {record.digest} {record.name}", caller=caller)
        return record

    async def delete_download(self, caller: Caller, download_id: str) -> DownloadRecord:
        async with self._download_lock:
            record = await asyncio.to_thread(self.downloads.delete, download_id)
        self.log.add(log.DOWNLOAD_DELETED, text=f"{record.id} {record.digest} {record.name}", caller=caller)
        return record

    # People.

    async def take_over(self, caller: Caller, reason: str) -> None:
        await self.pages.live.take_over(caller.operator)
        self.log.add(log.TAKEN_OVER, text=reason, caller=caller)

    def hand_back(self, caller: Caller) -> None:
        self.pages.live.hand_back(caller.operator)
        self.log.add(log.HANDED_BACK, caller=caller)

    async def operate(self, caller: Caller, inputs: Sequence[OperatorInput]) -> None:
        self.use()
        for given in inputs:
            await self.pages.live.operate(caller.operator, given)
        # The typed text is the person's own: it is counted, not shown.
        kinds = ", ".join(dict.fromkeys(given.does.value for given in inputs))
        self.log.add(log.OPERATED, text=f"{len(inputs)}: {kinds}", caller=caller)

    async def watch(self, ask: WatchAsk) -> AsyncIterator[LiveFrame | SessionEvent]:
        """Yield events in order and without gaps, and pictures, until the session is over. This is not a use of it."""
        if self._watchers >= limits.MAX_WATCHERS:
            raise TooManyWatchers(f"{self._watchers} others watch this session")
        waiting: asyncio.Queue[LiveFrame | SessionEvent | None] = asyncio.Queue()
        showing: asyncio.Task[None] | None = None
        over = asyncio.create_task(self._tell_end(waiting), name="the end of a watched session")
        stop = self.log.subscribe(lambda event: _offer(waiting, event))
        self._watchers += 1
        try:
            for event in self.log.after(ask.events_after):
                yield event
            if ask.frames:
                showing = asyncio.create_task(self._show(waiting), name="pictures of a session")
            while (seen := await waiting.get()) is not None:
                yield seen
        finally:
            self._watchers -= 1
            stop()
            for task in (over, showing):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, PalyraError):
                        await task

    async def _show(self, waiting: "asyncio.Queue[LiveFrame | SessionEvent | None]") -> None:
        async for frame in self.pages.live.frames():
            # A watcher that has not taken the last pictures gets no more of them.
            if waiting.empty():
                waiting.put_nowait(frame)

    async def _tell_end(self, waiting: "asyncio.Queue[LiveFrame | SessionEvent | None]") -> None:
        await self.over.wait()
        waiting.put_nowait(None)

    def _require_allowed(self, action: Action) -> None:
        if isinstance(action, SetFileInput):
            size = sum(len(each.content) for each in action.files)
            if size > limits.MAX_UPLOAD_BYTES:
                raise BadRequest(f"{size} bytes cannot be uploaded at once; at most {limits.MAX_UPLOAD_BYTES}")
        budget: SessionBudget = self.meter.budget
        moved = self.guard.moved()
        if moved >= budget.max_network_bytes:
            raise BudgetSpent(f"the session moved its {moved} bytes", field="max_network_bytes")

    async def _picture(self) -> ActionOutcome | None:
        try:
            return await self.pages.perform(Screenshot())
        except PalyraError:
            return None

    def _spent(self) -> dict[str, int]:
        return {
            "max_actions_per_session": self.meter.actions,
            "max_tabs_per_session": len(self.pages.tabs()),
            "max_network_bytes": self.guard.moved(),
            "max_session_downloads": self.downloads.files_kept,
            "max_session_download_bytes": self.downloads.bytes_kept,
        }


def _offer(waiting: "asyncio.Queue[Any]", event: SessionEvent) -> None:
    """Queue an event. A watcher that reads nothing is disconnected at the limit of its queue."""
    if waiting.qsize() >= limits.MAX_WAITING_EVENTS:
        waiting.put_nowait(None)
    else:
        waiting.put_nowait(event)
