"""A gateway for one command line, without a daemon."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.operator_token import operator_token
from palyra.daemon.settings import Settings
from palyra.secret import Secret
from palyra.server.http.app import create_app


class _LeavesNothing:
    """Ends what a request started together with the request: without a daemon there is nobody to look after it."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            await self._gateway.processes.close()
            if self._gateway.has("mcp"):
                await self._gateway.mcp.close()
            if self._gateway.has("wasm"):
                await self._gateway.wasm.close()


@contextmanager
def embedded_app(
    settings: Settings, state: StateDir, policy_dir: Path, settings_file: Path | None = None
) -> Iterator[tuple[ASGIApp, Secret]]:
    """Build the same API without a daemon, for one command line. Its calls come through the channel ``cli``."""
    gateway = Gateway(settings, state, policy_dir, channel="cli", settings_file=settings_file)
    try:
        gateway.release_abandoned()
        gateway.arguments.drop_expired()
        yield _LeavesNothing(create_app(gateway.service), gateway), operator_token(gateway.store, state, settings)
    finally:
        gateway.close()
