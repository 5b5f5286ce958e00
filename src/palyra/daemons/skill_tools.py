"""A skill in use as the pipeline sees it: one tool for each entry point, with what its manifest was granted."""

import secrets as random
from typing import Any, Final

import msgspec

from palyra.config.settings import EgressSettings, WasmSettings
from palyra.daemons.skill_http import reachable
from palyra.daemons.wasm_bounds import ENFORCEABLE, WASM_EXECUTOR, default_limits, most_limits
from palyra.egress.rules import HostRule
from palyra.limits import MAX_PLUGIN_TOOL_INPUT_BYTES
from palyra.skills.capabilities import STAR, Capabilities, WasiGroup
from palyra.skills.configuration import configured_input
from palyra.skills.installed import ResolvedInstalledSkillModule
from palyra.skills.manifest import SkillTool, ToolRisk
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan
from palyra.tools.spec import SkillOfTool, ToolCapability, ToolMetadata, ToolSpec, ToolTier, Touches
from palyra.wasm.grants import CapabilityGrantSet
from palyra.wasm.limits import RuntimeLimits

_SEED_BYTES: Final = 32
# Requests of one call of a skill that asks for no number.
DEFAULT_REQUESTS: Final = 16
DEFAULT_STORAGE_BYTES: Final = 1_048_576


class ActiveTool(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point of a skill in use. ``module`` has no bytes: those are kept until they are compiled."""

    spec: ToolSpec
    tool: SkillTool
    module: ResolvedInstalledSkillModule
    # What every call of it begins with.
    limits: RuntimeLimits
    grants: CapabilityGrantSet
    # The hosts of the manifest that the settings allow too, rules with a star among them.
    hosts: tuple[HostRule, ...]

    @property
    def asked(self) -> Capabilities:
        return self.module.manifest.capabilities


def active_tools(
    module: ResolvedInstalledSkillModule, wasm: WasmSettings, egress: EgressSettings
) -> tuple[ActiveTool, ...]:
    bare = msgspec.structs.replace(module, module_bytes=b"")
    asked = module.manifest.capabilities
    return tuple(
        ActiveTool(
            spec=skill_spec(bare, tool, wasm, egress),
            tool=tool,
            module=bare,
            limits=skill_limits(asked, wasm),
            grants=skill_grants(asked),
            hosts=reachable(asked.http_egress_allowlist, egress.allowed_hosts),
        )
        for tool in module.tools
    )


def skill_spec(
    module: ResolvedInstalledSkillModule, tool: SkillTool, wasm: WasmSettings, egress: EgressSettings
) -> ToolSpec:
    asked = module.manifest.capabilities
    hosts = reachable(asked.http_egress_allowlist, egress.allowed_hosts)
    touches = Touches(hosts=tuple(map(str, hosts)), secrets=asked.secrets)
    reserved = {BudgetKind.WASM_FUEL: skill_limits(asked, wasm).fuel_budget}
    if asked.http_egress_allowlist:
        reserved[BudgetKind.EGRESS_BYTES] = egress.max_call_bytes
    return ToolSpec(
        name=module.manifest.tool_name(tool),
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        metadata=ToolMetadata(capabilities=tool_capabilities(asked), grave=tool.risk is ToolRisk.HIGH),
        tier=ToolTier.A,
        executor=WASM_EXECUTOR,
        skill=SkillOfTool(entity=module.entity(), entrypoint=tool.id, digest=module.digest),
        max_input_bytes=MAX_PLUGIN_TOOL_INPUT_BYTES,
        idempotent=tool.idempotent,
        enforceable=ENFORCEABLE,
        touches=lambda _arguments: touches,
        reserves=lambda _arguments: reserved,
    )


def tool_capabilities(asked: Capabilities) -> frozenset[ToolCapability]:
    """What the skill asks for in the words that every tool is judged by."""
    mapped = {
        ToolCapability.NETWORK: asked.http_egress_allowlist,
        ToolCapability.SECRETS_READ: asked.secrets,
        ToolCapability.FILESYSTEM_READ: asked.filesystem.read_roots or asked.filesystem.write_roots,
        ToolCapability.FILESYSTEM_WRITE: asked.filesystem.write_roots,
        ToolCapability.DEVICE: asked.device or asked.node,
        ToolCapability.CHANNELS: asked.channels,
    }
    return frozenset(capability for capability, wanted in mapped.items() if wanted)


def skill_limits(asked: Capabilities, wasm: WasmSettings) -> RuntimeLimits:
    """The manifest's quotas where it has some, within the settings."""
    quotas, usual = asked.quotas, default_limits(wasm)
    wanted = msgspec.structs.replace(
        usual,
        fuel_budget=quotas.fuel_budget or usual.fuel_budget,
        max_memory_bytes=quotas.max_memory_bytes or usual.max_memory_bytes,
    )
    return wanted.within(most_limits(wasm))


def call_limits(plan: ExecutionPlan, limits: RuntimeLimits) -> RuntimeLimits:
    """Made stricter by the run's budget and by what policy obliges this call to."""
    memory = plan.obligations.memory_bytes
    fuel = plan.granted.get(BudgetKind.WASM_FUEL, limits.fuel_budget)
    if memory is None and fuel >= limits.fuel_budget and plan.max_output_bytes >= limits.max_output_bytes:
        return limits
    return msgspec.structs.replace(
        limits,
        fuel_budget=min(limits.fuel_budget, fuel),
        max_memory_bytes=limits.max_memory_bytes if memory is None else min(memory, limits.max_memory_bytes),
        max_output_bytes=min(limits.max_output_bytes, plan.max_output_bytes),
    )


def skill_grants(asked: Capabilities) -> CapabilityGrantSet:
    """Every line of the manifest has its handle, allowed by the settings or not: numbers in a module stay right."""
    roots = {*asked.filesystem.read_roots, *asked.filesystem.write_roots}
    return CapabilityGrantSet(
        http_hosts=asked.http_egress_allowlist,
        secret_keys=asked.secrets,
        revealable_secrets=asked.reveal_secrets,
        storage_prefixes=tuple("" if root == STAR else root for root in roots),
        channels=asked.channels,
    )


def call_grants(active: ActiveTool, now_ms: int) -> CapabilityGrantSet:
    """With the time and the random bytes of this call, where the manifest asks for them."""
    wasi = active.asked.wasi
    if WasiGroup.CLOCKS not in wasi and WasiGroup.RANDOM not in wasi:
        return active.grants
    return msgspec.structs.replace(
        active.grants,
        clock_ms=now_ms if WasiGroup.CLOCKS in wasi else 0,
        random_seed=random.token_bytes(_SEED_BYTES) if WasiGroup.RANDOM in wasi else b"",
    )


def guest_input(active: ActiveTool, arguments: Any) -> bytes:
    module = active.module
    return msgspec.json.encode(configured_input(module.manifest, arguments, module.configuration))
