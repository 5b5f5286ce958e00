"""Who is terminated, with which authority, and what a missing secret means. The traffic: tests/security."""

import datetime
import ssl

import pytest

from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.injection import plan_injection
from palyra.egress.domain.refusal import CredentialMissing
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.proxy.termination import CredentialTermination
from palyra.secret import Secret

BOUND = Target.from_url("https://api.example.com/")
FREE = Target.from_url("https://www.example.com/")


class Empty:
    async def reveal(self, grant: EgressGrant, secret_ref: str, target: Target) -> Secret:
        raise CredentialMissing("none")


def grant(name: str = "g", *, required: bool = True) -> EgressGrant:
    binding = CredentialBindingPlan(
        header_name="X-Key", secret_ref="global/k", hosts=("api.example.com", "*.api.example.com"), required=required
    )
    return EgressGrant(
        grant_id=name,
        principal="agent:a",
        run="r",
        call="c",
        tool="t",
        rules=parse_rules(("*.example.com",)),
        bindings=(binding,),
    )


@pytest.fixture
def termination() -> CredentialTermination:
    return CredentialTermination(
        Empty(), trust=ssl.create_default_context, now=lambda: datetime.datetime.now(datetime.UTC)
    )


def test_only_bound_hosts_are_terminated(termination: CredentialTermination) -> None:
    assert termination.wants(grant(), BOUND)
    assert not termination.wants(grant(), FREE)


def test_each_grant_has_an_authority_of_its_own_until_it_is_forgotten(termination: CredentialTermination) -> None:
    first = termination.authority(grant())
    assert termination.authority(grant()) is first
    assert termination.authority(grant("other")).pem() != first.pem()
    termination.forget("g")
    assert termination.authority(grant()).pem() != first.pem()
    termination.forget("never there")


async def test_a_missing_secret_is_fatal_where_it_is_required(termination: CredentialTermination) -> None:
    plan = plan_injection(grant(), BOUND, "GET", "/", ())
    with pytest.raises(CredentialMissing):
        await termination.reveal(grant(), plan, BOUND)
    optional = plan_injection(grant(required=False), BOUND, "GET", "/", ())
    assert await termination.reveal(grant(), optional, BOUND) == {}


async def test_a_placeholder_that_cannot_be_filled_is_fatal_always(termination: CredentialTermination) -> None:
    plan = plan_injection(grant(required=False), BOUND, "GET", "/", (("X-Key", "{{vault:global/k}}"),))
    with pytest.raises(CredentialMissing):
        await termination.reveal(grant(), plan, BOUND)
