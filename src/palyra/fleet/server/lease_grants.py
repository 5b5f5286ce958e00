"""The daemon's grants to egress proxies, and the queue of orders for each connected proxy.

Pure, and not stored. After a restart a proxy gets the list of the leases that the ledger has open, and keeps its grants
for those. A lease whose grant was lost reaches nothing.
"""

from collections.abc import Callable, Iterable

from palyra.egress.domain.rules import parse_rules
from palyra.fleet import limits
from palyra.fleet.egress.leases import LeaseGrant, LeaseRef, Orders


class OrderQueue:
    """The orders that one connected proxy has not received yet. A proxy that does not read is disconnected.

    ``changed`` is called for a new order, and when a newer connection takes over.
    """

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
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
    """The grants in force, by proxy. Only the newest connection of a proxy has a queue."""

    def __init__(self) -> None:
        self._grants: dict[str, tuple[str, LeaseGrant]] = {}
        self._queues: dict[str, OrderQueue] = {}

    def grant(self, egress_id: str, grant: LeaseGrant) -> bool:
        """Grant a lease before its offer to the worker. Return False if the proxy gets it at its next connection."""
        parse_rules(grant.hosts)
        self._grants[grant.lease_id] = (egress_id, grant)
        queue = self._queues.get(egress_id)
        if queue is not None:
            queue.add(granted=grant)
        return queue is not None

    def end(self, lease_id: str) -> None:
        """End a grant, if the lease has one."""
        egress_id, grant = self._grants.pop(lease_id, ("", None))
        queue = self._queues.get(egress_id)
        if grant is not None and queue is not None:
            queue.add(ended=LeaseRef(grant.lease_id, grant.fence))

    def attach(self, egress_id: str, still_open: Iterable[LeaseRef]) -> tuple[Orders, OrderQueue]:
        """Return the whole list for a connecting proxy, and the queue of later orders."""
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
