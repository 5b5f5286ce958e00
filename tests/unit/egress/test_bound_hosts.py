import pytest

from palyra.egress.domain.credential import CredentialBindingPlan, bindings_for
from palyra.egress.domain.rules import parse_rules


def binding(*hosts: str) -> CredentialBindingPlan:
    return CredentialBindingPlan(header_name="Authorization", secret_ref="global/key", hosts=hosts)


@pytest.mark.parametrize(
    ("bound", "allowed", "applies"),
    [
        ("api.example.org", "api.example.org", True),
        ("*.example.org", "api.example.org", True),
        ("api.example.org", "*.example.org", True),
        ("api.example.org", "www.example.org", False),
        ("*.example.com", "api.example.org", False),
    ],
)
def test_a_binding_applies_where_some_allowed_host_is_bound(bound: str, allowed: str, applies: bool) -> None:
    given = (binding(bound),)
    assert bindings_for(given, parse_rules((allowed,))) == (given if applies else ())


def test_one_host_of_several_is_enough_and_none_is_none() -> None:
    one, other = binding("a.example.org", "b.example.org"), binding("c.example.org")
    assert bindings_for((one, other), parse_rules(("b.example.org",))) == (one,)
    assert bindings_for((one, other), ()) == ()
