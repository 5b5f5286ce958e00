"""Committed events, handed to readers in the same process as they happen.

A hint, not the truth: a reader that falls behind is told that it lost some and reads the table from where it was.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from palyra.errors import LimitExceeded
from palyra.journal.event import Event

# What one slow reader may hold in memory.
MAX_WAITING_EVENTS = 1024


class EventsLost(LimitExceeded):
    code = "journal.subscriber_lagged"
    hint = "read the events since the last one you saw from the journal, then go on listening"


class Subscription:
    """An async iterator of events. Belongs to the event loop it was made on.

    ``EventsLost`` is raised once after events were dropped, or after another process wrote some in between; the
    subscription goes on with what is committed after that, so the reader skips what its own reading already gave it.
    """

    def __init__(self, on_close: Callable[["Subscription"], None], capacity: int = MAX_WAITING_EVENTS) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost = False
        self._on_close = on_close
        self._capacity = capacity
        self._waiting: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    def deliver(self, events: Sequence[Event], *, others_wrote: bool) -> None:
        """Called on the subscription's loop."""
        if others_wrote or len(self._waiting) + len(events) > self._capacity:
            self.lost = True
            self._waiting.clear()
        if not self.lost:
            self._waiting.extend(events)
        self._arrived.set()

    def close(self) -> None:
        self._closed = True
        self._on_close(self)
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self.lost:
                self.lost = False
                raise EventsLost("this reader fell behind the journal")
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
