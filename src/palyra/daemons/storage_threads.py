"""Threads for what skills store. The disk makes whoever uses it wait, and so does another who uses the same folder: a
skill that asks for much keeps itself waiting, and nobody else in the daemon."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

R = TypeVar("R")
# Skills that use their storage at once. Each has one thread at most: its folder is one's alone for as long.
MAX_STORAGE_THREADS: Final = 4


class StorageThreads:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_STORAGE_THREADS, thread_name_prefix="palyra-skill-storage")
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def run(self, skill_id: str, work: Callable[[], R]) -> R:
        """In its turn. Who waits no longer leaves a thread at work: the turn ends with that."""
        turn = self._turns.setdefault(skill_id, asyncio.Semaphore(1))
        await turn.acquire()
        try:
            working = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            turn.release()
            raise
        working.add_done_callback(partial(_end, turn))
        return await asyncio.shield(working)


def _end(turn: asyncio.Semaphore, working: "asyncio.Future[object]") -> None:
    turn.release()
    if not working.cancelled():
        # Told to whoever waits; nobody may.
        working.exception()
