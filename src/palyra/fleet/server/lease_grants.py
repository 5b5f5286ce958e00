"""The daemon's side: what each egress proxy is told about the leases of its worker.

Pure. Nothing here is kept over a restart: a proxy that comes back is told which leases the ledger has open, and goes on
with the grants that it holds for those. A lease whose grant was lost on the way reaches nothing.
"""

from collections.abc import Callable, Iterable

from palyra.egress.domain.rules import parse_rules
from palyra.fleet import limits
from palyra.fleet.egress.leases import LeaseGrant, LeaseRef, Orders


class OrderQueue:
    """What one connected proxy has not been told yet. One that does not read is given up, not waited for.

    ``changed`` is called when there is something new, or somebody else follows in its place.
    """

    def __init__(self) -> None:
        self.changed: Callable[[], None] = _nobody
        self._granted: list[LeaseGrant] = []
        self._ended: list[LeaseRef] = []
        self.overrun = False

    def add(self, *, granted: LeaseGrant | None = None, ended: LeaseRef | None = None) -> None:
        if len(self._granted) + len(self._ended) >= limits.MAX_ORDERS_WAITING:
            self.overrun = True
        elif granted is not None:
            self._granted.append(granted)
        elif ended is not None:
            self._ended.append(ended)
        self.changed()

    def take(self) -> Orders | None:
        if not self._granted and not self._ended:
            return None
        orders = Orders(granted=tuple(self._granted), ended=tuple(self._ended))
        self._granted.clear()
        self._ended.clear()
        return orders


class LeaseGrants:
    """Grants in force, by proxy. Who follows has a queue; the newest follower of an identity is the one."""

    def __init__(self) -> None:
        self._grants: dict[str, tuple[str, LeaseGrant]] = {}
        self._queues: dict[str, OrderQueue] = {}

    def grant(self, egress_id: str, grant: LeaseGrant) -> bool:
        """Before the lease is offered to its worker. False where the proxy is not connected now: it is told as soon as
        it is."""
        parse_rules(grant.hosts)
        self._grants[grant.lease_id] = (egress_id, grant)
        queue = self._queues.get(egress_id)
        if queue is not None:
            queue.add(granted=grant)
        return queue is not None

    def end(self, lease_id: str) -> None:
        """However the lease ended; one that has no grant is none of ours."""
        egress_id, grant = self._grants.pop(lease_id, ("", None))
        queue = self._queues.get(egress_id)
        if grant is not None and queue is not None:
            queue.add(ended=LeaseRef(grant.lease_id, grant.fence))

    def __len__(self) -> int:
        return len(self._grants)

    def attach(self, egress_id: str, still_open: Iterable[LeaseRef]) -> tuple[Orders, OrderQueue]:
        """The whole list for a proxy that begins to follow, and where what changes from now on gathers."""
        older = self._queues.get(egress_id)
        queue = self._queues[egress_id] = OrderQueue()
        if older is not None:
            older.changed()
        granted = tuple(grant for whose, grant in self._grants.values() if whose == egress_id)
        listed = {*still_open, *(LeaseRef(each.lease_id, each.fence) for each in granted)}
        ordered = tuple(sorted(listed, key=lambda each: each.lease_id))
        return Orders(whole=True, still_open=ordered, granted=granted), queue

    def is_followed_by(self, egress_id: str, queue: OrderQueue) -> bool:
        return self._queues.get(egress_id) is queue

    def detach(self, egress_id: str, queue: OrderQueue) -> None:
        if self.is_followed_by(egress_id, queue):
            del self._queues[egress_id]


def _nobody() -> None:
    return
