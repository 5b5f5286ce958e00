"""What a session may reach, as a grant for the guard: made from what was asked, without what is never allowed."""

from palyra.browser import service_limits as limits
from palyra.browser.budget import SessionBudget
from palyra.browser.session_view import Caller, SessionAsk
from palyra.egress.grant import EgressGrant
from palyra.egress.rules import HostRule, is_within, parse_rules
from palyra.errors import InvalidInput

TOOL = "browser"


class BadSessionHosts(InvalidInput):
    code = "browser.bad_hosts"
    hint = "hosts are rules as in egress.allowed_hosts; a private target is one of them, by its full name and its port"


def grant_for(session_id: str, caller: Caller, ask: SessionAsk, budget: SessionBudget) -> EgressGrant:
    if len(ask.hosts) + len(ask.private_targets) > limits.MAX_HOST_RULES:
        raise BadSessionHosts(f"a session has at most {limits.MAX_HOST_RULES} rules for hosts")
    rules = parse_rules(ask.hosts)
    private = parse_rules(ask.private_targets)
    for rule in private:
        _require_named(rule, rules)
    return EgressGrant(
        grant_id=session_id,
        principal=caller.principal,
        run=caller.run_id,
        call=caller.call_id,
        tool=TOOL,
        rules=rules,
        private_targets=private,
        any_public_host=ask.any_public_host,
        max_bytes=budget.max_network_bytes,
        max_tunnels=limits.MAX_CONNECTIONS,
    )


def _require_named(rule: HostRule, rules: tuple[HostRule, ...]) -> None:
    if rule.below or rule.port is None:
        raise BadSessionHosts(f"the private target {rule} has to be one host with its port")
    if not is_within(rule, rules):
        raise BadSessionHosts(f"the private target {rule} is not among the session's hosts")
