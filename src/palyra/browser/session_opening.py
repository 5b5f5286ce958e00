"""The beginning of a session: its profile, its browser, its guard, its pages, in this order; all of it or nothing."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from palyra.browser import session_log as log
from palyra.browser.action import SetViewport
from palyra.browser.browser_session import BrowserSession, SessionParts
from palyra.browser.budget import SessionBudget, SessionMeter, clamp
from palyra.browser.chromium_process import ChromiumProcess
from palyra.browser.download import DownloadRules
from palyra.browser.download_folder import DownloadSandboxSession
from palyra.browser.download_record import DownloadRecord
from palyra.browser.profile_record import BrowserProfileRecord, PersistedSessionSnapshot
from palyra.browser.profile_store import ProfileStore
from palyra.browser.session_cookies import restore
from palyra.browser.session_folders import SessionFolders
from palyra.browser.session_grant import grant_for
from palyra.browser.session_log import SessionLog
from palyra.browser.session_ports import Browsers, Guards, OpensPages, PagesNeeds, SessionMetrics
from palyra.browser.session_view import Caller, SessionAsk
from palyra.clock import Clock
from palyra.egress.events import EgressEvent
from palyra.errors import PalyraError
from palyra.journal.redact import Redactor


class SessionMaker(msgspec.Struct, kw_only=True):
    """What every session of a daemon is made with."""

    browsers: Browsers
    guards: Guards
    open_pages: OpensPages
    store: ProfileStore
    folders: SessionFolders
    clock: Clock
    metrics: SessionMetrics
    ceiling: SessionBudget
    download_rules: DownloadRules

    async def open(
        self, session_id: str, caller: Caller, ask: SessionAsk, profile: BrowserProfileRecord | None
    ) -> BrowserSession:
        budget = clamp(ask.budget, self.ceiling)
        grant = grant_for(session_id, caller, ask, budget)
        snapshot = None
        if profile is not None:
            snapshot = await asyncio.to_thread(self.store.load, caller.principal, profile.profile_id)
        redactor = Redactor()
        journal = SessionLog(self.clock.now_ms, redactor.text)
        told = _Told()
        async with AsyncExitStack() as undo:
            process = await self._browser(snapshot)
            undo.push_async_callback(partial(process.close, graceful=False))
            guard = self.guards.serve(process.take_guard(), grant, told)
            undo.push_async_callback(guard.close)
            undo.callback(self.folders.remove, session_id)
            downloads = await asyncio.to_thread(self._downloads, session_id, process, budget, _telling(journal))
            meter = SessionMeter(budget, self.clock.monotonic())
            judge = self.guards.judge(grant)
            pages = await self.open_pages(
                PagesNeeds(
                    process=process,
                    judge=judge,
                    meter=meter,
                    downloads=downloads,
                    redact=redactor.text,
                    allow_evaluate=ask.allow_evaluate,
                )
            )
            undo.push_async_callback(pages.close)
            parts = SessionParts(
                session_id=session_id,
                principal=caller.principal,
                ask=ask,
                meter=meter,
                process=process,
                guard=guard,
                pages=pages,
                judge=judge,
                downloads=downloads,
                redactor=redactor,
                log=journal,
                profile=profile,
            )
            session = BrowserSession(parts, self.clock, self.metrics)
            told.hear = session.egress_happened
            journal.add(log.OPENED, text=ask.label, caller=caller)
            await _as_it_was(session, snapshot)
            if ask.viewport_width and ask.viewport_height:
                await pages.perform(SetViewport(width=ask.viewport_width, height=ask.viewport_height))
            undo.pop_all()
        return session

    async def _browser(self, snapshot: PersistedSessionSnapshot | None) -> ChromiumProcess:
        return await (self.browsers.blank() if snapshot is None else self.browsers.with_profile(snapshot.archive))

    def _downloads(
        self, session_id: str, process: ChromiumProcess, budget: SessionBudget, told: "Ended"
    ) -> DownloadSandboxSession:
        return _RecordedDownloads(
            self.folders.of(session_id),
            process.downloads,
            budget=budget,
            rules=self.download_rules,
            now_ms=self.clock.now_ms,
            told=told,
        )


Ended = Callable[[DownloadRecord], None]


class _Told:
    """The guard is served before there is a session to hear of it; until then there are no pages either."""

    def __init__(self) -> None:
        self.hear: Callable[[EgressEvent], None] | None = None

    def __call__(self, event: EgressEvent) -> None:
        if self.hear is not None:
            self.hear(event)


class _RecordedDownloads(DownloadSandboxSession):
    """Tells of each that ended, on whichever thread that happens."""

    def __init__(self, root: Path, incoming: Path, *, told: Ended, **more: Any) -> None:
        self._told = told
        super().__init__(root, incoming, **more)

    def finish(self, guid: str, *, complete: bool) -> DownloadRecord:
        record = super().finish(guid, complete=complete)
        self._told(record)
        return record


def _telling(journal: SessionLog) -> Ended:
    loop = asyncio.get_running_loop()

    def add(record: DownloadRecord) -> None:
        reasons = ", ".join(record.reasons)
        text = f"{record.id} {record.digest} {record.name}: {record.folder}" + (f" ({reasons})" if reasons else "")
        journal.add(log.DOWNLOADED, text=text, code=str(record.reasons[0]) if record.reasons else "")

    def told(record: DownloadRecord) -> None:
        loop.call_soon_threadsafe(add, record)

    return told


async def _as_it_was(session: BrowserSession, snapshot: PersistedSessionSnapshot | None) -> None:
    """What the last session left. What cannot be had again is on record, and no reason not to begin."""
    if snapshot is None:
        return
    parts = session.parts
    try:
        await restore(parts.process.cdp, snapshot.session_cookies)
        await parts.pages.restore_permissions(snapshot.permissions)
        refused = await parts.pages.restore_tabs(snapshot.tabs)
    except PalyraError as problem:
        if not parts.process.alive:
            raise
        parts.log.add(log.NOT_RESTORED, text=problem.message, code=problem.code)
        return
    for each in refused:
        parts.log.add(log.NOT_RESTORED, text=each)
