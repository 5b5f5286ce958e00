"""What a client hears of its call while it runs: each step as the journal has it, as progress and as log messages."""

from collections.abc import Callable
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palyra.mcp.instructions import NAME
from palyra.mcp.limits import PROGRESS_SECONDS
from palyra.mcp.log_levels import level_of
from palyra.mcp.ports import News, ToolCall
from palyra.mcp.tool_names import to_client

Context = ServerRequestContext[Any, Any]


class CallTelling:
    def __init__(
        self, ctx: Context, asked: ToolCall, *, progress: bool, log: bool, wanted: Callable[[str], bool]
    ) -> None:
        self.progress = progress
        self.log = log
        self._ctx = ctx
        self._asked = asked
        self._name = to_client(asked.tool)
        self._wanted = wanted
        self._since = anyio.current_time()
        self._words = "asked for"

    async def tell(self, news: News) -> None:
        async with anyio.create_task_group() as beside:
            if self.progress:
                beside.start_soon(self._tick)
            async for kind in news:
                self._words = kind
                await self._step(kind)
            beside.cancel_scope.cancel()

    async def _tick(self) -> None:
        """Seconds in between."""
        while True:
            await self._progress()
            await anyio.sleep(PROGRESS_SECONDS)

    async def _progress(self) -> None:
        elapsed = round(anyio.current_time() - self._since, 3)
        await self._ctx.session.report_progress(elapsed, None, f"{self._name}: {self._words}")

    async def _step(self, kind: str) -> None:
        if self.progress:
            await self._progress()
        level = level_of(kind)
        # A newer revision's own level is kept to by the library.
        if self.log and (self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or self._wanted(level)):
            told = {"event": kind, "tool": self._name, "call_id": self._asked.call_id, "run_id": self._asked.run_id}
            await self._ctx.session.send_log_message(level, told, NAME, self._ctx.request_id)
