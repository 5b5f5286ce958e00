"""From a manifest to a spec, limits and grants."""

import msgspec
import pytest

from fakes.skill_harness import artifact
from palyra.egress.settings import EgressSettings
from palyra.executors.wasm.skill_tools import ActiveTool, active_tools, call_grants, call_limits, guest_input
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import ToolTier
from palyra.policy.decision import Obligations
from palyra.skills.package.configuration import ConfigurationGiven
from palyra.skills.registry.records import ResolvedInstalledSkillModule
from palyra.skills.trust.publisher_keys import TrustLevel
from palyra.wasm.settings import WasmSettings


def active(capabilities: str = "", more: str = "", **wasm: int) -> ActiveTool:
    skill = artifact(capabilities=capabilities, more=more)
    module = ResolvedInstalledSkillModule(
        skill_id=skill.manifest.skill_id,
        version="1.0.0",
        publisher="acme",
        digest=skill.digest,
        trust=TrustLevel.ALLOWLISTED,
        manifest=skill.manifest,
        module="main.wasm",
        module_digest=skill.module_digests["main.wasm"],
        module_bytes=skill.modules["main.wasm"],
        tools=skill.manifest.tools,
        configuration={"n": 1},
    )
    egress = EgressSettings(allowed_hosts=("api.test",), max_call_bytes=5_000)
    (found,) = active_tools(module, msgspec.structs.replace(WasmSettings(), **wasm), egress)
    return found


def plan(**changes: object) -> ExecutionPlan:
    usual: dict[str, object] = {"max_output_bytes": 1_000, "timeout_ms": 1}
    return ExecutionPlan(call_id="c", run_id="r", tool="t", arguments={}, workspace="/", **{**usual, **changes})  # type: ignore[arg-type]


def test_a_skill_that_asks_for_nothing_needs_nobody() -> None:
    found = active()
    assert (str(found.spec.name), found.spec.tier) == ("skill.acme.notes.add", ToolTier.A)
    assert not found.spec.metadata.sensitive and found.module.module_bytes == b""
    assert dict(found.spec.reserves({})) == {BudgetKind.WASM_FUEL: 10_000_000}
    assert found.spec.skill is not None and found.spec.skill.digest == found.module.digest
    assert found.spec.skill.entity.attrs["status"] == "approved"


def test_every_capability_is_in_the_words_of_tools() -> None:
    wants = 'http_egress_allowlist = ["api.test", "b.test"]\nsecrets = ["k"]\nfilesystem = { write_roots = ["n"] }'
    found = active(wants)
    assert sorted(found.spec.metadata.capabilities) == [
        "filesystem_read",
        "filesystem_write",
        "network",
        "secrets_read",
    ]
    touched = found.spec.touches({})
    assert (touched.hosts, touched.secrets) == (("api.test",), ("skill:acme.notes/k",))
    assert dict(found.spec.reserves({}))[BudgetKind.EGRESS_BYTES] == 5_000
    # A host that the settings do not allow keeps its number, so that the numbers of others stay.
    assert found.grants.http_hosts == ("api.test", "b.test") and [str(rule) for rule in found.hosts] == ["api.test"]
    assert active(more='risk = "high"').spec.metadata.sensitive


def test_quotas_of_a_manifest_hold_within_the_settings_and_the_call() -> None:
    found = active("quotas = { fuel_budget = 50_000_000, max_memory_bytes = 131072 }", max_fuel=20_000_000)
    assert (found.limits.fuel_budget, found.limits.max_memory_bytes) == (20_000_000, 131_072)
    strict = call_limits(
        plan(granted={BudgetKind.WASM_FUEL: 7}, obligations=Obligations(memory_bytes=65_536)), found.limits
    )
    assert (strict.fuel_budget, strict.max_memory_bytes, strict.max_output_bytes) == (7, 65_536, 1_000)


def test_time_and_chance_only_where_asked_for() -> None:
    found = active('filesystem = { read_roots = ["*"] }\nwildcard_opt_in = ["storage"]')
    assert found.grants.storage_prefixes == ("",) and call_grants(found, 5) is found.grants
    granted = active('wasi = ["clocks", "random"]')
    first, second = call_grants(granted, 5), call_grants(granted, 6)
    assert (first.clock_ms, second.clock_ms) == (5, 6) and first.random_seed != second.random_seed


def test_the_configuration_is_beside_the_arguments_where_there_is_one() -> None:
    assert guest_input(active(), {"a": 1}) == b'{"a":1}'
    configured = active(more='[operator.configuration]\nschema = { type = "object" }')
    assert guest_input(configured, {"a": 1, "_config": 2}) == b'{"a":1,"_config":{"n":1}}'
    with pytest.raises(ConfigurationGiven):
        guest_input(active(), {"a": 1, "_config": 2})
