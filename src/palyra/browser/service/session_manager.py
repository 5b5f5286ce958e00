"""All sessions of the daemon: their owners, their number, and their ends by time, by crash and by request."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from palyra.browser.domain import limits, session_api
from palyra.browser.domain.budget import OVER, SessionOver
from palyra.browser.domain.session_api import BadRequest, Caller, CloseReport, NoSuchSession, SessionAsk
from palyra.browser.service.session import BrowserSession
from palyra.browser.service.session_lifecycle import SessionMaker, end_session
from palyra.errors import Failed, LimitExceeded, PalyraError, Unavailable
from palyra.ids import Ulid

log = logging.getLogger(__name__)

# Why sessions end: a closed set, for metrics and records.
ON_REQUEST: Final = "asked"
STOPPED: Final = "stopped"
CRASHED: Final = "crashed"


class SessionId(Ulid):
    __slots__ = ()
    noun = "session id"


class TooManySessions(LimitExceeded):
    code = "browser.too_many_sessions"
    hint = "close sessions that are not needed; the operator sets browser.max_sessions and their share per principal"


class ProfileInUse(Failed):
    code = "browser.profile_in_use"
    hint = "a profile is used by one session at a time: close that one first"
    http_status = 409


class Stopping(Unavailable):
    code = "browser.stopping"
    hint = "the browser daemon is ending; try again when it is back"


class SessionManager:
    def __init__(
        self,
        maker: SessionMaker,
        *,
        max_sessions: int = limits.MAX_SESSIONS,
        max_per_principal: int = limits.MAX_SESSIONS_PER_PRINCIPAL,
    ) -> None:
        self._maker = maker
        self._max_sessions = max_sessions
        self._max_per_principal = max_per_principal
        self._sessions: dict[str, BrowserSession] = {}
        # The principals of taken places, from before a session exists until everything of it is gone.
        self._places: dict[str, str] = {}
        self._profiles: dict[str, str] = {}
        self._ends: dict[str, asyncio.Task[CloseReport]] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._ended: OrderedDict[str, tuple[str, PalyraError]] = OrderedDict()
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(self._sweep_for_ever(), name="browser sessions are swept")
        try:
            yield
        finally:
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            await self.close_all()

    def __len__(self) -> int:
        return len(self._sessions)

    def session_of_profile(self, profile_id: str) -> str:
        return self._profiles.get(profile_id, "")

    def sessions(self, caller: Caller) -> list[BrowserSession]:
        """List the caller's sessions. An operator gets those of all, or of the named principal."""
        every = self._sessions.values()
        if caller.operator and not caller.principal:
            return list(every)
        return [each for each in every if each.principal == caller.principal]

    def find(self, caller: Caller, session_id: str) -> BrowserSession:
        session = self._sessions.get(session_id)
        if session is None or not (caller.operator or session.principal == caller.principal):
            self._refuse_ended(caller, session_id)
            raise NoSuchSession(f"there is no session {session_id[:40]!r}")
        reason = session.why_over()
        if reason is not None:
            self._begin_end(session, reason)
            raise _over(reason)
        if session.closing:
            self._refuse_ended(caller, session_id)
            raise NoSuchSession(f"there is no session {session_id[:40]!r}")
        return session

    async def create(self, caller: Caller, ask: SessionAsk) -> BrowserSession:
        self._refuse_stopping()
        if len(ask.label) > limits.MAX_LABEL_CHARS or not (ask.label.isprintable() or not ask.label):
            raise BadRequest(f"a label is one line of at most {limits.MAX_LABEL_CHARS} characters")
        profile = self._maker.store.get(caller.principal, ask.profile_id) if ask.profile_id else None
        session_id = str(SessionId.new())
        self._reserve(session_id, caller.principal, ask.profile_id)
        try:
            session = await self._maker.open(session_id, caller, ask, profile)
        except BaseException:
            self._give_back(session_id)
            raise
        self._sessions[session_id] = session
        self._watching[session_id] = asyncio.create_task(self._watch(session), name="a browser session is watched")
        self._maker.metrics.opened()
        # The stop may have begun while the session was opened.
        if self._stopping:
            await self.close(session, reason=STOPPED)
        self._refuse_stopping()
        return session

    def _refuse_stopping(self) -> None:
        if self._stopping:
            raise Stopping("no session is opened any more")

    async def close(self, session: BrowserSession, *, discard: bool = False, reason: str = ON_REQUEST) -> CloseReport:
        return await asyncio.shield(self._begin_end(session, reason, discard=discard))

    async def close_all(self) -> None:
        self._stopping = True
        ends = [self._begin_end(session, STOPPED) for session in tuple(self._sessions.values())]
        if ends or self._ends:
            await asyncio.wait({*ends, *self._ends.values()})

    def sweep(self) -> int:
        found = 0
        for session in tuple(self._sessions.values()):
            reason = session.why_over()
            if reason is not None and not session.closing:
                self._begin_end(session, reason)
                found += 1
        return found

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(limits.SWEEP_SECONDS)
            self.sweep()

    async def _watch(self, session: BrowserSession) -> None:
        await session.process.ended.wait()
        if not session.closing:
            self._begin_end(session, CRASHED)

    def _begin_end(self, session: BrowserSession, reason: str, *, discard: bool = False) -> "asyncio.Task[CloseReport]":
        known = self._ends.get(session.session_id)
        if known is not None:
            return known
        session.closing = True
        self._remember(session, reason)
        task = asyncio.create_task(self._end(session, reason, discard), name="a browser session is ended")
        self._ends[session.session_id] = task
        return task

    async def _end(self, session: BrowserSession, reason: str, discard: bool) -> CloseReport:
        session_id, failure = session.session_id, session.process.failure
        if failure is not None:
            session.log.add(session_api.FAILED, text=failure.message, code=failure.code)
        try:
            report = await end_session(session, self._maker.store, discard=discard)
            with contextlib.suppress(PalyraError):
                await asyncio.to_thread(self._maker.folders.remove, session_id)
            session.log.add(session_api.CLOSED, text=reason, code=report.problem_code)
            if report.problem_code:
                log.warning("the profile of session %s was not saved: %s", session_id, report.problem_message)
            return report
        finally:
            session.over.set()
            self._watching.pop(session_id).cancel()
            self._sessions.pop(session_id, None)
            self._give_back(session_id)
            self._ends.pop(session_id, None)
            self._maker.metrics.closed(reason)

    def _reserve(self, session_id: str, principal: str, profile_id: str) -> None:
        own = sum(each == principal for each in self._places.values())
        if len(self._places) >= self._max_sessions or own >= self._max_per_principal:
            raise TooManySessions(
                f"{own} of {self._max_per_principal} sessions of this principal are open, "
                f"{len(self._places)} of {self._max_sessions} in all"
            )
        if profile_id and profile_id in self._profiles:
            raise ProfileInUse("another session uses this profile", session_id=self._profiles[profile_id])
        self._places[session_id] = principal
        if profile_id:
            self._profiles[profile_id] = session_id

    def _give_back(self, session_id: str) -> None:
        self._places.pop(session_id, None)
        for profile_id in [key for key, user in self._profiles.items() if user == session_id]:
            del self._profiles[profile_id]

    def _remember(self, session: BrowserSession, reason: str) -> None:
        failure = session.process.failure
        why = failure if reason == CRASHED and failure is not None else _over(reason)
        self._ended[session.session_id] = (session.principal, why)
        while len(self._ended) > limits.MAX_ENDED_KEPT:
            self._ended.popitem(last=False)

    def _refuse_ended(self, caller: Caller, session_id: str) -> None:
        principal, why = self._ended.get(session_id, ("", None))
        if why is not None and (caller.operator or principal == caller.principal):
            raise type(why)(why.message, hint=why.hint, **why.details)


_WHY: Final = {
    **OVER,
    ON_REQUEST: "it was closed",
    STOPPED: "the browser daemon ended",
    CRASHED: "its browser ended",
}


def _over(reason: str) -> SessionOver:
    return SessionOver(f"the session is over: {_WHY[reason]}", reason=reason)
