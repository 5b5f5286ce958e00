"""The daemon: serves a gateway over HTTP until a signal stops it."""

import asyncio
import contextlib
import ipaddress
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import uvicorn

from palyra.config.state_dir import LOCK_FILE, StateDir, take_daemon_lock
from palyra.daemon.console_wiring import build_console
from palyra.daemon.gateway_wiring import Gateway, running_gateway
from palyra.daemon.operator_token import operator_token
from palyra.daemon.process_setup import keep_memory_private, return_large_blocks, settle_in
from palyra.daemon.service_manager import notify_ready
from palyra.daemon.settings import Settings
from palyra.errors import InvalidInput, Unavailable
from palyra.limits import GRACEFUL_STOP_SECONDS
from palyra.secret import Secret
from palyra.server.console.security import Forgeries
from palyra.server.http.app import HostGuard, create_app
from palyra.server.listener import BoundedHttpProtocol, Front, console_routes

ADDRESS_FILE = "daemon.json"
BACKLOG = 1024


class InsecureBind(InvalidInput):
    code = "daemon.insecure_bind"
    hint = "listen on 127.0.0.1 or ::1; put a TLS proxy in front to serve other machines"


class PortTaken(Unavailable):
    code = "daemon.port_taken"
    hint = "stop what listens there, or choose another daemon.port (0 takes any free one)"


Announce = Callable[[str, Secret, Gateway], None]
Beside = Callable[[Gateway], AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def nothing_beside(_gateway: Gateway) -> AsyncIterator[None]:
    yield


async def serve(
    settings: Settings,
    state: StateDir,
    policy_dir: Path,
    announce: Announce,
    beside: Beside = nothing_beside,
    settings_file: Path | None = None,
) -> None:
    """Run the daemon in the foreground.

    SIGTERM and SIGINT end it in order: no new calls, running ones finish or are cancelled, the journal is sealed.
    ``beside`` runs from the first answer until the calls have ended.
    """
    keep_memory_private()
    return_large_blocks()
    lock = take_daemon_lock(state.path(LOCK_FILE))
    try:
        listener = bind(settings.daemon.host, settings.daemon.port)
        with contextlib.closing(listener):
            async with running_gateway(settings, state, policy_dir, settings_file) as gateway:
                await _serve(gateway, listener, settings, state, announce, beside)
    finally:
        with contextlib.suppress(FileNotFoundError):
            state.path(ADDRESS_FILE).unlink()
        lock.release(remove=False)


async def _serve(
    gateway: Gateway,
    listener: socket.socket,
    settings: Settings,
    state: StateDir,
    announce: Announce,
    beside: Beside,
) -> None:
    address = listener.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    url = f"http://{host}:{address[1]}"
    token = await asyncio.to_thread(operator_token, gateway.store, state, settings)
    server = ServerWithoutSignals(
        uvicorn.Config(
            HostGuard(
                Front(create_app(gateway.service, console_routes), partial(build_console, gateway)),
                frozenset(("localhost", "127.0.0.1", "[::1]", host)),
                Forgeries(gateway.store, gateway.clock).note,
            ),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(GRACEFUL_STOP_SECONDS),
            http=BoundedHttpProtocol,
        )
    )
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listener]))
        await server.listening.wait()
        state.write_atomic(ADDRESS_FILE, json.dumps({"url": url, "pid": os.getpid()}).encode())
        announce(url, token, gateway)
        settle_in()
        async with beside(gateway), notify_ready(f"listening on {url}") as manager:
            await stop.wait()
            manager.stopping("running calls end")
            gateway.service.end_streams()
            gateway.mcp.close_streams()
            await gateway.broker.stop(GRACEFUL_STOP_SECONDS)
        server.should_exit = True
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)


class ServerWithoutSignals(uvicorn.Server):
    """Uvicorn without its own signal handling: stopping is a matter of the calls first, and of the sockets second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    try:
        literal = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise InsecureBind(f"daemon.host {host!r} is not an address") from None
    if not literal.is_loopback:
        raise InsecureBind(f"{host} is not a loopback address, and this listener has no TLS")
    listener = socket.socket(socket.AF_INET6 if literal.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(literal), port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortTaken(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener
