"""Wait in a test for something that happens in a moment."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")
# Only a test that fails waits for so long.
SECONDS = 60.0


async def eventually(condition: Callable[[], Awaitable[T] | T], seconds: float = SECONDS, *, every: float = 0.01) -> T:
    """Return the first true value of the condition. ``every`` of 0 asks in each turn of the event loop."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        value = await found if inspect.isawaitable(found) else cast("T", found)
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not happen within {seconds:g} seconds")
        await asyncio.sleep(every)


def eventually_sync(condition: Callable[[], T], seconds: float = SECONDS, *, every: float = 0.01) -> T:
    """Return the first true value of the condition, in a test without an event loop."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not happen within {seconds:g} seconds")
        time.sleep(every)
    return value
