"""What one call may reach: a value that the daemon makes from settings, policy and the call, and others only read."""

import msgspec

from palyra.egress.credential import CredentialBindingPlan
from palyra.egress.limits import DEFAULT_MAX_CALL_BYTES, DEFAULT_MAX_TUNNELS
from palyra.egress.rules import HostRule


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
