"""The services of a gateway, each built at its first use, so that a command imports and builds only what it needs.

A daemon builds all of them at its start (``build_all``). No first call waits for one, and every error that a record may
name is known.
"""

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palyra.clock import Clock
from palyra.config.state_dir import StateDir
from palyra.daemon.browser_wiring import BrowserTier
from palyra.daemon.settings import Settings
from palyra.executors.fetch.spec import NAME as FETCH
from palyra.executors.files.executor import FilesExecutor
from palyra.journal.redaction import Redactor
from palyra.pipeline.argument_archive import ArgumentArchive
from palyra.pipeline.broker import Broker
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.execute import DeferredExecutors
from palyra.pipeline.store import approval_tables
from palyra.policy.live_policy import LivePolicy, PolicyDirectoryMissing
from palyra.policy.request import EntityDirectory
from palyra.signing.dsse import Signer
from palyra.store.sqlite.store import SqliteStore
from palyra.telemetry.metrics import UnreadMetrics
from palyra.version import VERSION

if TYPE_CHECKING:
    from palyra.daemon.fleet_wiring import FleetServices
    from palyra.daemon.mcp_wiring import McpServices
    from palyra.daemon.node_wiring import NodeServices
    from palyra.egress.metrics import EgressMetrics
    from palyra.executors.fetch.executor import FetchTool
    from palyra.executors.network.service import NetworkService
    from palyra.executors.wasm.active_skills import ActiveSkills
    from palyra.executors.wasm.channels import ChannelHub
    from palyra.executors.wasm.executor import WasmTools
    from palyra.identity.identity_manager import IdentityManager
    from palyra.server.context import ApiService
    from palyra.skills.package.capabilities import Capabilities
    from palyra.skills.registry.registry import SkillRegistry
    from palyra.skills.trust.capability_difference import GetsLess
    from palyra.telemetry.prometheus import PrometheusMetrics
    from palyra.vault.access import DecidedSecrets
    from palyra.vault.key_source import KeySource
    from palyra.vault.vault import Vault

ACTOR: Final = "palyrad"
SKILL_ARTIFACTS: Final = "skills/artifacts"


