import pytest

from fakes.egress_harness import make_grant
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.injection import Injection, InjectionPlan, reveal_all
from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed
from palyra.egress.domain.target import Target
from palyra.secret import Secret

TARGET = Target("https", "api.test", 443)


class Vault:
    def __init__(self, **known: str) -> None:
        self.known = known
        self.asked: list[str] = []

    async def reveal(self, grant: EgressGrant, secret_ref: str, target: Target) -> Secret:
        assert (grant.grant_id, target) == ("g", TARGET)
        self.asked.append(secret_ref)
        if secret_ref == "forbidden":
            raise CredentialNotAllowed("policy says no")
        if secret_ref not in self.known:
            raise CredentialMissing(f"{secret_ref} is not there")
        return Secret(self.known[secret_ref])


def plan(*injections: tuple[str, bool, str]) -> InjectionPlan:
    return InjectionPlan(
        kept=(),
        injections=tuple(
            Injection(header_name=f"X-{number}", secret_ref=ref, required=required, written=written)
            for number, (ref, required, written) in enumerate(injections)
        ),
    )


async def reveal(vault: Vault, *injections: tuple[str, bool, str]) -> dict[str, str]:
    values = await reveal_all(vault, make_grant("api.test"), plan(*injections), TARGET)
    return {ref: value.reveal() for ref, value in values.items()}


async def test_a_secret_for_two_headers_is_one_use() -> None:
    vault = Vault(one="first", two="second")
    found = await reveal(vault, ("one", True, ""), ("two", True, ""), ("one", True, "Bearer {{vault:one}}"))
    assert found == {"one": "first", "two": "second"}
    assert vault.asked == ["one", "two"]


@pytest.mark.parametrize(("required", "written"), [(True, ""), (False, "Bearer {{vault:gone}}")])
async def test_one_that_is_missing_is_fatal_where_it_is_needed(required: bool, written: str) -> None:
    with pytest.raises(CredentialMissing):
        await reveal(Vault(one="first"), ("one", True, ""), ("gone", required, written))


async def test_one_that_is_missing_and_not_needed_is_left_out_and_not_asked_for_again() -> None:
    vault = Vault(one="first")
    assert await reveal(vault, ("gone", False, ""), ("one", True, ""), ("gone", False, "")) == {"one": "first"}
    assert vault.asked == ["gone", "one"]
    with pytest.raises(CredentialMissing):
        await reveal(vault, ("gone", False, ""), ("gone", True, ""))


async def test_one_that_policy_denies_is_always_fatal() -> None:
    with pytest.raises(CredentialNotAllowed):
        await reveal(Vault(), ("forbidden", False, ""))
