from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.rules import parse_rules


def test_names_and_ports_of_a_grant() -> None:
    rules = parse_rules(("b.example", "a.example:22", "*.c.example:8443", "10.0.0.1:5432", "[2a00::1]", "b.example:22"))
    grant = EgressGrant(grant_id="g", principal="agent:a", run="r", call="c", tool="t", rules=rules)
    assert grant.exact_names() == ("b.example", "a.example")
    assert grant.ports() == (22, 80, 443, 5432, 8443)


def test_a_grant_without_rules_opens_nothing() -> None:
    grant = EgressGrant(grant_id="g", principal="agent:a", run="r", call="c", tool="t", rules=())
    assert grant.exact_names() == () and grant.ports() == ()
