"""Attacks on approvals at the way out: a person was shown hosts and secrets, and allowed those and nothing else."""

import contextlib
import socket
from pathlib import Path

import pytest

from fakes.bound_host_harness import TOKEN, binding, plan_of, put, settings
from fakes.fetch_harness import answer, redirect
from fakes.gateway_harness import open_harness
from fakes.loopback import Script, ScriptedServer, read_request
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.refusal import CredentialNotAllowed
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.policy_judge import CallOfGrant, GrantedSecrets, GrantsInUse, connect_request
from palyra.ids import Principal
from palyra.policy.request import APPROVED, Entity, EntityRef
from palyra.secret import Secret
from palyra.vault.access import SecretUse
from palyra.vault.reference import SecretRef

pytestmark = pytest.mark.promise("P-approval-exact")


async def test_an_approval_does_not_bring_in_a_secret_through_a_redirect_on_the_same_host(tmp_path: Path) -> None:
    received: list[bytes] = []

    def says(said: bytes) -> Script:
        def script(connection: socket.socket) -> None:
            received.append(read_request(connection))
            connection.sendall(said)

        return script

    with ScriptedServer([says(*redirect("/private/x")), says(answer(b"done"))]) as server:
        bound = binding(server.port, secret_ref="global/t", path_prefix="/private")
        tree = settings(server.port, bindings=[bound]) | {"tools": {}}
        async with open_harness(tmp_path, tree) as harness:
            await put(harness, "global/t")
            arguments = {"url": f"http://api.test:{server.port}/public"}
            asked = await harness.call("http.fetch", arguments)
            approval = await harness.approve(asked.approval_id)
            assert approval.touches["secrets"] == []
            record = await harness.call("http.fetch", arguments)
            assert record.error is not None and record.error["code"] == "egress.credential_not_allowed"
            assert TOKEN.encode() not in b"".join(received) and "vault.use_denied" in harness.kinds(call=record.call_id)


class Vault:
    def __init__(self) -> None:
        self.uses: list[SecretUse] = []

    async def reveal(self, ref: SecretRef, use: SecretUse) -> Secret:
        self.uses.append(use)
        return Secret(TOKEN)


async def test_to_policy_an_approval_reaches_only_what_the_approver_was_shown(tmp_path: Path) -> None:
    tool = Entity(uid=EntityRef("Tool", "process.run"), attrs={"capabilities": [], "sensitive": True, "tier": "c"})
    call = CallOfGrant(
        principal=Principal.parse("agent:bot"),
        channel="cli",
        tool=tool,
        approved=True,
        hosts=("a.example", "*.c.example:8443"),
        secrets=("global/shown",),
    )
    rules = parse_rules(("a.example", "b.example", "*.c.example:8443"))
    grant = EgressGrant(grant_id="g", principal="agent:bot", run="r", call="c", tool="process.run", rules=rules)
    grants, vault = GrantsInUse(), Vault()
    grants.enter("g", call)
    there = Target.from_url("https://a.example/")
    for ref in ("global/shown", "global/unseen"):
        await GrantedSecrets(vault, grants).reveal(grant, ref, there)
    assert [use.approved for use in vault.uses] == [True, False]
    async with open_harness(tmp_path) as harness:
        directory = harness.gateway.directory
        found = {
            url: connect_request(directory, call, grant, Target.from_url(url)).context[APPROVED]
            for url in ("https://a.example/", "https://b.example/", "https://x.c.example:8443/", "https://c.example/")
        }
    assert list(found.values()) == [True, False, True, False]


async def test_an_approved_program_does_not_get_a_shared_secret_nobody_was_asked_about(tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(8080, bindings=[binding(8080, secret_ref="global/t")])) as harness:
        parts = harness.gateway.egress
        await put(harness, "global/t")
        plan = plan_of(harness, approved=True)
        grant = parts.grant_for(plan, ("api.test:8080",))
        parts.enter(plan, grant)
        shown = harness.gateway.catalog.entry(plan.tool).spec.touches(plan.arguments).secrets
        target = Target.from_url("http://api.test:8080/")
        revealed = ""
        with contextlib.suppress(CredentialNotAllowed):
            revealed = (await parts.secrets.reveal(grant, "global/t", target)).reveal()
        assert (revealed == TOKEN) == ("global/t" in shown)
        parts.leave(grant)
