"""One way to make a grant, for every kind of call."""

from pathlib import Path

import msgspec
import pytest

from fakes.bound_host_harness import OWN, TOKEN, binding, plan_of, settings
from fakes.gateway_harness import open_harness
from palyra.egress.domain.rules import parse_rules
from palyra.executors.network.grant import call_of, grant_of
from palyra.ids import Principal
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.spec import AccessedResources
from palyra.policy.request import Entity, EntityRef


@pytest.mark.parametrize(("granted", "most"), [({}, 0), ({BudgetKind.EGRESS_BYTES: 1234}, 1234)])
async def test_a_call_moves_what_was_reserved_for_it(tmp_path: Path, granted: dict[BudgetKind, int], most: int) -> None:
    async with open_harness(tmp_path, settings(8080)) as harness:
        plan = plan_of(harness, granted=granted)
        grant = grant_of(plan, harness.gateway.settings.egress, parse_rules(("api.test:8080",)))
        assert grant.max_bytes == most
        assert (grant.grant_id, grant.call, grant.run, grant.tool) == ("c1", "c1", "r1", "process.run")
        assert [str(rule) for rule in grant.private_targets] == ["api.test:8080", "other.test:8080"]
        assert grant.bindings == ()


async def test_no_reservation_is_worth_more_than_the_setting(tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(8080, max_call_bytes=5000)) as harness:
        egress = harness.gateway.settings.egress
        grant = grant_of(plan_of(harness, granted={BudgetKind.EGRESS_BYTES: 1 << 40}), egress, (), egress.bindings)
        assert (grant.max_bytes, grant.max_tunnels) == (5000, egress.max_tunnels)
        assert [each.secret_ref for each in grant.bindings] == [OWN]
        assert TOKEN not in msgspec.json.encode(grant).decode()


async def test_policies_see_the_call_that_was_made(tmp_path: Path) -> None:
    async with open_harness(tmp_path, settings(8080, bindings=[binding(8080)])) as harness:
        plan = plan_of(harness, approved=True)
        spec = harness.gateway.catalog.entry(plan.tool).spec
        touched = AccessedResources(hosts=("api.test:8080",), secrets=(OWN,))
        call = call_of(plan, spec, harness.gateway.directory, touched=touched)
        assert (call.principal, call.channel, call.approved) == (Principal.parse("agent:bot"), "cli", True)
        assert (call.hosts, call.secrets, call.skill) == (touched.hosts, touched.secrets, None)
        assert call.tool.uid == EntityRef("Tool", "process.run")
        assert set(call.tool.attrs["capabilities"]) == {str(each) for each in spec.metadata.capabilities}
        # Without anything named an approval reaches nothing.
        skill = Entity(uid=EntityRef("Skill", "s"), attrs={})
        bare = call_of(plan, spec, harness.gateway.directory, skill=skill)
        assert (bare.hosts, bare.secrets, bare.skill) == ((), (), skill)
