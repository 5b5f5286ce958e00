"""A few browsers started in advance. Each serves one session: a used one never returns to the pool."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from palyra.browser.domain import limits
from palyra.browser.engine.background_tasks import BackgroundTasks
from palyra.browser.engine.chromium import ChromiumProcess
from palyra.errors import InvalidInput, PalyraError, Unavailable

log = logging.getLogger(__name__)


class PoolClosed(Unavailable):
    code = "browser.pool_closed"
    hint = "the browser daemon is ending"


class BadPoolSize(InvalidInput):
    code = "browser.bad_pool_size"
    hint = f"keep 0 to {limits.MAX_READY_PROCESSES} browsers ready"


class ProcessPool:
    """Spares have a blank profile, and nobody serves their guard: they reach nothing until they are taken."""

    def __init__(self, start: Callable[[], Awaitable[ChromiumProcess]], *, ready: int = limits.READY_PROCESSES) -> None:
        if not 0 <= ready <= limits.MAX_READY_PROCESSES:
            raise BadPoolSize(f"{ready} browsers cannot be kept ready", ready=ready)
        self._start = start
        self._wanted = ready
        self._spares: deque[ChromiumProcess] = deque()
        self._noticing: dict[int, asyncio.Task[None]] = {}
        self._attention = asyncio.Event()
        self._refill_task: asyncio.Task[None] | None = None
        self._ending = BackgroundTasks(log, logging.WARNING)
        self._closed = False

    @property
    def ready(self) -> int:
        return sum(spare.alive for spare in self._spares)

    def fill(self) -> None:
        if self._refill_task is None and not self._closed:
            self._refill_task = asyncio.create_task(self._refill(), name="browsers are kept ready")

    async def take(self) -> ChromiumProcess:
        if self._closed:
            raise PoolClosed("no browser is given out any more")
        try:
            while self._spares:
                spare = self._out(self._spares[0])
                if spare.alive:
                    return spare
                self._discard(spare)
            return await self._start()
        finally:
            self._attention.set()

    async def close(self) -> None:
        self._closed = True
        refill_task, self._refill_task = self._refill_task, None
        if refill_task is not None:
            refill_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await refill_task
        while self._spares:
            self._discard(self._out(self._spares[0]))
        await self._ending.wait()

    async def _refill(self) -> None:
        while True:
            self._attention.clear()
            for spare in [each for each in self._spares if not each.alive]:
                self._discard(self._out(spare))
            pause: float | None = None
            while len(self._spares) < self._wanted:
                try:
                    self._add(await self._start())
                except PalyraError as problem:
                    log.warning("a browser could not be kept ready: %s", problem.message)
                    pause = limits.RETRY_SECONDS
                    break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._attention.wait()
            # The taker's first page has priority: another start would slow it down.
            await asyncio.sleep(limits.REFILL_SECONDS)

    def _add(self, spare: ChromiumProcess) -> None:
        self._spares.append(spare)
        self._noticing[id(spare)] = asyncio.create_task(self._notice(spare), name="a spare browser is watched")

    def _out(self, spare: ChromiumProcess) -> ChromiumProcess:
        self._spares.remove(spare)
        self._noticing.pop(id(spare)).cancel()
        return spare

    async def _notice(self, spare: ChromiumProcess) -> None:
        await spare.ended.wait()
        self._attention.set()

    def _discard(self, spare: ChromiumProcess) -> None:
        self._ending.start(spare.close(graceful=False), "a spare browser is ended")
