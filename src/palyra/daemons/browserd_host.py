"""Runs the browser daemon until it is told to stop."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import uvicorn

from palyra.browser.socket_place import SOCKET_FOLDER
from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemons.bounded_http import BoundedHttpProtocol
from palyra.daemons.browserd_health import health_app
from palyra.daemons.browserd_parts import BrowserdParts
from palyra.daemons.instances import HeldLock
from palyra.daemons.local_browser import LOCK_FILE
from palyra.daemons.server import ServerWithoutSignals, bind
from palyra.errors import Unavailable

ADDRESS_FILE: Final = "browser/daemon.json"
_HOST: Final = "127.0.0.1"
_HTTP_STOP_SECONDS: Final = 2


class BrowserdRunning(Unavailable):
    code = "browser.already_running"
    hint = "stop the other browser daemon first, or choose another --state-dir"


Announce = Callable[[dict[str, Any]], None]


async def serve_browser(settings: Settings, state: StateDir, announce: Announce, *, until_input_ends: bool) -> None:
    """SIGTERM and SIGINT end it in order: no new calls, sessions closed and their profiles saved, browsers ended.
    ``until_input_ends``: also when whoever started it is gone."""
    state.path(LOCK_FILE).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = HeldLock.take(state.path(LOCK_FILE))
    except BlockingIOError:
        raise BrowserdRunning(f"a browser daemon runs in {state.root} already") from None
    try:
        async with AsyncExitStack() as stack:
            stop = _stop_signals(stack, until_input_ends=until_input_ends)
            parts = BrowserdParts(settings, state)
            listener = bind(_HOST, settings.browser.health_port)
            stack.callback(listener.close)
            await stack.enter_async_context(parts.running())
            url = await stack.enter_async_context(_http(parts, listener))
            told = {"health": url, "socket": str(state.path(SOCKET_FOLDER)), "pid": os.getpid()}
            state.write_atomic(ADDRESS_FILE, json.dumps(told).encode())
            stack.callback(state.path(ADDRESS_FILE).unlink, missing_ok=True)
            announce(told)
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
async def _http(parts: BrowserdParts, listener: socket.socket) -> Any:
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
