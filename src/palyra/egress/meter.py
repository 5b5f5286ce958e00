"""Counting the bytes of one call and of each of its tunnels against the call's budget.

Counted is what crosses the proxy's outer side, in both directions together: heads and TLS records too, the client's
conversation with the proxy not.
"""

from palyra.egress.refusal import ByteBudgetSpent


class ByteBudget:
    """What all tunnels of one grant may move together."""

    __slots__ = ("down", "limit", "up")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.up = 0
        self.down = 0

    @property
    def granted(self) -> int:
        """What a refusal names."""
        return self.limit

    def extend(self, count: int) -> int:
        """What is left, after an attempt to have ``count`` of it: a budget that is nobody else's does not grow."""
        return self.limit - self.up - self.down

    @property
    def spent(self) -> int:
        return self.up + self.down


class Meter:
    """The count of one tunnel. ``left`` is asked before every read, so that no more than the budget is ever taken."""

    __slots__ = ("_budget", "down", "up")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.up = 0
        self.down = 0

    def left(self) -> int:
        budget = self._budget
        return budget.limit - budget.up - budget.down

    def count_up(self, count: int) -> None:
        self.up += count
        self._budget.up += count

    def count_down(self, count: int) -> None:
        self.down += count
        self._budget.down += count

    def spend_up(self, count: int) -> None:
        """Counts bytes that are about to go out; refuses them when they do not fit."""
        if not self.covers(count):
            raise self.exceeded()
        self.count_up(count)

    def covers(self, count: int) -> bool:
        return count <= self.left() or count <= self._budget.extend(count)

    def exceeded(self) -> ByteBudgetSpent:
        return ByteBudgetSpent(
            f"the call's {self._budget.granted} bytes of network traffic are spent", limit=self._budget.granted
        )
