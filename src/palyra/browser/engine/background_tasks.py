"""Tasks that nobody awaits: kept from being collected, logged when they fail, and ended together."""

import asyncio
import logging
from collections.abc import Awaitable

from palyra.errors import PalyraError


class BackgroundTasks:
    def __init__(self, log: logging.Logger, level: int = logging.INFO) -> None:
        self._log = log
        self._level = level
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Awaitable[object], name: str) -> None:
        task = asyncio.create_task(self._run(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait()

    async def wait(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, work: Awaitable[object], name: str) -> None:
        try:
            await work
        except PalyraError as problem:
            self._log.log(self._level, "%s: %s", name, problem.message)
        except Exception:
            self._log.exception("%s failed", name)
