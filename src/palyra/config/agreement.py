"""The rules between settings: what one value cannot break alone."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from palyra.config.settings import InvalidSetting, Settings, value_of
from palyra.egress.address import parse_address
from palyra.egress.host_name import canonical_host
from palyra.egress.rules import HostRule, is_within, parse_rules
from palyra.errors import PalyraError
from palyra.identity.principal import Principal
from palyra.nodes.host.command_plan import check_commands

T = TypeVar("T")


def check_together(settings: Settings) -> None:
    """Raises where values do not go together. The error's ``settings`` detail names the values involved."""
    _at_most(settings, "tools.timeout_ms", "tools.max_timeout_ms")
    _at_most(settings, "approvals.ttl_seconds", "approvals.max_ttl_seconds")
    _at_most(settings, "nodes.heartbeat_seconds", "nodes.heartbeat_timeout_seconds")
    _explained("workers.heartbeat_timeout_seconds", settings.workers.policy)
    for operator in settings.access.operators:
        _explained("access.operators", partial(Principal.parse, operator))
    for who in (*settings.mcp.deciders, *settings.mcp.deciders.values()):
        _explained("mcp.deciders", partial(Principal.parse, who))
    _check_egress(settings)
    _explained("browser.session_budget", settings.browser.ceiling)
    if settings.browser.download_types:
        _explained("browser.download_types", settings.browser.downloads)
    _explained("node.commands", partial(check_commands, settings.node.commands))
    for name, path in (
        ("workspace.root", settings.workspace.root),
        ("policy.dir", settings.policy.dir),
        ("egress.ca_file", settings.egress.ca_file),
        ("browser.engine", settings.browser.engine),
        ("vault.key_file", settings.vault.key_file),
        ("vault.passphrase_file", settings.vault.passphrase_file),
    ):
        if path and not path.startswith(("/", "~/")):
            raise InvalidSetting(
                f"{name}: {path!r} is relative",
                hint="write an absolute path, or one that starts with ~/",
                settings=[name],
            )


def _check_egress(settings: Settings) -> None:
    ceiling = _rules(settings, "egress.allowed_hosts")
    for name in ("sandbox.allowed_hosts", "browser.allowed_hosts"):
        beyond = next((rule for rule in _rules(settings, name) if not is_within(rule, ceiling)), None)
        if beyond is not None:
            raise InvalidSetting(
                f"{name}: egress.allowed_hosts does not allow all of {beyond}",
                hint="egress.allowed_hosts is the most that anything may reach: add the host there, with its port",
                settings=["egress.allowed_hosts", name],
            )
    for name, plan in settings.mcp.servers.items():
        _explained("mcp.servers", partial(plan.check, name))
        wanted = _explained("mcp.servers", partial(parse_rules, plan.hosts))
        if any(not is_within(rule, ceiling) for rule in wanted):
            raise InvalidSetting(
                f"mcp.servers: {name} has hosts that egress.allowed_hosts does not allow",
                hint="egress.allowed_hosts is the most that anything may reach: add the host there, with its port",
                settings=["egress.allowed_hosts", "mcp.servers"],
            )
    _rules(settings, "egress.private_targets")
    for rule in _rules(settings, "egress.plain_targets"):
        if rule.port is None:
            raise InvalidSetting(
                f"egress.plain_targets: {rule} has no port",
                hint=f"write the port that is spoken to without TLS, such as {rule}:8080",
                settings=["egress.plain_targets"],
            )
    _rules(settings, "browser.private_targets")
    for typed in settings.browser.bindings:
        _explained("browser.bindings", typed.check)
    for host, addresses in settings.egress.static_hosts.items():
        _explained("egress.static_hosts", partial(canonical_host, host))
        for address in addresses:
            _explained("egress.static_hosts", partial(parse_address, address))
    for binding in settings.egress.bindings:
        _explained("egress.bindings", binding.check)


def _rules(settings: Settings, name: str) -> tuple[HostRule, ...]:
    return _explained(name, partial(parse_rules, value_of(settings, name)))


def _explained(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except PalyraError as error:
        raise InvalidSetting(f"{name}: {error.message}", hint=error.hint, settings=[name]) from error


def _at_most(settings: Settings, smaller: str, larger: str) -> None:
    low, high = value_of(settings, smaller), value_of(settings, larger)
    if low > high:
        raise InvalidSetting(f"{smaller} is {low}, which is more than {larger} ({high})", settings=[smaller, larger])
