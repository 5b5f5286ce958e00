"""Sessions of the browser daemon with their owners: their events on record, and their end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palyra.browser.domain import session_api
from palyra.browser.domain.session_api import Caller, NoSuchSession, SessionEvent, WatchAsk
from palyra.browser.engine.background_tasks import BackgroundTasks
from palyra.browser.service.access import BrowserAway
from palyra.browser.service.connection import BrowserLink, BrowserNeedsDaemon, BrowserOff, BrowserUnavailable
from palyra.browser.service.profile_witness import Heads, ProfileWitness
from palyra.browser.settings import BrowserSettings
from palyra.errors import PalyraError
from palyra.executors.browser.arguments import Reach
from palyra.executors.browser.call import BrowserWork, refusals
from palyra.executors.browser.policy_questions import host_questions
from palyra.executors.browser.session_registry import OwnedSession, SessionRegistry
from palyra.pipeline.domain.spec import Asker
from palyra.policy.decision import Outcome, PolicyPort
from palyra.policy.request import Entity, EntityDirectory, EntityRef
from palyra.store.event import NewEvent
from palyra.store.port import Store

if TYPE_CHECKING:
    from palyra.browser.service.client import BrowserClient

log = logging.getLogger("palyra.browser")

# The operator on record for the daemon's own requests.
ITSELF: Final = Caller(operator="user:palyrad")
# Events of the browser daemon that are not on record as calls.
RECORDED: Final = frozenset(
    (
        session_api.FAILED,
        session_api.REFUSED,
        session_api.DOWNLOADED,
        session_api.DOWNLOAD_RELEASED,
        session_api.DOWNLOAD_DELETED,
        session_api.TAKEN_OVER,
        session_api.HANDED_BACK,
        session_api.OPERATED,
        session_api.LOOKED_AT,
        session_api.STATE_EXPORTED,
        session_api.STATE_IMPORTED,
        session_api.NOT_RESTORED,
    )
)
# Of one call; its receipt counts them all.
MAX_REFUSALS_RECORDED: Final = 16
_CLOSING_SECONDS: Final = 30.0
# A host is judged without regard to the tool.
_NO_TOOL: Final = Entity(uid=EntityRef("Tool", "browser.open"))


@dataclass(kw_only=True, eq=False)
class SessionSupervisor:
    """``serving`` is false for a process of one command: it opens no session, which would end with it."""

    settings: BrowserSettings
    ceiling: Reach
    registry: SessionRegistry
    folder: InitVar[Path]
    trace: InitVar[Path]
    store: Store
    policy: PolicyPort
    directory: EntityDirectory
    serving: bool
    actor: str

    def __post_init__(self, folder: Path, trace: Path) -> None:
        self.profiles = ProfileWitness(self.store, ITSELF, self.actor)
        self._link = BrowserLink(folder, trace, self._meet)
        self._tasks = BackgroundTasks(log, logging.ERROR)

    @contextlib.asynccontextmanager
    async def connected(self) -> "AsyncIterator[BrowserClient]":
        """Yield the client for one request. Give up a lost connection, so that the next call finds a new daemon."""
        if not self.settings.enabled:
            raise BrowserOff("the browser is switched off")
        if not self.serving:
            raise BrowserNeedsDaemon("no daemon runs that could keep a browser session")
        client = await self._link.client()
        try:
            yield client
        except BrowserAway as away:
            await self._link.lost(client)
            raise BrowserUnavailable(f"the browser daemon is gone: {away.message}") from away

    async def register(self, session: OwnedSession, **payload: Any) -> None:
        self.registry.enter(session)
        try:
            await self.record(session, session_api.OPENED, **payload)
            client = await self._link.client()
        except BaseException:
            closing = self.close_session(session, reason="its opening could not be recorded")
            self._tasks.start(closing, f"close {session.session_id}")
            raise
        self._tasks.start(self._watch(session, client), f"browser session {session.session_id}")

    async def catch_up(self, session: OwnedSession, client: "BrowserClient") -> tuple[SessionEvent, ...]:
        try:
            events = await client.events(session.caller(), session.session_id, session.recorded)
        except PalyraError:
            return ()
        await self._note(session, events)
        return events

    async def settle(self, work: BrowserWork) -> tuple[str, ...]:
        for refusal in work.refused[:MAX_REFUSALS_RECORDED]:
            await self.record(work.session, "browser.navigation_refused", call=work.plan.call_id, text=refusal)
        seen = await self.catch_up(work.session, work.client)
        return (*work.refused, *refusals(seen))

    async def record_end(self, session: OwnedSession, *, reason: str, **more: Any) -> None:
        """Record the end once, also when the disk is full: it ends something that already ran."""
        if self.registry.leave(session.session_id) is not None:
            await self.record(session, session_api.CLOSED, essential=True, reason=reason, **more)

    async def close_session(self, session: OwnedSession, *, reason: str) -> None:
        with contextlib.suppress(PalyraError):
            async with self.connected() as client:
                # It is closed also when its last events cannot be recorded.
                with contextlib.suppress(PalyraError):
                    await self.catch_up(session, client)
                await client.close_session(ITSELF, session.session_id)
        await self.record_end(session, reason=reason)

    async def record(
        self, session: OwnedSession | None, kind: str, *, actor: str = "", essential: bool = False, **payload: Any
    ) -> None:
        event = NewEvent(
            kind=kind,
            actor=actor or self.actor,
            principal="" if session is None else str(session.principal),
            run="" if session is None else session.run,
            call=str(payload.pop("call", "")),
            payload=payload if session is None else {"browser_session": session.session_id, **payload},
        )
        await self.store.transact(lambda tx: tx.append(event), essential=essential)

    def policy_changed(self) -> int:
        cut = 0
        for session in self.registry:
            if denied := self._denied(session):
                cut += 1
                reason = f"policy no longer allows {', '.join(denied)}"
                self._tasks.start(self.close_session(session, reason=reason), f"cut {session.session_id}")
        return cut

    def status(self) -> dict[str, Any]:
        return {
            "connected": self._link.connected,
            "sessions": len(self.registry),
            "profiles_rolled_back": self.profiles.rolled_back,
        }

    async def close(self) -> None:
        """End every session: only this daemon knows their owners."""
        sessions = tuple(self.registry)
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await asyncio.gather(*(self.close_session(each, reason="the daemon stopped") for each in sessions))
                await self._record_last_changes()
        except TimeoutError:
            log.error("not every browser session could be closed in time")
        await self._tasks.cancel()
        await self._link.close()

    def _denied(self, session: OwnedSession) -> list[str]:
        asker = Asker(
            principal=session.principal,
            channel=session.channel,
            run=session.run,
            directory=self.directory,
            tool=_NO_TOOL,
        )
        questions = host_questions(asker, session.entity, session.reach, approved=session.approved)
        return [each.resource.uid.id for each in questions if self.policy.decide(each).outcome is not Outcome.ALLOW]

    async def _watch(self, session: OwnedSession, client: "BrowserClient") -> None:
        reason = "it ended"
        try:
            async for seen in client.watch(
                session.caller(), session.session_id, WatchAsk(events_after=session.recorded, frames=False)
            ):
                if isinstance(seen, SessionEvent):
                    if seen.kind == session_api.CLOSED:
                        reason = seen.text or seen.code or reason
                    try:
                        await self._note(session, (seen,))
                    except PalyraError as fault:
                        await self.close_session(session, reason=f"what it does cannot be recorded: {fault.message}")
                        return
        except NoSuchSession:
            pass
        except PalyraError as failure:
            reason = f"the browser daemon is gone: {failure.message}"
            await self._link.lost(client)
        await self.record_end(session, reason=reason)

    async def _note(self, session: OwnedSession, events: tuple[SessionEvent, ...]) -> None:
        async with session.recording:
            for event in events:
                if event.number <= session.recorded:
                    continue
                before, session.recorded = session.recorded, event.number
                if event.kind not in RECORDED:
                    continue
                try:
                    await self.record(
                        session,
                        event.kind,
                        actor=event.actor,
                        call=event.call_id,
                        number=event.number,
                        code=event.code,
                        text=event.text,
                        tab=event.tab,
                    )
                except PalyraError:
                    session.recorded = before
                    raise

    async def _meet(self, client: "BrowserClient") -> None:
        """Know the state of the profiles before the sessions of strangers are closed, which saves them."""
        heads = await self.profiles.meet(client)
        self._tasks.start(self._follow_profiles(heads, client), "the profiles of the browser daemon")
        await self._end_strangers(client)

    async def _follow_profiles(self, heads: Heads, client: "BrowserClient") -> None:
        with contextlib.suppress(PalyraError):
            await self.profiles.follow(heads)
        await self._link.lost(client)

    async def _record_last_changes(self) -> None:
        if self._link.connected and not self.profiles.rolled_back:
            with contextlib.suppress(PalyraError):
                await self.profiles.catch_up(await self._link.client())

    async def _end_strangers(self, client: "BrowserClient") -> None:
        """Close sessions that no call of this process opened: their daemon was killed."""
        for view in await client.sessions(ITSELF):
            if self.registry.find(view.session_id) is None:
                with contextlib.suppress(PalyraError):
                    await client.close_session(ITSELF, view.session_id)
                log.warning("closed browser session %s, which an earlier daemon had opened", view.session_id)
