"""The proxy's own policy: the most that any lease may reach from this machine, whatever the daemon grants.

A binding names its digest, and the daemon's settings list the trusted digests. Files with the same meaning have the
same digest.
"""

from typing import Any, Self

import msgspec

from palyra.canonical import digest_of
from palyra.egress.domain.rules import HostRule, is_within, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import DEFAULT_MAX_CALL_BYTES, DEFAULT_MAX_TUNNELS, MAX_STATIC_ADDRESSES, MAX_TUNNELS
from palyra.errors import PalyraError
from palyra.fleet.egress.leases import BadEgressPolicy, BeyondPolicy
from palyra.fleet.limits import MAX_POLICY_HOSTS

_MS_PER_HOUR = 3_600_000


class WorkerEgressPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the policy file. Empty lists allow nothing. ``static_hosts`` are names with their addresses.

    A lease reaches a host on a private network only if ``private_targets`` has it and the lease's grant names it.
    """

    allowed_hosts: tuple[str, ...] = ()
    private_targets: tuple[str, ...] = ()
    static_hosts: dict[str, tuple[str, ...]] = {}
    upstream: str = ""
    max_lease_bytes: int = DEFAULT_MAX_CALL_BYTES
    max_tunnels: int = DEFAULT_MAX_TUNNELS
    idle_ms: int = 120_000

    @classmethod
    def of(cls, document: Any) -> Self:
        """Read the document of a policy file. Every host gets its canonical spelling, once."""
        try:
            read = msgspec.convert(document, cls)
            if max(len(read.allowed_hosts), len(read.private_targets), len(read.static_hosts)) > MAX_POLICY_HOSTS:
                raise BadEgressPolicy(f"a list of the policy has at most {MAX_POLICY_HOSTS} entries")
            read = msgspec.structs.replace(
                read,
                allowed_hosts=_spelled(read.allowed_hosts),
                private_targets=_spelled(read.private_targets),
                static_hosts={
                    Target.of(name, 1, scheme="tcp").host: addresses for name, addresses in read.static_hosts.items()
                },
            )
        except msgspec.ValidationError as error:
            raise BadEgressPolicy(f"the policy cannot be read: {error}") from error
        except PalyraError as error:
            raise BadEgressPolicy(f"the policy cannot be read: {error.message}") from error
        read.require_bounds()
        return read

    def require_bounds(self) -> None:
        for name, most in (("max_lease_bytes", 1 << 50), ("max_tunnels", MAX_TUNNELS), ("idle_ms", _MS_PER_HOUR)):
            if not 0 < getattr(self, name) <= most:
                raise BadEgressPolicy(f"{name} is {getattr(self, name)}, not between 1 and {most}")
        if any(len(addresses) > MAX_STATIC_ADDRESSES for addresses in self.static_hosts.values()):
            raise BadEgressPolicy(f"a static host has at most {MAX_STATIC_ADDRESSES} addresses")

    def digest(self) -> str:
        return digest_of(msgspec.to_builtins(self))

    def require_within(self, hosts: tuple[str, ...]) -> tuple[HostRule, ...]:
        """Return the rules of a grant. Raise unless this policy allows all of them."""
        ceiling = parse_rules(self.allowed_hosts)
        rules = parse_rules(hosts)
        for rule in rules:
            if not is_within(rule, ceiling):
                raise BeyondPolicy(f"{rule} is not within what this proxy allows", host=str(rule))
        return rules


def _spelled(hosts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({str(rule) for rule in parse_rules(hosts)}))
