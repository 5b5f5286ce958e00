"""Which credential bindings may apply to hosts that are allowed."""

from palyra.egress.credential import CredentialBindingPlan
from palyra.egress.rules import HostRule, parse_rules


def bindings_for(
    bindings: tuple[CredentialBindingPlan, ...], rules: tuple[HostRule, ...]
) -> tuple[CredentialBindingPlan, ...]:
    return tuple(each for each in bindings if _concerns(each, rules))


def _concerns(binding: CredentialBindingPlan, rules: tuple[HostRule, ...]) -> bool:
    """Whether a binding may apply to some host that the rules allow."""
    return any(
        bound.host == rule.host or bound.names(rule.host) or rule.names(bound.host)
        for bound in parse_rules(binding.hosts)
        for rule in rules
    )
