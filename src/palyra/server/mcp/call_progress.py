"""The progress of a running call, as its client reads it."""

from collections.abc import Callable
from typing import Any, Final, Literal

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palyra.executors.mcp_upstream.limits import PROGRESS_SECONDS
from palyra.server.mcp.backend import CallEvents, ToolCall
from palyra.server.mcp.client_view import NAME, to_client

Context = ServerRequestContext[Any, Any]
# Events that report that a call was kept from its work.
_WARNINGS: Final = frozenset({"call.refused", "egress.refused", "skill.refused", "vault.use_denied"})


def level_of(kind: str) -> Literal["info", "warning"]:
    return "warning" if kind in _WARNINGS else "info"


class CallProgress:
    """Sends the steps of a running call to its client, as progress and as log messages."""

    def __init__(
        self, ctx: Context, call: ToolCall, *, progress: bool, log: bool, wanted: Callable[[str], bool]
    ) -> None:
        self._ctx = ctx
        self._call = call
        self._progress = progress
        self._log = log
        self._name = to_client(call.tool)
        self._wanted = wanted
        self._since = anyio.current_time()
        self._newest = "asked for"

    async def send(self, events: CallEvents) -> None:
        """Send a message for each event, and progress every few seconds, until the events end."""
        async with anyio.create_task_group() as beside:
            if self._progress:
                beside.start_soon(self._tick)
            async for kind in events:
                self._newest = kind
                await self._send_step(kind)
            beside.cancel_scope.cancel()

    async def _tick(self) -> None:
        while True:
            await self._send_progress()
            await anyio.sleep(PROGRESS_SECONDS)

    async def _send_progress(self) -> None:
        elapsed = round(anyio.current_time() - self._since, 3)
        await self._ctx.session.report_progress(elapsed, None, f"{self._name}: {self._newest}")

    async def _send_step(self, kind: str) -> None:
        if self._progress:
            await self._send_progress()
        level = level_of(kind)
        # The protocol's library filters by the level of a newer revision.
        if self._log and (self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or self._wanted(level)):
            data = {"event": kind, "tool": self._name, "call_id": self._call.call_id, "run_id": self._call.run_id}
            await self._ctx.session.send_log_message(level, data, NAME, self._ctx.request_id)
