"""The wiring of the Model Context Protocol: the server for agents, and the upstream servers."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.errors import Unavailable
from palyra.executors.mcp_upstream.executor import McpServers
from palyra.executors.network.service import NetworkService
from palyra.pipeline.catalog import Catalog
from palyra.store.sqlite.store import SqliteStore
from palyra.vault.access import DecidedSecrets
from palyra.version import VERSION

if TYPE_CHECKING:
    from palyra.server.context import ApiService
    from palyra.server.mcp.transports import McpTransport

log = logging.getLogger("palyra.mcp")

# An empty file in the state directory of a daemon that has served agents. It loads the protocol's library at its start.
USED_FILE = "mcp.used"
# Clients restart their servers now and then: a daemon that left at once would start each time.
LINGER_SECONDS = 30.0


class McpDisabled(Unavailable):
    code = "mcp.disabled"
    hint = "the setting mcp.enabled is false"


class McpServices:
    def __init__(
        self,
        settings: Settings,
        state: StateDir,
        service: "Callable[[], ApiService]",
        *,
        store: SqliteStore,
        catalog: Catalog,
        egress: NetworkService,
        secrets: DecidedSecrets,
        actor: str,
    ) -> None:
        self._settings = settings.mcp
        self._state = state
        self._service = service
        self._used = False
        self.servers = McpServers(
            settings.mcp.servers,
            state,
            store=store,
            catalog=catalog,
            egress=egress,
            secrets=secrets,
            settings=settings.egress,
            protected_names=settings.workspace.protected,
            actor=actor,
        )
        for name in settings.mcp.servers:
            if kept := self.servers.kept_folder(name):
                log.warning("%s is kept and used by nobody: principals have folders of their own now", kept)

    def transport(self) -> "McpTransport":
        if not self._settings.enabled:
            raise McpDisabled("this daemon does not speak the Model Context Protocol")
        if not self._used:
            self._used = True
            self._state.path(USED_FILE).touch(mode=0o600)
        return self._transport

    @cached_property
    def _transport(self) -> "McpTransport":
        from palyra.server.mcp.backend import McpBackend
        from palyra.server.mcp.transports import McpTransport

        return McpTransport(McpBackend(self._service(), self._settings.deciders), VERSION)

    @asynccontextmanager
    async def leaving_with_agents(self) -> AsyncIterator[None]:
        """For a daemon that an agent's client started: it stops, in order, after the last of them has left."""
        leaving = asyncio.create_task(self._leave(), name="leaving with agents")
        try:
            yield
        finally:
            leaving.cancel()
            await asyncio.wait([leaving])

    async def _leave(self) -> None:
        await self.transport().wait_until_idle(LINGER_SECONDS)
        log.info("the last agent has left")
        os.kill(os.getpid(), signal.SIGTERM)

    @asynccontextmanager
    async def preparing(self) -> AsyncIterator[None]:
        """Load the library of the protocol beside the daemon's work, if agents used it before."""
        loading = asyncio.create_task(self.prepare(), name="mcp preparation")
        try:
            yield
        finally:
            loading.cancel()
            await asyncio.wait([loading])

    async def prepare(self) -> None:
        if not self._settings.enabled or not self._state.path(USED_FILE).exists():
            return
        try:
            await self._transport.prepare()
        except Exception:
            # The daemon serves other clients too. The next agent gets the error.
            log.exception("the Model Context Protocol could not be prepared")

    def close_streams(self) -> None:
        if "_transport" in self.__dict__:
            self._transport.close_streams()

    async def close(self) -> None:
        if "_transport" in self.__dict__:
            await self._transport.close()
        await self.servers.close()
