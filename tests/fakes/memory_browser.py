"""A browser daemon made of dictionaries, for tests of what palyrad does with one: what it is asked is kept."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec

from palyra.browser.domain import session_api
from palyra.browser.domain.action import (
    Action,
    ActionOutcome,
    ChromiumObserveSnapshot,
    ExportPdf,
    LogEntry,
    Navigate,
    ObserveAsk,
    Screenshot,
    TabView,
    Type,
)
from palyra.browser.domain.download import DownloadRecord, Folder, Reason
from palyra.browser.domain.profile import NothingToAccept
from palyra.browser.domain.session_api import (
    PROTOCOL_VERSION,
    ActReport,
    Caller,
    CloseReport,
    HealthView,
    NoSuchSession,
    ProfilesHead,
    ProfileView,
    SessionAsk,
    SessionEvent,
    SessionState,
    SessionView,
    WatchAsk,
)
from palyra.browser.engine.isolation_layers import IsolationLayer, IsolationLine, IsolationReceipt
from palyra.daemon.gateway_wiring import Gateway
from palyra.errors import PalyraError
from palyra.ids import Ulid

CSV = b"id,amount\n1,7\n"
FENCES = IsolationReceipt(
    lines=(IsolationLine(fence=IsolationLayer.GUARD, asked="the guard alone", got="the guard alone", held=True),)
)


class MemorySession:
    def __init__(self, session_id: str, caller: Caller, ask: SessionAsk) -> None:
        self.session_id = session_id
        self.principal = caller.principal
        self.ask = ask
        self.url = "about:blank"
        self.operator = ""
        self.events: list[SessionEvent] = []
        self.news = asyncio.Condition()
        self.over = False

    def view(self) -> SessionView:
        return SessionView(
            session_id=self.session_id,
            principal=self.principal,
            state=SessionState.TAKEN_OVER if self.operator else SessionState.OPEN,
            created_ms=1,
            ends_ms=1_800_001,
            idle_ends_ms=600_001,
            label=self.ask.label,
            profile_id=self.ask.profile_id,
            budget={"idle_ttl_ms": 600_000},
            hosts=self.ask.hosts,
            private_targets=self.ask.private_targets,
            any_public_host=self.ask.any_public_host,
            allow_evaluate=self.ask.allow_evaluate,
            tabs=(TabView(tab="t1", url=self.url, title="Page", active=True),),
            fences_json=msgspec.json.encode(FENCES),
            operator=self.operator,
        )


class MemoryBrowser:
    """``asked`` are the actions in order, ``failing`` what the next one fails with, ``text`` what every page says."""

    def __init__(self) -> None:
        self.sessions_by_id: dict[str, MemorySession] = {}
        self.asked: list[Action] = []
        self.failing: PalyraError | None = None
        self.text = '- button "Buy" [ref=e1]'
        self.picture = b"\x89PNG small"
        self.gone: PalyraError | None = None
        self.profile_views: list[ProfileView] = []
        self.closed = False
        self.generation, self.rolled_back = 1, False
        self.records = [
            self.record("orders.csv", Folder.ALLOWLIST),
            self.record("disguised.csv", Folder.QUARANTINE, Reason.EXECUTABLE),
        ]

    @staticmethod
    def record(name: str, folder: Folder, *reasons: Reason) -> DownloadRecord:
        digest = hashlib.sha256(CSV).hexdigest()
        return DownloadRecord(
            id=str(Ulid.new()),
            name=name,
            source="https://shop.test/x",
            declared_type="text/csv",
            detail="",
            size=len(CSV),
            digest=digest,
            folder=folder,
            reasons=reasons,
        )

    def of(self, caller: Caller, session_id: str) -> MemorySession:
        if self.gone is not None:
            raise self.gone
        found = self.sessions_by_id.get(session_id)
        if found is None or not (caller.operator or found.principal == caller.principal):
            raise NoSuchSession("there is no such session")
        return found

    async def tell(self, session: MemorySession, kind: str, **more: str) -> None:
        session.events.append(SessionEvent(number=len(session.events) + 1, at_ms=1, kind=kind, **more))
        async with session.news:
            session.news.notify_all()

    async def end(self, session_id: str) -> None:
        session = self.sessions_by_id.pop(session_id)
        session.over = True
        async with session.news:
            session.news.notify_all()

    # What a client is asked for.

    async def health(self) -> HealthView:
        return HealthView(protocol_version=PROTOCOL_VERSION, software_version="0", status="ok")

    async def close(self) -> None:
        self.closed = True

    async def create_session(self, caller: Caller, ask: SessionAsk) -> SessionView:
        if self.gone is not None:
            raise self.gone
        session = MemorySession(str(Ulid.new()), caller, ask)
        self.sessions_by_id[session.session_id] = session
        return session.view()

    async def get_session(self, caller: Caller, session_id: str) -> SessionView:
        return self.of(caller, session_id).view()

    async def sessions(self, caller: Caller) -> tuple[SessionView, ...]:
        return tuple(each.view() for each in self.sessions_by_id.values())

    async def close_session(self, caller: Caller, session_id: str, *, discard: bool = False) -> CloseReport:
        self.of(caller, session_id)
        await self.end(session_id)
        return CloseReport(saved=not discard)

    async def act(
        self, caller: Caller, session_id: str, actions: Sequence[Action], *, picture_on_failure: bool = False
    ) -> ActReport:
        session = self.of(caller, session_id)
        outcomes = []
        for action in actions:
            self.asked.append(action)
            if self.failing is not None:
                problem, self.failing = self.failing, None
                return ActReport(outcomes=tuple(outcomes), problem=problem)
            outcomes.append(self._outcome(session, action))
        return ActReport(outcomes=tuple(outcomes))

    def _outcome(self, session: MemorySession, action: Action) -> ActionOutcome:
        if isinstance(action, Navigate):
            session.url = action.url
        content, media_type = b"", ""
        if isinstance(action, Screenshot):
            small = action.format == "jpeg"
            content, media_type = self.picture[:1000] if small else self.picture, f"image/{action.format}"
        elif isinstance(action, ExportPdf):
            content, media_type = b"%PDF", "application/pdf"
        # A page may say what was typed into it.
        said = action.secret.reveal() if isinstance(action, Type) and action.secret is not None else "Page"
        return ActionOutcome(tab="t1", url=session.url, title=said, status=200, content=content, media_type=media_type)

    async def observe(self, caller: Caller, session_id: str, ask: ObserveAsk) -> ChromiumObserveSnapshot:
        session = self.of(caller, session_id)
        return ChromiumObserveSnapshot(
            tab="t1", url=session.url, title="Page", form=ask.form, text=self.text, refs=1, matches=int(bool(ask.find))
        )

    async def tabs(self, caller: Caller, session_id: str) -> tuple[TabView, ...]:
        return self.of(caller, session_id).view().tabs

    async def console_log(self, caller: Caller, session_id: str, last: int = 0) -> tuple[LogEntry, ...]:
        self.of(caller, session_id)
        return (LogEntry(at_ms=1, kind="error", text="oops"),)

    network_log = console_log

    async def events(self, caller: Caller, session_id: str, after: int = 0) -> tuple[SessionEvent, ...]:
        return tuple(each for each in self.of(caller, session_id).events if each.number > after)

    async def downloads(self, caller: Caller, session_id: str) -> tuple[DownloadRecord, ...]:
        self.of(caller, session_id)
        return tuple(self.records)

    async def read_download(self, caller: Caller, session_id: str, download_id: str) -> AsyncIterator[bytes]:
        self.of(caller, session_id)
        yield CSV[:3]
        yield CSV[3:]

    async def release_download(self, caller: Caller, session_id: str, download_id: str) -> DownloadRecord:
        session = self.of(caller, session_id)
        record = next(each for each in self.records if each.id == download_id)
        await self.tell(session, session_api.DOWNLOAD_RELEASED, text=record.digest, actor=caller.operator)
        return msgspec.structs.replace(record, folder=Folder.ALLOWLIST, released_by=caller.operator)

    async def delete_download(self, caller: Caller, session_id: str, download_id: str) -> DownloadRecord:
        session = self.of(caller, session_id)
        record = next(each for each in self.records if each.id == download_id)
        await self.tell(session, session_api.DOWNLOAD_DELETED, text=record.digest, actor=caller.operator)
        return record

    async def take_over(self, caller: Caller, session_id: str, reason: str) -> SessionView:
        session = self.of(caller, session_id)
        session.operator = caller.operator
        await self.tell(session, session_api.TAKEN_OVER, actor=caller.operator, text=reason)
        return session.view()

    async def hand_back(self, caller: Caller, session_id: str) -> SessionView:
        session = self.of(caller, session_id)
        session.operator = ""
        await self.tell(session, session_api.HANDED_BACK, actor=caller.operator)
        return session.view()

    async def profiles(self, caller: Caller) -> tuple[ProfileView, ...]:
        return tuple(each for each in self.profile_views if caller.operator or each.principal == caller.principal)

    async def create_profile(
        self, caller: Caller, name: str, *, colour: str = "", private: bool = False
    ) -> ProfileView:
        made = ProfileView(
            profile_id=str(Ulid.new()),
            principal=caller.principal,
            name=name,
            colour=colour,
            persistence=not private,
            private=private,
            created_ms=1,
            updated_ms=1,
        )
        self.profile_views.append(made)
        return made

    async def delete_profile(self, caller: Caller, profile_id: str) -> ProfileView:
        found = next(each for each in await self.profiles(caller) if each.profile_id == profile_id)
        self.profile_views.remove(found)
        return found

    async def reset_profile(self, caller: Caller, profile_id: str) -> ProfileView:
        return next(each for each in await self.profiles(caller) if each.profile_id == profile_id)

    async def follow_profiles(self, caller: Caller, last_head: ProfilesHead) -> AsyncGenerator[ProfilesHead, None]:
        yield ProfilesHead(generation=self.generation, mark=f"m{self.generation}", rolled_back=self.rolled_back)

    async def accept_profiles(self, caller: Caller) -> ProfilesHead:
        if not self.rolled_back:
            raise NothingToAccept("they are not")
        self.rolled_back = False
        self.generation += 10
        return ProfilesHead(generation=self.generation, mark=f"m{self.generation}")

    async def watch(self, caller: Caller, session_id: str, ask: WatchAsk) -> AsyncIterator[Any]:
        session = self.of(caller, session_id)
        sent = ask.events_after
        while True:
            for event in [each for each in session.events if each.number > sent]:
                sent = event.number
                yield event
            if session.over:
                return
            async with session.news:
                if not session.over and len(session.events) <= sent:
                    await session.news.wait()


def put_into(gateway: Gateway, browser: MemoryBrowser) -> None:
    """From now on this is the browser daemon of the gateway."""

    async def client() -> Any:
        return browser

    async def lost(_: Any) -> None:
        browser.closed = True

    link = gateway.browser.supervisor._link
    link.client = client  # type: ignore[method-assign]
    link.lost = lost  # type: ignore[method-assign]
