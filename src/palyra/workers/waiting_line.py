"""Calls that wait for a worker, taken in turns by run: a run with a thousand calls does not keep others from theirs."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from palyra.errors import LimitExceeded
from palyra.workers.limits import MAX_WAITING

T = TypeVar("T")


class TooManyWaiting(LimitExceeded):
    code = "fleet.too_many_waiting"
    hint = "try again later, or add workers"


class WaitingLine(Generic[T]):
    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        self._count = 0
        # Whose turn it is next stands first.
        self._by_owner: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def add(self, owner: str, item: T) -> None:
        if self._count >= self._limit:
            raise TooManyWaiting(f"{self._count} calls wait for a worker already")
        self._by_owner.setdefault(owner, deque()).append(item)
        self._count += 1

    def take(self, fits: Callable[[T], bool]) -> T | None:
        """The next item that fits, or None. Only the oldest of each owner is looked at: an owner's order is kept."""
        for owner, items in self._by_owner.items():
            if fits(items[0]):
                item = items.popleft()
                self._count -= 1
                if items:
                    self._by_owner.move_to_end(owner)
                else:
                    del self._by_owner[owner]
                return item
        return None

    def discard(self, owner: str, item: T) -> None:
        """The one who waited gave up; nothing happens if it was taken meanwhile."""
        items = self._by_owner.get(owner)
        if items is not None and item in items:
            items.remove(item)
            self._count -= 1
            if not items:
                del self._by_owner[owner]
