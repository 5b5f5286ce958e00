"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from palyra.browser.settings import BrowserSettings
from palyra.config.load import LoadedSettings, load_tree
from palyra.config.setting_types import InvalidSetting, Pattern, Patterns, describe, value_of
from palyra.egress.domain.address import parse_address
from palyra.egress.domain.rules import HostRule, is_within, parse_rules
from palyra.egress.domain.target import canonical_host
from palyra.egress.settings import EgressSettings
from palyra.errors import PalyraError
from palyra.executors.mcp_upstream.settings import McpSettings
from palyra.fleet.domain.policy import WorkerAgentSettings, WorkerFleetSettings
from palyra.identity.settings import IdentitySettings
from palyra.ids import Principal
from palyra.journal.settings import JournalSettings
from palyra.nodes.agent.settings import NodeHostSettings, check_commands
from palyra.nodes.settings import NodeSettings
from palyra.pipeline.domain.workspaces import assign_workspaces, expand_who
from palyra.pipeline.settings import ApprovalsSettings, BudgetSettings, RetentionSettings, ToolsSettings
from palyra.policy.request import ALLOWED, OPERATORS
from palyra.policy.settings import PolicySettings
from palyra.sandbox.settings import SandboxSettings
from palyra.skills.settings import SkillsSettings
from palyra.telemetry.log import LogSettings
from palyra.vault.settings import VaultSettings
from palyra.wasm.settings import WasmSettings
from palyra.workspace.settings import WorkspaceName, WorkspaceSettings, WorkspaceTable


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Annotated[str, Meta(min_length=1), describe("Address the API listens on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), describe("Port of the API; 0 takes any free one.")] = 7142


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principals: Annotated[Patterns, describe("Principals that policies may permit at all, as globs.")] = (
        "agent:*",
        "user:*",
    )
    channels: Annotated[Patterns, describe("Channels that a call may come through.")] = (
        "cli",
        "api",
        "mcp",
        "console",
        "node",
    )
    operators: Annotated[Patterns, describe("Principals that may decide approvals and act for others.")] = (
        "user:operator",
    )
    groups: Annotated[dict[Pattern, Patterns], describe("Group names and the principals in each, as globs.")] = {}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    daemon: DaemonSettings = DaemonSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    workspaces: Annotated[
        dict[WorkspaceName, WorkspaceTable],
        describe(
            "Workspaces of their own by name, each a table with `root`, a folder that has to be there, and `who`: the"
            " principals, globs and groups (`group:NAME`) that work in it and nowhere else."
        ),
    ] = {}
    tools: ToolsSettings = ToolsSettings()
    access: AccessSettings = AccessSettings()
    policy: PolicySettings = PolicySettings()
    sandbox: SandboxSettings = SandboxSettings()
    egress: EgressSettings = EgressSettings()
    browser: BrowserSettings = BrowserSettings()
    vault: VaultSettings = VaultSettings()
    skills: SkillsSettings = SkillsSettings()
    wasm: WasmSettings = WasmSettings()
    identity: IdentitySettings = IdentitySettings()
    nodes: NodeSettings = NodeSettings()
    node: NodeHostSettings = NodeHostSettings()
    worker: WorkerAgentSettings = WorkerAgentSettings()
    workers: WorkerFleetSettings = WorkerFleetSettings()
    mcp: McpSettings = McpSettings()
    approvals: ApprovalsSettings = ApprovalsSettings()
    budget: BudgetSettings = BudgetSettings()
    retention: RetentionSettings = RetentionSettings()
    journal: JournalSettings = JournalSettings()
    log: LogSettings = LogSettings()


def load_settings(
    config_path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any]
) -> LoadedSettings[Settings]:
    """Load the whole tree of a gateway and its commands."""
    return load_tree(Settings, config_path, environ, overrides, check_together)


# The rules between settings: what one value cannot break alone.

T = TypeVar("T")


def check_together(settings: Settings) -> None:
    """Refuse values that contradict each other. The error's ``settings`` detail names the values involved."""
    _at_most(settings, "tools.timeout_ms", "tools.max_timeout_ms")
    _at_most(settings, "approvals.ttl_seconds", "approvals.max_ttl_seconds")
    _at_most(settings, "nodes.heartbeat_seconds", "nodes.heartbeat_timeout_seconds")
    _explained("workers.heartbeat_timeout_seconds", lambda: settings.workers.policy(own_build="0" * 64))
    for operator in settings.access.operators:
        _explained("access.operators", partial(Principal.parse, operator))
    for who in (*settings.mcp.deciders, *settings.mcp.deciders.values()):
        _explained("mcp.deciders", partial(Principal.parse, who))
    access = settings.access
    groups = {**access.groups, ALLOWED: access.principals, OPERATORS: access.operators}
    _explained("workspace.who", partial(expand_who, settings.workspace.who, groups))
    _explained("workspaces", partial(assign_workspaces, settings.workspaces, groups))
    _check_egress(settings)
    _explained("browser.session_budget", settings.browser.ceiling)
    if settings.browser.download_types:
        _explained("browser.download_types", settings.browser.downloads)
    _explained("node.commands", partial(check_commands, settings.node.commands))
    for name, path in (
        ("workspace.root", settings.workspace.root),
        *(("workspaces", table.root) for table in settings.workspaces.values()),
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
    for plain in _rules(settings, "egress.plain_targets"):
        if plain.port is None:
            raise InvalidSetting(
                f"egress.plain_targets: {plain} has no port",
                hint=f"write the port that is spoken to without TLS, such as {plain}:8080",
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
    for rule in settings.egress.request_rules:
        _explained("egress.request_rules", rule.check)
    _refuse_shared(settings)


def _refuse_shared(settings: Settings) -> None:
    """Refuse starred rules that open names of strangers. All other lists of hosts lie within the first."""
    texts = {
        "egress.allowed_hosts": settings.egress.allowed_hosts,
        "egress.bindings": tuple(host for binding in settings.egress.bindings for host in binding.hosts),
    }
    for name, hosts in texts.items():
        starred = [rule for rule in parse_rules(hosts) if rule.below]
        if starred:
            # Only they need the list of suffixes.
            from palyra.egress.public_suffixes import refuse_shared

            _explained(name, partial(refuse_shared, starred, settings.egress.shared_suffixes))


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
