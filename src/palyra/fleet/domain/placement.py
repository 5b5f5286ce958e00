"""Placement: the choice of a worker for the next lease, by capabilities, then load, then the longest wait.

The index has the workers connected to this daemon, from the records that the ledger returns. The ledger checks each
choice again. A choice looks at a few workers only, unless capabilities are rare.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from palyra.errors import LimitExceeded, Unavailable
from palyra.fleet.domain.policy import PlacementRule, WorkerFleetPolicy
from palyra.fleet.domain.worker import LEASABLE, WorkerRecord
from palyra.fleet.limits import MAX_WAITING

# Loads are compared in steps this fine.
_LOAD_STEPS: Final = 1_000


class NoWorker(Unavailable):
    code = "fleet.no_worker"
    hint = "`palyra worker list` shows the workers' capabilities and load"


@dataclass(slots=True, eq=False)
class _Candidate:
    worker_id: str
    capabilities: frozenset[str] = frozenset()
    room: int = 0
    open: int = 0
    # Chosen, and not yet decided by the ledger.
    pending: int = 0
    until_ms: int = 0
    load: int = -1
    free: int = 0


class PlacementIndex:
    def __init__(self, policy: WorkerFleetPolicy) -> None:
        self._policy = policy
        self._known: dict[str, _Candidate] = {}
        # By load. The worker that got a lease longest ago comes first.
        self._by_load: dict[int, dict[str, _Candidate]] = {}
        # The free places of all workers. At 0 no worker needs a look.
        self.free = 0

    def __len__(self) -> int:
        return len(self._known)

    def put(self, worker: WorkerRecord) -> None:
        """Update the index from the ledger's record. Leave workers out that cannot get a lease."""
        usable = worker.state in LEASABLE and worker.connected and not worker.owes and worker.attested is not None
        candidate = self._known.get(worker.worker_id)
        if not usable or worker.attested is None:
            if candidate is not None:
                self.forget(worker.worker_id)
            return
        if candidate is None:
            candidate = self._known[worker.worker_id] = _Candidate(worker.worker_id)
        candidate.capabilities = worker.attested.capabilities
        candidate.open = len(worker.open_leases)
        candidate.room = worker.room(self._policy)
        candidate.until_ms = worker.attested_until_ms(self._policy)
        self._sort_in(candidate)

    def forget(self, worker_id: str) -> None:
        candidate = self._known.pop(worker_id, None)
        if candidate is not None:
            self.free -= candidate.free
            self._take_out(candidate)

    def choose(self, needs: frozenset[str], now_ms: int) -> str:
        """Choose a worker for one lease and hold a place until ``release``. Raise NoWorker."""
        for candidate in self._in_order():
            fits = candidate.room > candidate.pending and now_ms < candidate.until_ms
            if fits and needs <= candidate.capabilities:
                candidate.pending += 1
                self._sort_in(candidate)
                return candidate.worker_id
        raise NoWorker("no connected worker that can do this has a free place")

    def release(self, worker_id: str) -> None:
        """Release the place held on a chosen worker, after the ledger has decided."""
        candidate = self._known.get(worker_id)
        if candidate is not None and candidate.pending:
            candidate.pending -= 1
            self._sort_in(candidate)

    def can_ever(self, needs: frozenset[str]) -> bool:
        """Tell whether some worker here has these capabilities, busy or not."""
        return any(needs <= candidate.capabilities for candidate in self._known.values())

    def _in_order(self) -> Iterator[_Candidate]:
        for load in sorted(self._by_load, reverse=self._policy.placement is PlacementRule.PACK):
            if load < _LOAD_STEPS:
                yield from self._by_load[load].values()

    def _sort_in(self, candidate: _Candidate) -> None:
        taken, places = candidate.open + candidate.pending, candidate.open + candidate.room
        load = taken * _LOAD_STEPS // places if places else _LOAD_STEPS
        free = max(0, candidate.room - candidate.pending)
        self.free += free - candidate.free
        candidate.free = free
        if load != candidate.load:
            self._take_out(candidate)
            candidate.load = load
            self._by_load.setdefault(load, {})[candidate.worker_id] = candidate

    def _take_out(self, candidate: _Candidate) -> None:
        same = self._by_load.get(candidate.load)
        if same is not None:
            same.pop(candidate.worker_id, None)
            if not same:
                del self._by_load[candidate.load]


T = TypeVar("T")


class TooManyWaiting(LimitExceeded):
    code = "fleet.too_many_waiting"
    hint = "try again later, or add workers"


class WaitingLine(Generic[T]):
    """Calls that wait for a worker. Principals take turns: a thousand calls of one, in any runs, block no other."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        self._count = 0
        # The owner of the next turn comes first.
        self._by_owner: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def add(self, owner: str, item: T) -> None:
        if self._count >= self._limit:
            raise TooManyWaiting(f"{self._count} calls wait for a worker already")
        self._by_owner.setdefault(owner, deque()).append(item)
        self._count += 1

    def take(self, fits: Callable[[T], bool]) -> T | None:
        """Return the next item that fits, or None. Only each owner's oldest item counts, which keeps its order."""
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
        """Remove an item. Do nothing if it was taken meanwhile."""
        items = self._by_owner.get(owner)
        if items is not None and item in items:
            items.remove(item)
            self._count -= 1
            if not items:
                del self._by_owner[owner]
