"""Units of work that share one commit, and the callers and readers of this process that are notified of it."""

import asyncio
import concurrent.futures
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

import msgspec

from palyra.errors import InternalError, LimitExceeded, PalyraError
from palyra.store.event import Event

# Enough for every caller the daemon admits, small enough that the last one's wait stays short.
MAX_BATCH_UNITS = 512
# What one slow reader may hold in memory.
MAX_WAITING_EVENTS = 1024

Outcome = tuple["Unit", Any, BaseException | None]
# None is the end: nothing comes after it.
Queue = queue.SimpleQueue["Unit | None"]


class EventsLost(LimitExceeded):
    code = "journal.subscriber_lagged"
    hint = "read the events since the last one you saw from the journal, then go on listening"


class Unit:
    """One caller's work and the future of its result; ``loop`` is None for a caller that blocks its thread.

    A unit with ``keep`` runs also after its caller was cancelled.
    """

    __slots__ = ("essential", "future", "keep", "loop", "seal", "work")

    def __init__(
        self,
        work: Callable[[Any], Any],
        loop: asyncio.AbstractEventLoop | None,
        *,
        essential: bool = False,
        seal: bool = False,
        keep: bool = False,
    ) -> None:
        self.work = work
        self.essential = essential
        self.seal = seal
        self.keep = keep
        self.loop = loop
        self.future: asyncio.Future[Any] | concurrent.futures.Future[Any] = (
            concurrent.futures.Future() if loop is None else loop.create_future()
        )


class Commit(msgspec.Struct, kw_only=True):
    """What one commit did, or failed to do."""

    outcomes: list[Outcome]
    events: Sequence[Event] = ()
    first_seq: int = 0
    last_seq: int = 0


def take_batch(waiting: Queue, timeout: float | None) -> tuple[list[Unit], bool, bool]:
    """Wait for a unit and take all that wait by then; return also whether to go on, and whether to seal.

    The batch seals when the timeout passed without a unit, and at the end.
    """
    units: list[Unit] = []
    try:
        unit = waiting.get(timeout=timeout)
    except queue.Empty:
        return units, True, True
    try:
        while unit is not None:
            units.append(unit)
            if len(units) == MAX_BATCH_UNITS:
                return units, True, False
            unit = waiting.get_nowait()
    except queue.Empty:
        return units, True, False
    return units, False, True


def fail_all(units: Sequence[Unit], error: Exception) -> list[Outcome]:
    """Give each caller an exception of its own: one shared by many tasks would collect all their tracebacks."""
    cause: BaseException | None = error
    if isinstance(error, PalyraError):
        fault, cause = error, error.__cause__
    else:
        fault = InternalError(f"the journal's writer failed ({type(error).__name__})")
    outcomes: list[Outcome] = []
    for unit in units:
        own = type(fault)(fault.message, hint=fault.hint, **fault.details)
        own.__cause__ = cause
        outcomes.append((unit, None, own))
    return outcomes


class Subscription:
    """An async iterator of committed events. It belongs to the event loop it was made on.

    It is a hint, not the truth. ``EventsLost`` is raised once after events were dropped, or after another process
    committed some; the reader then reads the table, and skips what that reading already gave it.
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
        """Queue events for the reader. Called on the subscription's loop."""
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


class Notifier:
    """Notifies the callers of a commit and the subscriptions of this process, from the writer's thread."""

    def __init__(self, head: int) -> None:
        """``head`` is the number of the newest event before the first commit."""
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._published_head = head

    def add(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

    def notify(self, commit: Commit) -> None:
        """Wake each event loop once, however many callers and readers it has."""
        events = commit.events
        others_wrote = commit.first_seq > self._published_head
        if events:
            self._published_head = commit.last_seq
        waiting: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
        for outcome in commit.outcomes:
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
                # The loop was closed: nobody waits on it.
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
