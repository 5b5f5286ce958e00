"""The browser daemon as one process has it: browsers, the guard, profiles, sessions and the service, in this order."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from palyra.browser.chromium import ChromiumLauncher, ChromiumSettings, Prepare
from palyra.browser.chromium_process import ChromiumProcess, NetworkServiceDied
from palyra.browser.grpc_server import serving
from palyra.browser.grpc_service import BrowserService
from palyra.browser.page_actor import ElementActor
from palyra.browser.page_port import PageView
from palyra.browser.page_script import PageScript
from palyra.browser.process_notes import ProcessNotes
from palyra.browser.process_pool import ProcessPool
from palyra.browser.process_tree import StartFailed
from palyra.browser.profile_archive import unpack
from palyra.browser.profile_desk import ProfileDesk
from palyra.browser.refs import RefCounter
from palyra.browser.session_folders import SessionFolders
from palyra.browser.session_manager import SessionManager
from palyra.browser.session_opening import SessionMaker
from palyra.browser.session_pages import ChromiumPages, PageSettings
from palyra.browser.session_ports import PagesNeeds
from palyra.browser.session_view import PROTOCOL_VERSION, HealthView
from palyra.browser.socket_place import SOCKET_FOLDER, SocketPlace
from palyra.browser.upload_folder import UploadFolder
from palyra.clock import Clock, SystemClock
from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemons.browserd_profiles import open_profiles
from palyra.daemons.chromium_session_proxy import ChromiumSessionProxy
from palyra.egress.ports import Resolver
from palyra.sandbox.namespace_sockets import NamespaceSockets
from palyra.sandbox.network_door import DoorPlan, ListenerKind
from palyra.telemetry.browser_prometheus import BrowserMetrics
from palyra.version import VERSION

log = logging.getLogger("palyra.browserd")

FOLDER: Final = "browser"
_PROFILES: Final = "browser/profiles"
_SESSIONS: Final = "browser/sessions"
_NOTES: Final = "browser/processes"
_KEY_FILE: Final = "browser/state.key"
_USED_FILE: Final = "browser/used"
OK: Final = "ok"
STARTS_AT_ONCE: Final = 2
Start = Callable[[Prepare | None], Awaitable[ChromiumProcess]]


class GuardListeners:
    """The sockets of guards, opened in the networks of browsers by the sandbox's helper process."""

    def __init__(self) -> None:
        self._sockets = NamespaceSockets()

    async def open(self, network: int, owner: int, port: int) -> socket.socket:
        opened = await self._sockets.open(DoorPlan(ports=(), proxy_port=port), network, owner)
        (listener,) = opened.of(ListenerKind.PROXY)
        for each in opened:
            if each.kind is not ListenerKind.PROXY:
                each.socket.close()
        return listener

    async def close(self) -> None:
        await self._sockets.close()


class ReadyBrowsers:
    """Blank ones from the pool; one with a profile is started for it.

    Where nobody has ever opened a session none waits for one: the first that is opened says that from now on, and
    from the next start on, some shall be ready.
    """

    def __init__(self, start: Start, pool: ProcessPool[ChromiumProcess], used: Path) -> None:
        self._start = start
        self._pool = pool
        self._used = used
        if used.exists():
            pool.fill()

    async def blank(self) -> ChromiumProcess:
        process = await self._pool.take()
        self._used.touch(mode=0o600)
        self._pool.fill()
        return process

    async def with_profile(self, archive: bytes) -> ChromiumProcess:
        def prepare(folder: Path) -> None:
            unpack(archive, folder)

        return await self._start(prepare)


class BrowserStarts:
    """As many at once as there are processors: more would only make all of them late. One that dies on the way is
    tried once more: on a machine that is very busy, one in some hundreds does."""

    def __init__(self, launcher: ChromiumLauncher) -> None:
        self._launcher = launcher
        self._turns = asyncio.Semaphore(max(STARTS_AT_ONCE, os.cpu_count() or 1))
        self.product = ""

    async def __call__(self, prepare: Prepare | None = None) -> ChromiumProcess:
        async with self._turns:
            try:
                process = await self._launcher.start(prepare)
            except (StartFailed, NetworkServiceDied) as failure:
                log.warning("a browser did not start and is tried again: %s", failure.message)
                process = await self._launcher.start(prepare)
        self.product = process.product
        return process


