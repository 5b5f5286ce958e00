"""What a session may reach: rules only, private targets by name and port only, and nothing by default."""

import pytest

from palyra.browser.domain.budget import SessionBudget
from palyra.browser.domain.limits import MAX_HOST_RULES
from palyra.browser.domain.session_api import Caller, SessionAsk
from palyra.browser.service.session_lifecycle import BadSessionHosts, grant_for
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import AddressForbidden, HostNotAllowed
from palyra.egress.domain.rules import BadHostRule
from palyra.egress.domain.target import Target

ME = Caller(principal="agent:a", run_id="R", call_id="C")
SERVICE = EgressProxyPolicyService(frozenset)


def made(**fields: object) -> EgressGrant:
    return grant_for("S1", ME, SessionAsk(**fields), SessionBudget(max_network_bytes=77))  # type: ignore[arg-type]


def test_the_grant_is_the_session_s_and_has_its_bytes() -> None:
    grant = made(hosts=("a.example",))
    assert (grant.grant_id, grant.principal, grant.run, grant.call, grant.max_bytes) == ("S1", "agent:a", "R", "C", 77)
    assert not grant.any_public_host


def test_without_hosts_nothing_is_reached() -> None:
    with pytest.raises(HostNotAllowed):
        SERVICE.judge_target(made(), Target("https", "a.example", 443))


@pytest.mark.promise("P-net-addresses")
@pytest.mark.parametrize("private", ["a.example", "*.a.example:8080", "b.example:8080", "a.example:9090"])
def test_a_private_target_is_one_of_the_hosts_with_its_port(private: str) -> None:
    with pytest.raises(BadSessionHosts):
        made(hosts=("a.example", "a.example:8080", "*.a.example:8080"), private_targets=(private,))


@pytest.mark.promise("P-net-addresses")
def test_a_private_target_never_opens_metadata_or_link_local() -> None:
    grant = made(hosts=("a.example:80",), private_targets=("a.example:80",), any_public_host=True)
    target = Target("http", "a.example", 80)
    assert SERVICE.judge_answers(grant, target, ("10.1.2.3",)).addresses == ("10.1.2.3",)
    for address in ("169.254.169.254", "169.254.1.1", "fe80::1", "fd00:ec2::254", "100.100.100.200"):
        with pytest.raises(AddressForbidden):
            SERVICE.judge_answers(grant, target, (address,))


@pytest.mark.promise("P-limits")
def test_rules_that_are_none_and_too_many_are_refused() -> None:
    with pytest.raises(BadHostRule):
        made(hosts=("*",))
    with pytest.raises(BadSessionHosts):
        made(hosts=tuple(f"h{n}.example" for n in range(MAX_HOST_RULES + 1)))
