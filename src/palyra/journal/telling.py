"""Who is told of a commit: the callers whose work is in it, and the readers of this process."""

import asyncio
import threading
from collections.abc import Sequence

from palyra.journal.event import Event
from palyra.journal.subscription import Subscription
from palyra.journal.unit import Outcome


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
