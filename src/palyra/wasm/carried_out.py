"""Work on a thread that is carried out to its end, also when whoever waits for it is cancelled meanwhile.

A thread cannot be stopped: what it uses must stay until it is done, and what it made must not be lost.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def carried_out(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """What ``work`` returns. A cancelled caller gets its cancellation when the work is done and undone again."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise
