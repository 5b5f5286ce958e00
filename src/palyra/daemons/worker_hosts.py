"""What a call may reach from a worker: hosts that policy allows now, told to that worker's proxy before the call runs.

A proxy on another machine cannot put each connection to policy as the daemon's own does. So policy is asked once, here,
for each host and port; names that only a pattern allows could not be asked about, and are not granted.
"""

from palyra.config.settings import SandboxSettings
from palyra.daemons.egress_parts import EgressParts
from palyra.daemons.process_tools import hosts_for
from palyra.egress.grant import EgressGrant
from palyra.egress.rules import HostRule, parse_rules
from palyra.egress.target import Target
from palyra.errors import PalyraError
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan

_PROGRAMS = "process.run"


class HostsOnWorkers:
    def __init__(self, settings: SandboxSettings, egress: EgressParts) -> None:
        self._settings = settings
        self._egress = egress

    def __call__(self, plan: ExecutionPlan) -> tuple[tuple[str, ...], int, int]:
        """Rules, bytes and tunnels. The bytes count as used: what a worker moved, only its own proxy knows."""
        if plan.tool != _PROGRAMS or plan.obligations.egress == "none":
            return (), 0, 0
        asked = parse_rules(hosts_for(plan.arguments, self._settings.allowed_hosts))
        exact = [HostRule(rule.host, port) for rule in asked if not rule.below for port in rule.ports]
        if not exact:
            return (), 0, 0
        grant = self._egress.grant_for(plan, tuple(map(str, exact)))
        self._egress.enter(plan, grant)
        try:
            allowed = tuple(str(rule) for rule in exact if self._allows(grant, rule))
        finally:
            self._egress.leave(grant)
        if not allowed:
            return (), 0, 0
        plan.usage.note(BudgetKind.EGRESS_BYTES, grant.max_bytes)
        return allowed, grant.max_bytes, grant.max_tunnels

    def _allows(self, grant: EgressGrant, rule: HostRule) -> bool:
        try:
            self._egress.service.judge_target(grant, Target.of(rule.host, rule.port or 0, scheme="tcp"))
        except PalyraError:
            return False
        return True
