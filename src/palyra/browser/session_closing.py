"""The end of a session: its last words, its browser, its guard, and what its profile keeps."""

import asyncio
import logging
from pathlib import Path

from palyra.browser import service_limits as limits
from palyra.browser.browser_session import BrowserSession
from palyra.browser.profile_archive import pack
from palyra.browser.profile_record import PersistedSessionSnapshot, TabState
from palyra.browser.profile_store import ProfileStore
from palyra.browser.session_cookies import forgettable
from palyra.browser.session_view import CloseReport
from palyra.errors import Failed, PalyraError

log = logging.getLogger(__name__)


class NotSaved(Failed):
    code = "browser.profile_not_saved"
    hint = "the profile is as the session before left it; close sessions before the machine is too busy to let them end"


class _LastWords:
    tabs: tuple[TabState, ...] = ()
    permissions: dict[str, tuple[str, ...]]
    session_cookies: bytes = b""

    def __init__(self) -> None:
        self.permissions = {}


async def end_session(session: BrowserSession, store: ProfileStore, *, discard: bool) -> CloseReport:
    """Everything of it is gone when this returns, whatever happened on the way."""
    parts = session.parts
    keep = session.persistent and not discard
    archives: list[bytes] = []
    words = _LastWords()

    async def archive(folder: Path) -> None:
        archives.append((await asyncio.to_thread(pack, folder)).archive)

    problem: PalyraError | None = None
    clean = False
    try:
        if keep and parts.process.alive:
            words = await _last_words(session)
        await _quietly(parts.pages.close(), "the pages of a session")
        clean = await parts.process.close(graceful=keep, archive=archive if keep else None)
    except PalyraError as failure:
        problem = failure
    finally:
        await _quietly(parts.guard.close(), "the guard of a session")
    if not keep:
        return CloseReport()
    if problem is None and not clean:
        problem = NotSaved("the browser had to be killed, and had not written all of its profile")
    if problem is None:
        try:
            return await _save(session, store, archives[0], words)
        except PalyraError as failure:
            problem = failure
    return CloseReport(problem_code=problem.code, problem_message=problem.message)


async def _last_words(session: BrowserSession) -> _LastWords:
    """A page that hangs, or lies, costs its tabs and not the profile."""
    pages, words = session.parts.pages, _LastWords()
    try:
        async with asyncio.timeout(limits.LAST_WORDS_SECONDS):
            words.session_cookies = await forgettable(session.parts.process.cdp)
            words.permissions = pages.permissions()
            words.tabs = await pages.saved_tabs()
    except (PalyraError, TimeoutError) as problem:
        log.warning("a session's tabs could not be kept: %s", problem)
    return words


async def _save(session: BrowserSession, store: ProfileStore, archive: bytes, words: _LastWords) -> CloseReport:
    profile = session.parts.profile
    assert profile is not None
    snapshot = PersistedSessionSnapshot(
        archive=archive, tabs=words.tabs, permissions=words.permissions, session_cookies=words.session_cookies
    )
    saved = await asyncio.to_thread(
        store.save, session.principal, profile.profile_id, snapshot, based_on=profile.revision
    )
    return CloseReport(saved=True, revision=saved.revision)


async def _quietly(closing: object, what: str) -> None:
    try:
        await closing  # type: ignore[misc]
    except PalyraError as problem:
        log.warning("%s did not close well: %s", what, problem.message)
