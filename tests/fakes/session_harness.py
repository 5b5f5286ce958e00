"""Sessions without a browser: stand-ins for everything around them, for tests of what happens when parts fail."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from palyra.browser.domain.action import Action, ActionOutcome, ChromiumObserveSnapshot, ObserveAsk, TabView
from palyra.browser.domain.budget import SessionBudget
from palyra.browser.domain.download import rules
from palyra.browser.domain.profile import TabState
from palyra.browser.domain.session_api import LiveFrame
from palyra.browser.engine.isolation_layers import IsolationReceipt
from palyra.browser.profiles.encryption import StateKey, StateKeys
from palyra.browser.profiles.store import ProfileStore
from palyra.browser.service.chromium_session_proxy import SessionRequestJudge
from palyra.browser.service.session import PagesNeeds, SessionMetrics
from palyra.browser.service.session_lifecycle import SessionMaker
from palyra.browser.tabs.download_folder import SessionFolders
from palyra.clock import SystemClock
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.request_rules import RequestRule
from palyra.errors import Failed


class Broken(Failed):
    code = "test.broken"


class StandInCdp:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.cookies: list[dict[str, Any]] = []

    async def send(self, method: str, params: Any = None, session_id: str | None = None, timeout: float = 1) -> Any:
        self.sent.append((method, params))
        return {"cookies": self.cookies} if method == "Storage.getCookies" else {}


class StandInProcess:
    """``clean``: whether it ends by itself when asked to, with a profile that has one file in it."""

    def __init__(self, folder: Path, *, clean: bool = True) -> None:
        self.cdp = StandInCdp()
        self.receipt = IsolationReceipt(lines=())
        self.product = "StandIn/1"
        self.ended = asyncio.Event()
        self.failure: Any = None
        self.closed: list[bool] = []
        self.downloads = folder / "incoming"
        self.profile = folder / "profile"
        self._clean = clean
        for path in (self.downloads, self.profile):
            path.mkdir(parents=True, exist_ok=True)
        (self.profile / "Cookies").write_bytes(b"cookies")
        self.guard, self._other = socket.socketpair()

    @property
    def alive(self) -> bool:
        return self.failure is None and not self.ended.is_set()

    def take_guard(self) -> socket.socket:
        return self.guard

    async def close(self, *, graceful: bool, archive: Any = None) -> bool:
        self.closed.append(graceful)
        self.ended.set()
        self._other.close()
        if graceful and self._clean and archive is not None:
            await archive(self.profile)
        return graceful and self._clean

    def die(self, why: Any) -> None:
        self.failure = why
        self.ended.set()


class StandInGuard:
    def __init__(self, listener: socket.socket, happened: Any) -> None:
        self.listener = listener
        self.happened = happened
        self.bytes = 0

    def moved(self) -> int:
        return self.bytes

    async def close(self) -> None:
        self.listener.close()


class StandInLive:
    taken_by = ""

    async def frames(self) -> AsyncIterator[LiveFrame]:
        await asyncio.Event().wait()
        yield LiveFrame(tab="", url="", picture=b"", width=0, height=0, at_ms=0)


class StandInPages:
    def __init__(self, needs: PagesNeeds) -> None:
        self.needs = needs
        self.performed: list[Action] = []
        self.live = StandInLive()
        self.closed = False
        self.restored: list[Any] = []
        # What the next action raises.
        self.problem: Exception | None = None
        self.saved: Callable[[], Any] = lambda: (TabState(url="https://a.example/"),)

    async def perform(self, action: Action) -> ActionOutcome:
        if self.problem is not None:
            raise self.problem
        self.performed.append(action)
        return ActionOutcome(tab="t1", url="https://a.example/", title="A")

    async def observe(self, ask: ObserveAsk) -> ChromiumObserveSnapshot:
        if self.problem is not None:
            raise self.problem
        return ChromiumObserveSnapshot(tab="t1", url="https://a.example/", title="A", form=ask.form, text="- main")

    def tabs(self) -> tuple[TabView, ...]:
        return (TabView(tab="t1", url="https://a.example/", title="A", active=True),)

    def permissions(self) -> dict[str, tuple[str, ...]]:
        return {"https://a.example": ("geolocation",)}

    async def saved_tabs(self) -> Any:
        return self.saved()

    async def restore_tabs(self, tabs: tuple[TabState, ...]) -> tuple[str, ...]:
        self.restored.append(tabs)
        return ()

    async def restore_permissions(self, granted: dict[str, tuple[str, ...]]) -> None:
        self.restored.append(granted)

    async def close(self) -> None:
        self.closed = True


class SessionHarness:
    """Makes sessions; ``fail_at`` names the step that breaks: browser, guard, pages."""

    def __init__(self, folder: Path, **ceiling: int) -> None:
        self.folder = folder
        self.fail_at = ""
        self.clean = True
        self.request_rules: tuple[RequestRule, ...] = ()
        # Opening waits here.
        self.gate: asyncio.Event | None = None
        self.processes: list[StandInProcess] = []
        self.guards: list[StandInGuard] = []
        self.pages: list[StandInPages] = []
        self.archives: list[bytes] = []
        self.clock = SystemClock()
        self.store = ProfileStore(folder / "profiles", StateKeys(StateKey(b"k" * 32)), now_ms=self.clock.now_ms)
        parts: Any = self
        self.maker = SessionMaker(
            browsers=parts,
            guards=parts,
            open_pages=self.open_pages,  # type: ignore[arg-type]
            store=self.store,
            folders=SessionFolders(folder / "sessions"),
            clock=self.clock,
            metrics=Mock(spec=SessionMetrics),
            ceiling=SessionBudget(**ceiling),
            download_rules=rules(),
        )

    async def blank(self) -> Any:
        if self.gate is not None:
            await self.gate.wait()
        self._fail("browser")
        process = StandInProcess(self.folder / f"b{len(self.processes)}", clean=self.clean)
        self.processes.append(process)
        return process

    async def with_profile(self, archive: bytes) -> Any:
        self.archives.append(archive)
        return await self.blank()

    def judge(self, grant: EgressGrant) -> Any:
        return SessionRequestJudge(EgressProxyPolicyService(frozenset), grant)

    def serve(self, listener: socket.socket, grant: EgressGrant, happened: Any) -> StandInGuard:
        if self.fail_at == "guard":
            listener.close()
        self._fail("guard")
        guard = StandInGuard(listener, happened)
        self.guards.append(guard)
        return guard

    async def open_pages(self, needs: PagesNeeds) -> Any:
        self._fail("pages")
        pages = StandInPages(needs)
        self.pages.append(pages)
        return pages

    def _fail(self, step: str) -> None:
        if self.fail_at == step:
            raise Broken(f"no {step}")
