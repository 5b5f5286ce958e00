"""The beginning and the end of a session."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from palyra.browser.domain import limits
from palyra.browser.domain import session_api as log
from palyra.browser.domain.action import SetViewport
from palyra.browser.domain.budget import SessionBudget, SessionMeter, clamp
from palyra.browser.domain.download import DownloadRecord, DownloadRules
from palyra.browser.domain.profile import BrowserProfileRecord, PersistedSessionSnapshot
from palyra.browser.domain.session_api import Caller, CloseReport, SessionAsk, SessionLog
from palyra.browser.engine.chromium import ChromiumProcess
from palyra.browser.profiles.archive import pack
from palyra.browser.profiles.store import ProfileStore
from palyra.browser.service.chromium_session_proxy import ChromiumSessionProxy
from palyra.browser.service.session import (
    Browsers,
    BrowserSession,
    OpenPages,
    PagesNeeds,
    SessionMetrics,
)
from palyra.browser.service.storage_transfer import read_session_cookies, restore
from palyra.browser.tabs.download_folder import DownloadSandboxSession, SessionFolders
from palyra.clock import Clock
from palyra.egress.domain.events import EgressEvent, Refused
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.request_rules import RequestRule
from palyra.egress.domain.rules import HostRule, is_within, parse_rules
from palyra.errors import Failed, InvalidInput, PalyraError
from palyra.journal.redaction import Redactor

_LOG = logging.getLogger(__name__)


class NotSaved(Failed):
    code = "browser.profile_not_saved"
    hint = "the profile is as the session before left it; close sessions before the machine is too busy to let them end"


async def end_session(session: BrowserSession, store: ProfileStore, *, discard: bool) -> CloseReport:
    """End everything of the session, in every case, and save its profile if it persists."""
    keep = session.persistent and not discard
    archives: list[bytes] = []
    state = PersistedSessionSnapshot(archive=b"")

    async def archive(folder: Path) -> None:
        archives.append(await asyncio.to_thread(pack, folder))

    problem: PalyraError | None = None
    clean = False
    try:
        if keep and session.process.alive:
            state = await _read_state(session)
        await _quietly(session.pages.close(), "the pages of a session")
        clean = await session.process.close(graceful=keep, archive=archive if keep else None)
    except PalyraError as failure:
        problem = failure
    finally:
        await _quietly(session.guard.close(), "the guard of a session")
    if not keep:
        return CloseReport()
    if problem is None and not clean:
        problem = NotSaved("the browser had to be killed, and had not written all of its profile")
    if problem is None:
        try:
            return await _save(session, store, replace(state, archive=archives[0]))
        except PalyraError as failure:
            problem = failure
    return CloseReport(problem_code=problem.code, problem_message=problem.message)


async def _read_state(session: BrowserSession) -> PersistedSessionSnapshot:
    """Read the state to keep. A page that hangs, or lies, costs its tabs and not the profile."""
    pages, state = session.pages, PersistedSessionSnapshot(archive=b"")
    try:
        async with asyncio.timeout(limits.READ_STATE_SECONDS):
            state = replace(state, session_cookies=await read_session_cookies(session.process.cdp))
            state = replace(state, permissions=pages.permissions())
            state = replace(state, tabs=await pages.saved_tabs())
    except (PalyraError, TimeoutError) as problem:
        _LOG.warning("a session's tabs could not be kept: %s", problem)
    return state


async def _save(session: BrowserSession, store: ProfileStore, state: PersistedSessionSnapshot) -> CloseReport:
    profile = session.profile
    assert profile is not None
    saved = await asyncio.to_thread(store.save, session.principal, profile.profile_id, state, based_on=profile.revision)
    return CloseReport(saved=True, revision=saved.revision)


async def _quietly(closing: object, what: str) -> None:
    try:
        await closing  # type: ignore[misc]
    except PalyraError as problem:
        _LOG.warning("%s did not close well: %s", what, problem.message)


TOOL = "browser"


class BadSessionHosts(InvalidInput):
    code = "browser.bad_hosts"
    hint = "hosts are rules as in egress.allowed_hosts; a private target is one of them, by its full name and its port"


def grant_for(
    session_id: str,
    caller: Caller,
    ask: SessionAsk,
    budget: SessionBudget,
    request_rules: tuple[RequestRule, ...] = (),
) -> EgressGrant:
    if len(ask.hosts) + len(ask.private_targets) > limits.MAX_HOST_RULES:
        raise BadSessionHosts(f"a session has at most {limits.MAX_HOST_RULES} rules for hosts")
    rules = parse_rules(ask.hosts)
    private = parse_rules(ask.private_targets)
    for rule in private:
        _require_named(rule, rules)
    return EgressGrant(
        grant_id=session_id,
        principal=caller.principal,
        run=caller.run_id,
        call=caller.call_id,
        tool=TOOL,
        rules=rules,
        private_targets=private,
        request_rules=request_rules,
        any_public_host=ask.any_public_host,
        max_bytes=budget.max_network_bytes,
        max_tunnels=limits.MAX_CONNECTIONS,
    )


def _require_named(rule: HostRule, rules: tuple[HostRule, ...]) -> None:
    if rule.below or rule.port is None:
        raise BadSessionHosts(f"the private target {rule} has to be one host with its port")
    if not is_within(rule, rules):
        raise BadSessionHosts(f"the private target {rule} is not among the session's hosts")


class SessionMaker(msgspec.Struct, kw_only=True):
    """Opens sessions: profile, browser, guard, pages, in this order, all of it or nothing."""

    browsers: Browsers
    guards: ChromiumSessionProxy
    open_pages: OpenPages
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
        grant = grant_for(session_id, caller, ask, budget, self.guards.request_rules)
        snapshot = None
        if profile is not None:
            snapshot = await asyncio.to_thread(self.store.load, caller.principal, profile.profile_id)
        redactor = Redactor()
        journal = SessionLog(self.clock.now_ms, redactor.text)
        async with AsyncExitStack() as undo:
            process = await self._browser(snapshot)
            undo.push_async_callback(partial(process.close, graceful=False))
            guard = self.guards.serve(process.take_guard(), grant, _egress_reporter(journal, self.metrics))
            undo.push_async_callback(guard.close)
            undo.callback(self.folders.remove, session_id)
            downloads = await asyncio.to_thread(
                DownloadSandboxSession,
                self.folders.of(session_id),
                process.downloads,
                budget=budget,
                rules=self.download_rules,
                now_ms=self.clock.now_ms,
                on_finish=_download_reporter(journal),
            )
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
            session = BrowserSession(
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
                clock=self.clock,
                metrics=self.metrics,
                profile=profile,
            )
            journal.add(log.OPENED, text=ask.label, caller=caller)
            await _restore(session, snapshot)
            if ask.viewport_width and ask.viewport_height:
                await pages.perform(SetViewport(width=ask.viewport_width, height=ask.viewport_height))
            undo.pop_all()
        return session

    async def _browser(self, snapshot: PersistedSessionSnapshot | None) -> ChromiumProcess:
        return await (self.browsers.blank() if snapshot is None else self.browsers.with_profile(snapshot.archive))


def _egress_reporter(journal: SessionLog, metrics: SessionMetrics) -> Callable[[EgressEvent], None]:
    def report(event: EgressEvent) -> None:
        metrics.egress(event)
        if isinstance(event, Refused):
            refusal = event.refusal
            journal.add(log.REFUSED, text=f"{refusal.host}:{refusal.port} {refusal.detail}", code=refusal.code)

    return report


def _download_reporter(journal: SessionLog) -> Callable[[DownloadRecord], None]:
    loop = asyncio.get_running_loop()

    def add(record: DownloadRecord) -> None:
        reasons = ", ".join(record.reasons)
        text = f"{record.id} {record.digest} {record.name}: {record.folder}" + (f" ({reasons})" if reasons else "")
        journal.add(log.DOWNLOADED, text=text, code=str(record.reasons[0]) if record.reasons else "")

    def report(record: DownloadRecord) -> None:
        loop.call_soon_threadsafe(add, record)

    return report


async def _restore(session: BrowserSession, snapshot: PersistedSessionSnapshot | None) -> None:
    """Restore the state of the last session. A failure is recorded, and the session begins without it."""
    if snapshot is None:
        return
    try:
        await restore(session.process.cdp, snapshot.session_cookies)
        await session.pages.restore_permissions(snapshot.permissions)
        refused = await session.pages.restore_tabs(snapshot.tabs)
    except PalyraError as problem:
        if not session.process.alive:
            raise
        session.log.add(log.NOT_RESTORED, text=problem.message, code=problem.code)
        return
    for each in refused:
        session.log.add(log.NOT_RESTORED, text=each)
