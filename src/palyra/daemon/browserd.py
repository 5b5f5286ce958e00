"""The browser daemon's page for those who look after it: health and metrics over HTTP, on loopback only.

It shows counts and nothing about a session. Clients with more rights use the socket.
"""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from palyra.browser.domain.page_tree import RefCounter
from palyra.browser.domain.session_api import PROTOCOL_VERSION, HealthView
from palyra.browser.engine.browser_folders import UploadFolder
from palyra.browser.engine.chromium import (
    ChromiumLauncher,
    ChromiumProcess,
    ChromiumSettings,
    GuardListeners,
    NetworkServiceDied,
    Prepare,
)
from palyra.browser.engine.prewarm import ProcessPool
from palyra.browser.engine.process_tree import ProcessNotes, StartFailed
from palyra.browser.page.in_page_script import PageScript, PageView
from palyra.browser.page.page import ElementActor
from palyra.browser.profiles.archive import unpack
from palyra.browser.profiles.store import open_profiles
from palyra.browser.service.access import SOCKET_FOLDER, SocketPlace
from palyra.browser.service.chromium_session_proxy import ChromiumSessionProxy
from palyra.browser.service.grpc_server import BrowserService, serve
from palyra.browser.service.metrics import BrowserMetrics
from palyra.browser.service.profile_service import ProfileService
from palyra.browser.service.session import PagesNeeds
from palyra.browser.service.session_lifecycle import SessionMaker
from palyra.browser.service.session_manager import SessionManager
from palyra.browser.tabs.download_folder import SessionFolders
from palyra.browser.tabs.session_tabs import ChromiumPages
from palyra.clock import Clock, SystemClock
from palyra.config.state_dir import HeldLock, StateDir
from palyra.daemon.browserd_supervisor import LOCK_FILE
from palyra.daemon.palyrad import ServerWithoutSignals, bind
from palyra.daemon.process_setup import keep_memory_private
from palyra.daemon.settings import Settings
from palyra.egress.domain.events import Resolver
from palyra.errors import Unavailable
from palyra.server.listener import BoundedHttpProtocol
from palyra.version import VERSION

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>palyra-browserd</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 34rem; margin: 3rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.3rem }} dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem }}
dt {{ opacity: .7 }} dd {{ margin: 0; font-variant-numeric: tabular-nums }}
</style>
<h1>Browser daemon: {status}</h1><dl>{rows}</dl></html>
"""


def health_app(health: Callable[[], HealthView], metrics: BrowserMetrics) -> Starlette:
    async def page(_request: Request) -> Response:
        now = health()
        shown = (
            ("Sessions", now.sessions),
            ("Browsers ready", now.ready_browsers),
            ("Engine", now.product or "not started yet"),
            ("Version", now.software_version),
            ("Protocol", now.protocol_version),
        )
        rows = "".join(f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in shown)
        return HTMLResponse(_PAGE.format(status=escape(now.status), rows=rows), headers=_HEADERS)

    async def healthz(_request: Request) -> Response:
        return Response(msgspec.json.encode(health()), media_type="application/json", headers=_HEADERS)

    async def counted(_request: Request) -> Response:
        return Response(metrics.render(), media_type=metrics.content_type, headers=_HEADERS)

    return Starlette(
        routes=[Route("/", page), Route("/healthz", healthz), Route("/metrics", counted)],
        # A page elsewhere that a name of its own leads here must not read it.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])],
    )


# The browser daemon as one process has it: browsers, the guard, profiles, sessions and the service, in this order.

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


class ReadyBrowsers:
    """Blank ones from the pool; one with a profile is started for it.

    Where nobody has ever opened a session none waits for one: the first that is opened says that from now on, and
    from the next start on, some shall be ready.
    """

    def __init__(self, start: Start, pool: ProcessPool, used: Path) -> None:
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
    """Starts of browsers, at most one per processor at a time: more would only delay all of them.

    A browser that dies while it starts is tried once more. On a very busy machine one in some hundreds does.
    """

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


class BrowserdServices:
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
        self.pool: ProcessPool
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
            profile_service = ProfileService(store, self.manager.session_of_profile)
            await stack.enter_async_context(serve(BrowserService(self.manager, profile_service, self.health), place))
            stack.callback(profile_service.end_following)
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
            allow_evaluate=needs.allow_evaluate,
        )


def _collect(notes: ProcessNotes, folders: SessionFolders) -> None:
    """Remove what a killed daemon left behind."""
    left = notes.collect()
    removed = folders.collect()
    if left.notes or removed:
        log.warning("leftovers of an earlier daemon: %d browsers ended, %d folders removed", len(left.ended), removed)
    if left.unending:
        log.error("browsers of an earlier daemon do not end: %s", ", ".join(map(str, left.unending)))


# Runs the browser daemon until a signal stops it.

ADDRESS_FILE: Final = "browser/daemon.json"
_HOST: Final = "127.0.0.1"
_HTTP_STOP_SECONDS: Final = 2


class BrowserdRunning(Unavailable):
    code = "browser.already_running"
    hint = "stop the other browser daemon first, or choose another --state-dir"


Announce = Callable[[dict[str, Any]], None]


async def serve_browser(settings: Settings, state: StateDir, announce: Announce, *, until_input_ends: bool) -> None:
    """Serve until SIGTERM or SIGINT, then close the sessions, save their profiles and end the browsers.

    ``until_input_ends`` also ends it with the process that started it.
    """
    keep_memory_private()
    state.path(LOCK_FILE).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = HeldLock.take(state.path(LOCK_FILE))
    except BlockingIOError:
        raise BrowserdRunning(f"a browser daemon runs in {state.root} already") from None
    try:
        async with AsyncExitStack() as stack:
            stop = _stop_signals(stack, until_input_ends=until_input_ends)
            parts = BrowserdServices(settings, state)
            listener = bind(_HOST, settings.browser.health_port)
            stack.callback(listener.close)
            await stack.enter_async_context(parts.running())
            url = await stack.enter_async_context(_http(parts, listener))
            address = {"health": url, "socket": str(state.path(SOCKET_FOLDER)), "pid": os.getpid()}
            state.write_atomic(ADDRESS_FILE, json.dumps(address).encode())
            stack.callback(state.path(ADDRESS_FILE).unlink, missing_ok=True)
            announce(address)
            await stop.wait()
    finally:
        lock.release(remove=False)


def _stop_signals(stack: AsyncExitStack, *, until_input_ends: bool) -> asyncio.Event:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
        stack.callback(loop.remove_signal_handler, number)
    if until_input_ends:

        def read() -> None:
            if not os.read(0, 4096):
                loop.remove_reader(0)
                stop.set()

        loop.add_reader(0, read)
        stack.callback(loop.remove_reader, 0)
    return stop


@asynccontextmanager
async def _http(parts: BrowserdServices, listener: socket.socket) -> Any:
    server = ServerWithoutSignals(
        uvicorn.Config(
            health_app(parts.health, parts.metrics),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_HTTP_STOP_SECONDS,
            http=BoundedHttpProtocol,
        )
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listener]), name="the browser daemon's page")
        await server.listening.wait()
        yield f"http://{_HOST}:{listener.getsockname()[1]}"
        server.should_exit = True