class BrowserdParts:
    """``running`` makes everything and ends it in order. The rest is there while it runs."""

    def __init__(
        self,
        settings: Settings,
        state: StateDir,
        *,
        clock: Clock | None = None,
        resolver: Resolver | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.settings = settings
        self.metrics = BrowserMetrics()
        self._state = state
        self._clock = clock or SystemClock()
        self._resolver = resolver
        self._environ = environ
        self._starts: BrowserStarts
        self.pool: ProcessPool[ChromiumProcess]
        self.manager: SessionManager

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        browser = self.settings.browser
        async with AsyncExitStack() as stack:
            notes = ProcessNotes(self._state.path(_NOTES))
            folders = SessionFolders(self._state.path(_SESSIONS))
            await asyncio.to_thread(_collect, notes, folders)
            profiles, key_file = self._state.path(_PROFILES), self._state.path(_KEY_FILE)
            store = await asyncio.to_thread(open_profiles, profiles, key_file, self._environ, now_ms=self._clock.now_ms)
            stack.callback(store.close)
            guard = ChromiumSessionProxy(self.settings.egress, self._resolver)
            stack.callback(guard.close)
            listeners = GuardListeners()
            stack.push_async_callback(listeners.close)
            engine = ChromiumSettings(binary=browser.engine or None, allow_no_sandbox=browser.allow_no_sandbox)
            launcher = ChromiumLauncher(listeners, notes, engine)
            self._starts = BrowserStarts(launcher)
            self.pool = ProcessPool(self._starts, ready=browser.ready)
            stack.push_async_callback(self.pool.close)
            maker = SessionMaker(
                browsers=ReadyBrowsers(self._starts, self.pool, self._state.path(_USED_FILE)),
                guards=guard,
                open_pages=self._open_pages,
                store=store,
                folders=folders,
                clock=self._clock,
                metrics=self.metrics,
                ceiling=browser.ceiling(),
                download_rules=browser.downloads(),
            )
            self.manager = SessionManager(
                maker, max_sessions=browser.max_sessions, max_per_principal=browser.max_sessions_per_principal
            )
            self.metrics.watch(lambda: len(self.manager), lambda: self.pool.ready)
            await stack.enter_async_context(self.manager.running())
            place = SocketPlace.make(self._state.path(SOCKET_FOLDER))
            stack.callback(place.close)
            desk = ProfileDesk(store, self.manager.session_of_profile)
            await stack.enter_async_context(serving(BrowserService(self.manager, desk, self.health), place))
            stack.callback(desk.end_following)
            # While it is still served, so that palyrad hears of what the last sessions saved.
            stack.push_async_callback(self.manager.close_all)
            yield

    def health(self) -> HealthView:
        return HealthView(
            protocol_version=PROTOCOL_VERSION,
            software_version=VERSION,
            status=OK,
            sessions=len(self.manager),
            ready_browsers=self.pool.ready,
            product=self._starts.product,
        )

    async def _open_pages(self, needs: PagesNeeds) -> ChromiumPages:
        counter, script, uploads = RefCounter(), PageScript(), UploadFolder(needs.process.files)

        def actor_of(page: PageView) -> ElementActor:
            return ElementActor(page, counter, script, uploads, needs.redact)

        return await ChromiumPages.open(
            needs.process.cdp,
            judge=needs.judge,
            redact=needs.redact,
            meter=needs.meter,
            clock=self._clock,
            actor_of=actor_of,
            script=script,
            downloads=needs.downloads,
            settings=PageSettings(allow_evaluate=needs.allow_evaluate),
        )


def _collect(notes: ProcessNotes, folders: SessionFolders) -> None:
    """What a daemon that was killed left behind."""
    left = notes.collect()
    removed = folders.collect()
    if left.notes or removed:
        log.warning("leftovers of an earlier daemon: %d browsers ended, %d folders removed", len(left.ended), removed)
    if left.unending:
        log.error("browsers of an earlier daemon do not end: %s", ", ".join(map(str, left.unending)))