class GatewayServices:
    settings: Settings
    state: StateDir
    policy_dir: Path
    channel: str
    clock: Clock
    redactor: Redactor
    browser: BrowserTier
    catalog: Catalog
    metrics: "PrometheusMetrics | UnreadMetrics"
    store: SqliteStore
    signer: Signer
    directory: EntityDirectory
    policy: LivePolicy
    instance: str
    broker: Broker
    executors: DeferredExecutors

    def has(self, part: str) -> bool:
        """Return whether a service was built. One that was not has nothing open."""
        return part in self.__dict__

    @cached_property
    def key_sources(self) -> "Mapping[str, KeySource]":
        from palyra.daemon.vault_wiring import key_sources

        return key_sources(
            self.settings.vault,
            state=self.state,
            config_dir=self.policy_dir.parent,
            # A daemon has no person in front of it to ask.
            at_terminal=self.channel == "cli",
        )

    @cached_property
    def arguments(self) -> ArgumentArchive:
        return ArgumentArchive(
            self.settings.journal,
            store=self.store,
            clock=self.clock,
            signer=self.signer,
            sources=self._argument_key_sources,
            source=self.settings.vault.key_source,
            redact=self.redactor.json_text,
            actor=ACTOR,
        )

    def _argument_key_sources(self) -> "Mapping[str, KeySource]":
        from palyra.daemon.vault_wiring import argument_key_sources

        return argument_key_sources(
            self.settings.vault, self.key_sources, state=self.state, config_dir=self.policy_dir.parent
        )

    @cached_property
    def vault(self) -> "Vault":
        from palyra.daemon.vault_wiring import make_vault

        return make_vault(self.settings.vault, store=self.store, sources=self.key_sources, learn=self.redactor.register)

    @cached_property
    def secrets(self) -> "DecidedSecrets":
        from palyra.vault.access import DecidedSecrets

        return DecidedSecrets(self.vault, self.policy, self.directory, self.store, actor=ACTOR)

    @cached_property
    def egress(self) -> "NetworkService":
        from palyra.executors.network.journal import JournalObserver
        from palyra.executors.network.service import NetworkService

        return NetworkService(
            self.settings.egress,
            policy=self.policy,
            directory=self.directory,
            catalog=self.catalog,
            secrets=self.secrets,
            observer=JournalObserver(self.store, actor=ACTOR, metrics=self._egress_metrics()),
        )

    def _egress_metrics(self) -> "EgressMetrics | None":
        if self.metrics.registry is None:
            return None
        from palyra.egress.metrics import EgressMetrics

        return EgressMetrics(self.metrics.registry)

    @cached_property
    def files(self) -> FilesExecutor:
        return FilesExecutor(self.settings.workspace.protected)

    @cached_property
    def fetch(self) -> "FetchTool":
        from palyra.executors.fetch.executor import FetchTool

        made = FetchTool(
            self.settings.egress,
            spec=self.catalog.entry(FETCH).spec,
            directory=self.directory,
            dialler=self.egress.proxy.dialler,
            grants=self.egress.grants,
            secrets=self.egress.secrets,
            observer=self.egress.observer,
        )
        self.egress.reconsidering.append(made.reconsider)
        return made

    @cached_property
    def channels(self) -> "ChannelHub":
        from palyra.executors.wasm.channels import ChannelHub

        return ChannelHub(self.store, actor=ACTOR)

    @cached_property
    def skills(self) -> "SkillRegistry":
        from palyra.executors.wasm.skill_storage import SkillFolders
        from palyra.signing.ed25519 import Ed25519Verifier
        from palyra.skills.registry.archives import ArtifactFiles
        from palyra.skills.registry.registry import SkillRegistry

        made = SkillRegistry(
            store=self.store,
            files=ArtifactFiles(self.state.path(SKILL_ARTIFACTS)),
            data=SkillFolders(self.state),
            verifier_of=Ed25519Verifier.from_public_bytes,
            palyra_version=VERSION,
            trust_on_first_use=self.settings.skills.trust_on_first_use,
        )
        made.on_change = self._skills_changed
        return made

    def _skills_changed(self) -> None:
        if self.has("wasm"):
            self.wasm.skills_changed()

    @cached_property
    def skills_in_use(self) -> "ActiveSkills":
        from palyra.executors.wasm.active_skills import ActiveSkills

        return ActiveSkills(self.skills, self.catalog, self.settings.wasm, self.settings.egress, actor=ACTOR)

    @cached_property
    def wasm(self) -> "WasmTools":
        from palyra.executors.wasm.executor import WasmTools
        from palyra.executors.wasm.host_services import SkillCalls

        calls = SkillCalls(
            self.settings.egress,
            self.state,
            egress=self.egress,
            directory=self.directory,
            secrets=self.secrets,
            channels=self.channels,
            redactor=self.redactor,
            require_kept=self.skills.index.require_kept,
        )
        return WasmTools(
            self.settings.wasm,
            self.state,
            skills=self.skills_in_use,
            calls=calls,
            policy=self.policy,
            directory=self.directory,
            protected_names=self.settings.workspace.protected,
            clock=self.clock,
        )

    @cached_property
    def mcp(self) -> "McpServices":
        from palyra.daemon.mcp_wiring import McpServices

        return McpServices(
            self.settings,
            self.state,
            lambda: self.service,
            store=self.store,
            catalog=self.catalog,
            egress=self.egress,
            secrets=self.secrets,
            actor=ACTOR,
        )

    @cached_property
    def nodes(self) -> "NodeServices":
        from palyra.daemon.node_wiring import NodeServices
        from palyra.executors.node.executor import DeviceCalls

        return NodeServices(
            self.settings.nodes,
            store=self.store,
            state=self.state,
            clock=self.clock,
            identity=lambda: self.identity,
            calls=DeviceCalls(lambda: self.broker),
            learn=self.redactor.register,
            instance=self.instance,
            metrics=self.metrics,
            actor=ACTOR,
        )

    @cached_property
    def identity(self) -> "IdentityManager":
        from palyra.daemon.node_wiring import advertised_names
        from palyra.daemon.vault_wiring import make_identity

        return make_identity(
            self.settings.identity,
            store=self.store,
            clock=self.clock,
            sources=self.key_sources,
            source=self.settings.vault.key_source,
            actor=ACTOR,
            server_names=advertised_names(self.settings.nodes),
        )

    @cached_property
    def workers(self) -> "FleetServices":
        from palyra.daemon.fleet_wiring import FleetServices

        return FleetServices(
            self.settings.workers,
            store=self.store,
            state=self.state,
            clock=self.clock,
            identity=lambda: self.identity,
            unpair=self._unpair,
            instance=self.instance,
            metrics=self.metrics,
        )

    async def _unpair(self, device_id: str, *, reason: str, actor: str) -> None:
        await (await self.nodes.opened()).node_service.revoke(device_id, reason=reason, actor=actor)

    @cached_property
    def service(self) -> "ApiService":
        from palyra.server.context import ApiService

        return ApiService(
            store=self.store,
            broker=self.broker,
            vault=lambda: self.vault,
            arguments=self.arguments,
            skills=lambda: self.skills,
            prepare_skills=lambda: self.wasm.prepare(),
            gets_less=self._gets_less,
            identity=lambda: self.identity,
            nodes=lambda: self.nodes.opened(),
            workers=lambda: self.workers,
            browser=lambda: self.browser.operator_service,
            channels=lambda: self.channels,
            mcp=cache(lambda: self.mcp.transport()),
            mcp_servers=lambda: self.mcp.servers,
            policy=self.policy,
            clock=self.clock,
            status=self.status,
            metrics=self.metrics.render,
            ready=self.missing,
            on_rejected=self.metrics.token_rejected,
            channel=self.channel,
        )

    def _gets_less(self, asked: "Capabilities") -> "tuple[GetsLess, ...]":
        from palyra.executors.wasm.skill_tools import gets_less

        return gets_less(asked, self.settings.wasm, self.settings.egress, self.settings.tools)

    def status(self) -> dict[str, Any]:
        workspaces = self.broker.config.workspaces
        named = {"workspaces": msgspec.to_builtins(workspaces.named)} if workspaces.named else {}
        return {
            "version": VERSION,
            "instance": self.instance,
            "policy": self.policy.status(),
            "journal": {"head": self.store.head()[0], "degraded": self.store.degraded},
            "workspace": workspaces.default,
            **named,
            "running_calls": self.broker.running(),
            "pending_approvals": self.pending(),
            "nodes": self.nodes.status(),
            "workers": self.workers.status(),
            "browser": self.browser.supervisor.status(),
        }

    def missing(self) -> list[str]:
        """Return the reasons why this daemon takes no calls; empty if it is ready."""
        reasons = [f"journal: {self.store.degraded}"] if self.store.degraded else []
        rejected = self.policy.status()["rejected"]
        if rejected is not None and rejected["code"] == PolicyDirectoryMissing.code:
            reasons += [f"policies: {error}" for error in rejected["errors"]]
        return reasons

    def pending(self) -> int:
        return approval_tables.count_pending(self.store)

    def build_all(self) -> None:
        """Build all services but the identities of devices, which are made for the first device."""
        for name in self.executors:
            self.executors[name]
        for part in ("channels", "nodes", "service", "skills_in_use", "workers"):
            getattr(self, part)
        self.browser.operator_service  # noqa: B018

    def policy_changed(self) -> None:
        """Cut what a new policy no longer allows, and refuse it from the next connection on."""
        if self.has("egress"):
            self.egress.policy_changed()
        if self.has("mcp"):
            self.mcp.servers.policy_changed()
        self.browser.policy_changed()
        self.broker.policy_changed()
