"""The connection to the browser daemon: made at the first use, and made again when the daemon is another one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palyra.browser.domain.session_api import PROTOCOL_VERSION
from palyra.errors import Unavailable

if TYPE_CHECKING:
    from palyra.browser.service.client import BrowserClient

# A browser daemon may start together with this one. In this daemon's first minute a call waits this long for it.
STARTING_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.1
START_HINT: Final = "start it with `palyra up`, which starts the browser daemon too, or with `palyra-browserd`"


class BrowserUnavailable(Unavailable):
    code = "browser.unavailable"
    hint = START_HINT


class BrowserNeedsDaemon(Unavailable):
    code = "browser.needs_daemon"
    hint = "a browser session outlives a single command: start the daemon with `palyra up`, then try again"


class BrowserOff(Unavailable):
    code = "browser.disabled"
    hint = "the setting browser.enabled is false"


class BrowserLink:
    """Connects on demand, and awaits ``on_connect``. It waits for a daemon only if the file ``trace`` exists."""

    def __init__(self, folder: Path, trace: Path, on_connect: "Callable[[BrowserClient], Awaitable[None]]") -> None:
        self._folder = folder
        self._trace = trace
        self._on_connect = on_connect
        self._client: BrowserClient | None = None
        # Given up, and perhaps still in use by calls that are about to fail.
        self._given_up: BrowserClient | None = None
        self._connecting = asyncio.Lock()
        self._since = time.monotonic()

    @property
    def connected(self) -> bool:
        return self._client is not None

    async def client(self) -> "BrowserClient":
        """Raise ``BrowserUnavailable`` where no daemon answers."""
        if self._client is not None:
            return self._client
        async with self._connecting:
            if self._client is None:
                self._client = await self._started()
            return self._client

    async def lost(self, client: "BrowserClient") -> None:
        if self._client is client:
            before, self._given_up, self._client = self._given_up, client, None
            if before is not None:
                await before.close()

    async def close(self) -> None:
        clients = (self._client, self._given_up)
        self._client = self._given_up = None
        for client in clients:
            if client is not None:
                await client.close()

    async def _started(self) -> "BrowserClient":
        began = time.monotonic()
        is_early = began - self._since < STARTING_SECONDS and self._trace.exists()
        until = began + WAIT_SECONDS if is_early else began
        while True:
            try:
                return await self._connect()
            except BrowserUnavailable:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    async def _connect(self) -> "BrowserClient":
        # Only calls that use a browser load gRPC.
        from palyra.browser.service.access import BrowserAway, NotAdmitted
        from palyra.browser.service.client import BrowserClient

        client: BrowserClient | None = None
        try:
            client = BrowserClient.at(self._folder)
            health = await client.health()
            if health.protocol_version != PROTOCOL_VERSION:
                raise BrowserUnavailable(
                    f"the browser daemon speaks version {health.protocol_version} and not {PROTOCOL_VERSION}",
                    hint="stop it and start the one of this version",
                )
            await self._on_connect(client)
        except BaseException as failure:
            if client is not None:
                await client.close()
            if isinstance(failure, NotAdmitted):
                text = "a browser daemon runs, and the token beside its socket is not its own"
                raise BrowserUnavailable(text, hint=failure.hint) from failure
            if isinstance(failure, BrowserAway):
                raise BrowserUnavailable(f"no browser daemon runs: {failure.message}") from failure
            raise
        return client
