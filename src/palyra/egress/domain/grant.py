"""What one call may reach: a value that the daemon makes from settings, policy and the call, and others only read."""

import msgspec

from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.refusal import ByteBudgetSpent
from palyra.egress.domain.rules import HostRule
from palyra.egress.limits import DEFAULT_MAX_CALL_BYTES, DEFAULT_MAX_TUNNELS


class EgressGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts of one call, with its bounds.

    ``private_targets`` open nothing by themselves: a host that ``rules`` allow and that stands here too may have
    addresses on private networks or on this machine.

    ``any_public_host`` is no rule and stands in no list: besides what ``rules`` allow, every host at the ports of the
    web, as long as all its addresses are public. Only browser sessions are given it, and only where it was asked for.
    """

    grant_id: str
    principal: str
    run: str
    call: str
    tool: str
    rules: tuple[HostRule, ...]
    private_targets: tuple[HostRule, ...] = ()
    any_public_host: bool = False
    bindings: tuple[CredentialBindingPlan, ...] = ()
    max_bytes: int = DEFAULT_MAX_CALL_BYTES
    max_tunnels: int = DEFAULT_MAX_TUNNELS

    def exact_names(self) -> tuple[str, ...]:
        """The names, not addresses, that rules give in full, each once and in their order."""
        return tuple(dict.fromkeys(rule.host for rule in self.rules if not rule.below and not rule.is_address))

    def ports(self) -> tuple[int, ...]:
        """Every port that some rule opens, in ascending order."""
        return tuple(sorted({port for rule in self.rules for port in rule.ports}))


# Counting the bytes of one call and of each of its tunnels against the call's budget.
#
# Counted is what crosses the proxy's outer side, in both directions together: heads and TLS records too, the client's
# conversation with the proxy not.


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
