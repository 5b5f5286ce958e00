"""The host list first, then policy; and the secrets of a call that runs, for no other."""

from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed, HostNotAllowed
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.policy_judge import CallOfGrant, GrantedSecrets, GrantsInUse, PolicedEgress
from palyra.errors import Denied, NeedsApproval, PalyraError, Unavailable
from palyra.ids import Principal
from palyra.policy.request import Entity, EntityRef
from palyra.secret import Secret
from palyra.vault.access import SecretUse
from palyra.vault.reference import SecretRef

GRANT = EgressGrant(
    grant_id="g",
    principal="agent:bot",
    run="r",
    call="c",
    tool="process.run",
    rules=parse_rules(("a.example", "b.example")),
)
TOOL = Entity(uid=EntityRef("Tool", "process.run"), attrs={"capabilities": [], "sensitive": True, "tier": "c"})
CALL = CallOfGrant(principal=Principal.parse("agent:bot"), channel="cli", tool=TOOL, approved=False)
A, B, C = (Target.from_url(f"https://{name}.example/") for name in "abc")
FORBID = """
@id("not-b")
forbid (principal == Agent::"bot", action == Action::"egress.connect", resource)
when { resource.name == "b.example" };
"""


async def test_policy_narrows_the_list_and_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "own.cedar").write_text(FORBID)
    async with open_harness(tmp_path) as harness:
        grants = GrantsInUse()
        judge = PolicedEgress(frozenset, harness.gateway.policy, harness.gateway.directory, grants)
        with pytest.raises(HostNotAllowed, match="has ended"):
            judge.judge_target(GRANT, A)
        grants.enter("g", CALL)
        assert judge.judge_target(GRANT, A).host == "a.example"
        with pytest.raises(HostNotAllowed, match="policy does not let agent:bot") as refused:
            judge.judge_target(GRANT, B)
        assert refused.value.details["policies"] == ["not-b"]
        with pytest.raises(HostNotAllowed):
            judge.judge_target(GRANT, C)
        grants.leave("g")
        grants.leave("g")
        with pytest.raises(HostNotAllowed, match="has ended"):
            judge.judge_target(GRANT, A)


class Vault:
    def __init__(self, error: PalyraError | None = None) -> None:
        self.error = error
        self.uses: list[SecretUse] = []

    async def reveal(self, ref: SecretRef, use: SecretUse) -> Secret:
        self.uses.append(use)
        if self.error is not None:
            raise self.error
        return Secret("value")


async def test_a_secret_is_revealed_for_the_call_behind_the_grant() -> None:
    grants = GrantsInUse()
    grants.enter("g", CALL)
    vault = Vault()
    assert (await GrantedSecrets(vault, grants).reveal(GRANT, "global/token", A)).reveal() == "value"
    use = vault.uses[0]
    assert (str(use.principal), use.run, use.call, use.host, use.port) == ("agent:bot", "r", "c", "a.example", 443)


@pytest.mark.parametrize(
    ("error", "leaf"),
    [
        (Denied("no"), CredentialNotAllowed),
        (NeedsApproval("ask"), CredentialNotAllowed),
        (Unavailable("gone"), CredentialMissing),
    ],
)
async def test_what_the_vault_refuses_is_a_refusal_of_the_way_out(error: PalyraError, leaf: type[PalyraError]) -> None:
    grants = GrantsInUse()
    grants.enter("g", CALL)
    with pytest.raises(leaf):
        await GrantedSecrets(Vault(error), grants).reveal(GRANT, "global/token", A)


async def test_a_reference_that_is_none_is_missing() -> None:
    grants = GrantsInUse()
    grants.enter("g", CALL)
    with pytest.raises(CredentialMissing):
        await GrantedSecrets(Vault(), grants).reveal(GRANT, "no reference", A)
