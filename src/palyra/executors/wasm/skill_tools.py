"""The tools of a skill in use: one for each entry point, with the grants and limits of its manifest."""

import secrets as random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from palyra.egress.domain.address import range_of
from palyra.egress.domain.request_rules import describe_rules
from palyra.egress.domain.rules import HostRule, find_rule, parse_rules
from palyra.egress.settings import EgressSettings
from palyra.executors.wasm.skill_http import find_reachable, is_in_clear, target_of
from palyra.executors.wasm.spec import ENFORCEABLE, WASM_EXECUTOR, default_limits, most_limits
from palyra.limits import MAX_PLUGIN_TOOL_INPUT_BYTES
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.pipeline.domain.spec import AccessedResources, SkillOfTool, ToolCapability, ToolMetadata, ToolSpec, ToolTier
from palyra.pipeline.settings import ToolsSettings
from palyra.skills.package.capabilities import STAR, Capabilities, WasiGroup
from palyra.skills.package.configuration import configure_input
from palyra.skills.package.manifest import SkillTool, ToolRisk
from palyra.skills.registry.records import ResolvedInstalledSkillModule
from palyra.skills.trust.capability_difference import RUN_LINE, GetsLess, host_line, quota_line
from palyra.wasm.domain.grants import CapabilityGrantSet
from palyra.wasm.domain.limits import RuntimeLimits
from palyra.wasm.settings import WasmSettings

_SEED_BYTES: Final = 32
# Requests of one call of a skill that asks for no number.
DEFAULT_REQUESTS: Final = 16
DEFAULT_STORAGE_BYTES: Final = 1_048_576


