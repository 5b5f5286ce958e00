"""Grant of one call: its hosts and bounds. The daemon makes it from settings, policy and the call."""

import msgspec

from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.refusal import ByteBudgetSpent
from palyra.egress.domain.request_rules import RequestRule, is_inspected
from palyra.egress.domain.rules import HostRule
from palyra.egress.domain.target import Target
from palyra.egress.limits import DEFAULT_MAX_CALL_BYTES, DEFAULT_MAX_TUNNELS


class EgressGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts of one call, with its bounds.

    A host that ``rules`` allow may have addresses on private networks, or on this machine, only if it is also in
    ``private_targets``. These open nothing by themselves.

    A host that ``request_rules`` name takes only the requests they cover.

    ``any_public_host`` also allows every host at the ports of the web, as long as all its addresses are public. Only
    browser sessions get it, and only where it was asked for.
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
    request_rules: tuple[RequestRule, ...] = ()
    max_bytes: int = DEFAULT_MAX_CALL_BYTES
    max_tunnels: int = DEFAULT_MAX_TUNNELS

    def exact_names(self) -> tuple[str, ...]:
        """Return the names that rules give in full, without addresses, each once and in order."""
        return tuple(dict.fromkeys(rule.host for rule in self.rules if not rule.below and not rule.is_address))

    def inspects(self, target: Target) -> bool:
        return bool(self.request_rules) and is_inspected(self.request_rules, target)

    @property
    def read_hosts(self) -> tuple[str, ...]:
        """The rules of the hosts for which the proxy ends TLS and reads requests."""
        bound = (host for binding in self.bindings for host in binding.hosts)
        return (*bound, *(host for rule in self.request_rules for host in rule.hosts))

    def ports(self) -> tuple[int, ...]:
        return tuple(sorted({port for rule in self.rules for port in rule.ports}))


class ByteBudget:
    """Bytes that all tunnels of one grant may move together.

    Counted are the bytes between proxy and target, both ways, heads and TLS records too. The client's conversation
    with the proxy is not counted.
    """

    __slots__ = ("down", "limit", "up")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.up = 0
        self.down = 0

    @property
    def spent(self) -> int:
        return self.up + self.down


class Meter:
    """Count of one tunnel. Readers ask ``left`` before every read, so that no tunnel reads past the budget."""

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
        if not self.covers(count):
            raise self.exceeded()
        self.count_up(count)

    def covers(self, count: int) -> bool:
        return count <= self.left()

    def exceeded(self) -> ByteBudgetSpent:
        limit = self._budget.limit
        return ByteBudgetSpent(f"the call's {limit} bytes of network traffic are spent", limit=limit)
