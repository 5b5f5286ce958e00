"""Committed events, handed to readers in the same process as they happen.

A hint, not the truth: a reader that falls behind is told that it lost some and reads the table from where it was.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from palyra.errors import LimitExceeded
from palyra.store.event import Event
from palyra.store.sqlite.unit_of_work import Outcome

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


# Who is told of a commit: the callers whose work is in it, and the readers of this process.


class Teller:
    def __init__(self, head: int) -> None:
        """``head`` is the newest event before the first commit that is told of."""
        self._gate = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._published_head = head

    def add(self, subscription: Subscription) -> None:
        with self._gate:
            self._subscriptions = (*self._subscriptions, subscription)

    def remove(self, subscription: Subscription) -> None:
        with self._gate:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

    def tell(self, outcomes: Sequence[Outcome], events: Sequence[Event], *, first_head: int, last_head: int) -> None:
        """One wake-up per event loop and commit, however many callers and readers it has there."""
        others_wrote = first_head > self._published_head
        if events:
            self._published_head = last_head
        waiting: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
        for outcome in outcomes:
            loop = outcome[0].loop
            if loop is None:
                _resolve([outcome])
            else:
                waiting.setdefault(loop, []).append(outcome)
        readers: dict[asyncio.AbstractEventLoop, list[Subscription]] = {}
        if events:
            for subscription in self._subscriptions:
                readers.setdefault(subscription.loop, []).append(subscription)
        for loop in {**waiting, **readers}:
            try:
                loop.call_soon_threadsafe(_deliver, waiting.get(loop, ()), readers.get(loop, ()), events, others_wrote)
            except RuntimeError:
                # The loop was closed; nobody is left on it to tell.
                continue


def _deliver(
    outcomes: Sequence[Outcome], readers: Sequence[Subscription], events: Sequence[Event], others_wrote: bool
) -> None:
    for reader in readers:
        reader.deliver(events, others_wrote=others_wrote)
    _resolve(outcomes)


def _resolve(outcomes: Sequence[Outcome]) -> None:
    for unit, result, error in outcomes:
        future = unit.future
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
