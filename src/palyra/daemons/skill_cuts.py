"""What of a manifest's request the settings do not give: shown before a version is put in use, not found out later."""

from collections.abc import Iterator

from palyra.config.settings import Settings, ToolsSettings
from palyra.daemons.skill_http import in_clear, reachable, target_of
from palyra.daemons.skill_tools import skill_limits
from palyra.egress.address import range_of
from palyra.egress.rules import HostRule, find_rule, parse_rules
from palyra.skills.capabilities import Capabilities
from palyra.skills.capability_difference import RUN_LINE, GetsLess, host_line, quota_line


def gets_less(asked: Capabilities, settings: Settings) -> tuple[GetsLess, ...]:
    """In the words of the request. A policy, or a run's budget, may make less of it still, call by call.

    An approval outlasts a switch that is off: what holds when it is on again is said, too.
    """
    return (*_at_all(settings), *_hosts(asked, settings), *_quotas(asked, settings))


def _at_all(settings: Settings) -> Iterator[GetsLess]:
    """Every skill asks for this one, also one that asks for nothing else."""
    if not settings.wasm.enabled:
        yield GetsLess(asked=RUN_LINE, gets="nothing at all while skills are switched off", setting="wasm.enabled")


def _hosts(asked: Capabilities, settings: Settings) -> Iterator[GetsLess]:
    private, plain = parse_rules(settings.egress.private_targets), parse_rules(settings.egress.plain_targets)
    for host in asked.http_egress_allowlist:
        reached = [str(rule) for rule in reachable((host,), settings.egress.allowed_hosts)]
        if host not in reached:
            yield GetsLess(asked=host_line(host), gets=", ".join(reached) or "no host", setting="egress.allowed_hosts")
        elif (less := _closed(host, private, plain) or _plain(host, plain)) is not None:
            yield less


def _closed(host: str, private: tuple[HostRule, ...], plain: tuple[HostRule, ...]) -> GetsLess | None:
    """An address that is allowed, and in a range that only the operator opens, or nobody. Which addresses a name has
    is seen when it is used."""
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


def _plain(host: str, plain: tuple[HostRule, ...]) -> GetsLess | None:
    """A host that the operator has spoken to without TLS: attached secrets go along, for everybody on the way to read.
    What a line with a star means is known when it is used."""
    rule = HostRule.parse(host)
    target = target_of(rule, plain)
    if rule.below or target.scheme == "https" or in_clear(target, plain):
        return None
    return GetsLess(asked=host_line(host), gets="requests and secrets without TLS", setting="egress.plain_targets")


def _quotas(asked: Capabilities, settings: Settings) -> Iterator[GetsLess]:
    quotas, got = asked.quotas, skill_limits(asked, settings.wasm)
    bounded = (
        ("fuel_budget", quotas.fuel_budget, got.fuel_budget, "wasm.max_fuel"),
        ("max_memory_bytes", quotas.max_memory_bytes, got.max_memory_bytes, "wasm.memory_bytes"),
    )
    for name, wanted, given, setting in bounded:
        if wanted is not None and given < wanted:
            yield GetsLess(asked=quota_line(name, wanted), gets=str(given), setting=setting)
    if quotas.timeout_ms is not None:
        yield from _time(quotas.timeout_ms, settings.tools)


def _time(wanted: int, tools: ToolsSettings) -> Iterator[GetsLess]:
    """A guest has no longer than its call, and a call that names no deadline has the usual one."""
    line, most = quota_line("timeout_ms", wanted), tools.max_timeout_ms
    if most < wanted:
        yield GetsLess(asked=line, gets=str(most), setting="tools.max_timeout_ms")
    if (usual := min(tools.timeout_ms, most)) < min(wanted, most):
        yield GetsLess(asked=line, gets=f"{usual} in a call that names no deadline", setting="tools.timeout_ms")