class ActiveTool(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point of a skill in use. ``module`` is without its bytes, which ``ActiveSkills`` keeps."""

    spec: ToolSpec
    tool: SkillTool
    module: ResolvedInstalledSkillModule
    # The limits and grants of every call, before policy and budget.
    limits: RuntimeLimits
    grants: CapabilityGrantSet
    # The hosts of the manifest that the settings allow too, rules with a star among them.
    hosts: tuple[HostRule, ...]

    @property
    def requested(self) -> Capabilities:
        return self.module.manifest.capabilities


def active_tools(
    module: ResolvedInstalledSkillModule, wasm: WasmSettings, egress: EgressSettings
) -> tuple[ActiveTool, ...]:
    bare = msgspec.structs.replace(module, module_bytes=b"")
    requested = module.manifest.capabilities
    return tuple(
        ActiveTool(
            spec=skill_spec(bare, tool, wasm, egress),
            tool=tool,
            module=bare,
            limits=skill_limits(requested, wasm),
            grants=skill_grants(requested),
            hosts=find_reachable(requested.http_egress_allowlist, egress.allowed_hosts),
        )
        for tool in module.tools
    )


def skill_spec(
    module: ResolvedInstalledSkillModule, tool: SkillTool, wasm: WasmSettings, egress: EgressSettings
) -> ToolSpec:
    requested = module.manifest.capabilities
    hosts = find_reachable(requested.http_egress_allowlist, egress.allowed_hosts)
    touches = AccessedResources(
        hosts=tuple(map(str, hosts)),
        secrets=requested.secrets,
        requests=describe_rules(egress.request_rules, hosts),
    )
    reserved = {BudgetKind.WASM_FUEL: skill_limits(requested, wasm).fuel_budget}
    if requested.http_egress_allowlist:
        reserved[BudgetKind.EGRESS_BYTES] = egress.max_call_bytes
    return ToolSpec(
        name=module.manifest.tool_name(tool),
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        metadata=ToolMetadata(capabilities=tool_capabilities(requested), grave=tool.risk is ToolRisk.HIGH),
        tier=ToolTier.A,
        executor=WASM_EXECUTOR,
        skill=SkillOfTool(entity=module.entity(), entrypoint=tool.id, digest=module.digest),
        max_input_bytes=MAX_PLUGIN_TOOL_INPUT_BYTES,
        idempotent=tool.idempotent,
        enforceable=ENFORCEABLE,
        touches=lambda _arguments: touches,
        reserves=lambda _arguments: reserved,
    )


def tool_capabilities(requested: Capabilities) -> frozenset[ToolCapability]:
    mapped = {
        ToolCapability.NETWORK: requested.http_egress_allowlist,
        ToolCapability.SECRETS_READ: requested.secrets,
        ToolCapability.FILESYSTEM_READ: requested.filesystem.read_roots or requested.filesystem.write_roots,
        ToolCapability.FILESYSTEM_WRITE: requested.filesystem.write_roots,
        ToolCapability.DEVICE: requested.device or requested.node,
        ToolCapability.CHANNELS: requested.channels,
    }
    return frozenset(capability for capability, wanted in mapped.items() if wanted)


def skill_limits(requested: Capabilities, wasm: WasmSettings) -> RuntimeLimits:
    """Apply the quotas of the manifest, within the settings."""
    quotas, usual = requested.quotas, default_limits(wasm)
    wanted = msgspec.structs.replace(
        usual,
        fuel_budget=quotas.fuel_budget or usual.fuel_budget,
        max_memory_bytes=quotas.max_memory_bytes or usual.max_memory_bytes,
    )
    return wanted.within(most_limits(wasm))


def call_limits(plan: ExecutionPlan, limits: RuntimeLimits) -> RuntimeLimits:
    """Restrict the limits by the run's budget and by the obligations of policy."""
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


def skill_grants(requested: Capabilities) -> CapabilityGrantSet:
    """Grant a handle for every line of the manifest, so that the numbers in a module stay right.

    A line that the settings do not allow has a handle too; its use is refused.
    """
    roots = {*requested.filesystem.read_roots, *requested.filesystem.write_roots}
    return CapabilityGrantSet(
        http_hosts=requested.http_egress_allowlist,
        secret_keys=requested.secrets,
        revealable_secrets=requested.reveal_secrets,
        storage_prefixes=tuple("" if root == STAR else root for root in roots),
        channels=requested.channels,
    )


def call_grants(active: ActiveTool, now_ms: int) -> CapabilityGrantSet:
    """Add the time and the random bytes of this call, if the manifest requests them."""
    wasi = active.requested.wasi
    if WasiGroup.CLOCKS not in wasi and WasiGroup.RANDOM not in wasi:
        return active.grants
    return msgspec.structs.replace(
        active.grants,
        clock_ms=now_ms if WasiGroup.CLOCKS in wasi else 0,
        random_seed=random.token_bytes(_SEED_BYTES) if WasiGroup.RANDOM in wasi else b"",
    )


def guest_input(active: ActiveTool, arguments: Any) -> bytes:
    module = active.module
    return msgspec.json.encode(configure_input(module.manifest, arguments, module.configuration))


def gets_less(
    requested: Capabilities, wasm: WasmSettings, egress: EgressSettings, tools: ToolsSettings
) -> tuple[GetsLess, ...]:
    """List the requests of a manifest that the settings do not grant in full, for its review.

    Policy and a run's budget may restrict each call further. The list is complete even if skills are switched off,
    because an approval outlasts that setting.
    """
    return (*_check_enabled(wasm), *_check_hosts(requested, egress), *_check_quotas(requested, wasm, tools))


def _check_enabled(wasm: WasmSettings) -> Iterator[GetsLess]:
    # Every skill requests this, also one that requests nothing else.
    if not wasm.enabled:
        yield GetsLess(asked=RUN_LINE, gets="nothing at all while skills are switched off", setting="wasm.enabled")


def _check_hosts(requested: Capabilities, egress: EgressSettings) -> Iterator[GetsLess]:
    private, plain = parse_rules(egress.private_targets), parse_rules(egress.plain_targets)
    for host in requested.http_egress_allowlist:
        reached = [str(rule) for rule in find_reachable((host,), egress.allowed_hosts)]
        if host not in reached:
            yield GetsLess(asked=host_line(host), gets=", ".join(reached) or "no host", setting="egress.allowed_hosts")
        elif (less := _check_ranges(host, private, plain) or _check_tls(host, plain)) is not None:
            yield less


def _check_ranges(host: str, private: tuple[HostRule, ...], plain: tuple[HostRule, ...]) -> GetsLess | None:
    """Check a line with an address against the ranges that only the operator opens, or nobody.

    The addresses of a name are judged when it is used.
    """
    rule = HostRule.parse(host)
    lies_in = range_of(rule.host) if rule.is_address and not rule.below else None
    if lies_in is None:
        return None
    if not lies_in.openable:
        never = f"no host, ever: it is in the range of {lies_in.name}"
        return GetsLess(asked=host_line(host), gets=never, setting="egress.allowed_hosts")
    target = target_of(rule, plain)
    if find_rule(private, target.host, target.port) is not None:
        return None
    not_yet = f"no host: it is in the range of {lies_in.name}"
    return GetsLess(asked=host_line(host), gets=not_yet, setting="egress.private_targets")


def _check_tls(host: str, plain: tuple[HostRule, ...]) -> GetsLess | None:
    """Check a host that the operator reaches without TLS: attached secrets travel readable.

    The host of a line with a star is judged when it is used.
    """
    rule = HostRule.parse(host)
    target = target_of(rule, plain)
    if rule.below or target.scheme == "https" or is_in_clear(target, plain):
        return None
    return GetsLess(asked=host_line(host), gets="requests and secrets without TLS", setting="egress.plain_targets")


def _check_quotas(requested: Capabilities, wasm: WasmSettings, tools: ToolsSettings) -> Iterator[GetsLess]:
    quotas, got = requested.quotas, skill_limits(requested, wasm)
    bounded = (
        ("fuel_budget", quotas.fuel_budget, got.fuel_budget, "wasm.max_fuel"),
        ("max_memory_bytes", quotas.max_memory_bytes, got.max_memory_bytes, "wasm.memory_bytes"),
    )
    for name, wanted, given, setting in bounded:
        if wanted is not None and given < wanted:
            yield GetsLess(asked=quota_line(name, wanted), gets=str(given), setting=setting)
    if quotas.timeout_ms is not None:
        yield from _check_time(quotas.timeout_ms, tools)


def _check_time(wanted: int, tools: ToolsSettings) -> Iterator[GetsLess]:
    """Compare the requested time with the deadlines: a guest ends with its call."""
    line, most = quota_line("timeout_ms", wanted), tools.max_timeout_ms
    if most < wanted:
        yield GetsLess(asked=line, gets=str(most), setting="tools.max_timeout_ms")
    if (usual := min(tools.timeout_ms, most)) < min(wanted, most):
        yield GetsLess(asked=line, gets=f"{usual} in a call that names no deadline", setting="tools.timeout_ms")
