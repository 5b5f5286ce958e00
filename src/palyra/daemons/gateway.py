"""The composition root of palyrad: every adapter is made and joined here, and nowhere else."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palyra import limits
from palyra.api.service import ApiService
from palyra.browser import sqlite_profiles
from palyra.clock import SystemClock
from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemons.active_skills import ActiveSkills
from palyra.daemons.approval_expiry import expire_approvals
from palyra.daemons.browser_specs import BROWSER_EXECUTOR
from palyra.daemons.browser_tier import BrowserTier
from palyra.daemons.call_config import tool_call_config
from palyra.daemons.channel_hub import ChannelHub
from palyra.daemons.console_parts import CONSOLE_SCHEMA
from palyra.daemons.egress_journal import JournalObserver
from palyra.daemons.egress_parts import EgressParts
from palyra.daemons.entity_directory import directory_of
from palyra.daemons.fetch_tool import FETCH_EXECUTOR, FetchTool
from palyra.daemons.instances import InstanceRegistry
from palyra.daemons.mcp_parts import McpParts
from palyra.daemons.node_parts import NodeParts, advertised_names
from palyra.daemons.node_tool import NODE_EXECUTOR, DeviceCalls, NodeTool
from palyra.daemons.policy_watch import LivePolicy
from palyra.daemons.process_tools import PROCESS_EXECUTOR, ProcessExecutor
from palyra.daemons.skill_calls import SkillCalls
from palyra.daemons.skill_parts import SKILL_SCHEMA, make_skills
from palyra.daemons.skill_tools import WASM_EXECUTOR
from palyra.daemons.tool_set import FILES_EXECUTOR, FilesExecutor, builtin_catalog, file_spec
from palyra.daemons.vault_parts import DecidedSecrets, key_sources, make_vault
from palyra.daemons.wasm_tools import WasmTools
from palyra.daemons.worker_hosts import HostsOnWorkers
from palyra.daemons.worker_tier import WorkerTier
from palyra.fetch.tool import NAME as FETCH
from palyra.identity import sqlite_schema, sqlite_tokens
from palyra.journal.event import NewEvent
from palyra.journal.redact import Redactor
from palyra.journal.sqlite import SqliteStore
from palyra.mcp.behind import sqlite_pins
from palyra.mcp.behind.server_tool import MCP_EXECUTOR
from palyra.nodes import sqlite_state, state_file
from palyra.signing.ed25519 import Ed25519Signer
from palyra.telemetry import names
from palyra.telemetry.call_watch import watch_calls
from palyra.telemetry.prometheus import PrometheusMetrics
from palyra.tools import builtin, sqlite_approvals, sqlite_calls, sqlite_runs
from palyra.tools.broker import Broker
from palyra.tools.spec import WORKER_EXECUTOR
from palyra.vault import sqlite_vault
from palyra.version import VERSION
from palyra.workers import sqlite_fleet

if TYPE_CHECKING:
    from palyra.daemons.worker_parts import WorkerParts
    from palyra.identity.identity_manager import IdentityManager

log = logging.getLogger("palyra.gateway")

ACTOR = "palyrad"
DATABASE = "palyra.db"
SIGNING_KEY = "signing.key"


class Gateway:
    """One running pipeline on one state directory, with or without a listener in front of it."""

    def __init__(self, settings: Settings, state: StateDir, policy_dir: Path, *, channel: str) -> None:
        self.settings = settings
        self.state = state
        self.clock = SystemClock()
        self.redactor = Redactor()
        self.browser = BrowserTier(settings, state, file_spec)
        self.catalog = builtin_catalog(
            settings.sandbox, settings.egress, settings.wasm, lambda: self.nodes.devices(), self.browser.specs
        )
        self.metrics = PrometheusMetrics(self.catalog)
        signer = Ed25519Signer.load_or_create(state.path(SIGNING_KEY))
        self.store = SqliteStore.open(
            state.path(DATABASE),
            clock=self.clock,
            redactor=self.redactor,
            signer=signer,
            schema=(
                *sqlite_runs.SCHEMA,
                *sqlite_approvals.SCHEMA,
                *sqlite_calls.SCHEMA,
                *sqlite_tokens.SCHEMA,
                *sqlite_vault.SCHEMA,
                *sqlite_schema.SCHEMA,
                *sqlite_fleet.SCHEMA,
                *state_file.SCHEMA,
                *sqlite_state.SCHEMA,
                *SKILL_SCHEMA,
                *sqlite_pins.SCHEMA,
                *sqlite_profiles.SCHEMA,
                *CONSOLE_SCHEMA,
            ),
            checkpoint_events=settings.journal.checkpoint_events,
            checkpoint_seconds=settings.journal.checkpoint_seconds,
        )
        try:
            self.directory = directory_of(settings)
            self.policy = LivePolicy(policy_dir, self.directory, self.store, state, self.metrics)
            # A daemon has no person in front of it to ask.
            self._key_sources = key_sources(
                settings.vault, state=state, config_dir=policy_dir.parent, at_terminal=channel == "cli"
            )
            self.vault = make_vault(
                settings.vault, store=self.store, sources=self._key_sources, learn=self.redactor.register
            )
            self.skills = make_skills(settings.skills, store=self.store, state=state)
            self.secrets = DecidedSecrets(self.vault, self.policy, self.directory, self.store, actor=ACTOR)
            instance, self._instance_lock = InstanceRegistry(state.path("instances")).enter()
            self._instance = str(instance)
            self._files = FilesExecutor(settings.workspace.protected_names)
            self.egress = EgressParts(
                settings.egress,
                policy=self.policy,
                directory=self.directory,
                catalog=self.catalog,
                secrets=self.secrets,
                observer=JournalObserver(self.store, actor=ACTOR, metrics=self.metrics),
            )
            self.browser.join(
                store=self.store,
                policy=self.policy,
                directory=self.directory,
                secrets=self.secrets,
                serving=channel != "cli",
                actor=ACTOR,
            )
            # What a new policy no longer allows is cut, not only refused from the next connection on.
            self.policy.on_change = lambda: (self.egress.policy_changed(), self.browser.parts.policy_changed())
            self.processes = ProcessExecutor(
                settings.sandbox, settings.workspace.protected_names, state.path("sandbox"), self.egress
            )
            self._fetch = FetchTool(
                settings.egress,
                spec=self.catalog.entry(FETCH).spec,
                directory=self.directory,
                dialler=self.egress.proxy.dialler,
                grants=self.egress.grants,
                secrets=self.egress.secrets,
                observer=self.egress.observer,
            )
            self.egress.reconsidering.append(self._fetch.reconsider)
            self.channels = ChannelHub(self.store, actor=ACTOR)
            active_skills = ActiveSkills(self.skills, self.catalog, settings.wasm, settings.egress, actor=ACTOR)
            self.wasm = WasmTools(
                settings.wasm,
                state,
                skills=active_skills,
                calls=SkillCalls(
                    settings.egress,
                    state,
                    egress=self.egress,
                    directory=self.directory,
                    secrets=self.secrets,
                    channels=self.channels,
                    redactor=self.redactor,
                    require_kept=self.skills.index.require_kept,
                ),
                policy=self.policy,
                directory=self.directory,
                protected_names=settings.workspace.protected_names,
                clock=self.clock,
            )
            self.skills.on_change = self.wasm.skills_changed
            self.mcp = McpParts(
                settings,
                state,
                lambda: self.service,
                store=self.store,
                catalog=self.catalog,
                egress=self.egress,
                secrets=self.secrets,
                actor=ACTOR,
            )
            self.nodes = NodeParts(
                settings.nodes,
                store=self.store,
                state=state,
                clock=self.clock,
                identity=lambda: self.identity,
                calls=DeviceCalls(lambda: self.broker),
                learn=self.redactor.register,
                instance=self._instance,
                metrics=self.metrics,
                actor=ACTOR,
            )
            self.broker = Broker(
                config=tool_call_config(settings, state, self.directory),
                catalog=self.catalog,
                executors={
                    builtin.EXECUTOR: builtin.BuiltinExecutor(),
                    FILES_EXECUTOR: self._files,
                    PROCESS_EXECUTOR: self.processes,
                    FETCH_EXECUTOR: self._fetch,
                    WASM_EXECUTOR: self.wasm,
                    MCP_EXECUTOR: self.mcp.servers,
                    NODE_EXECUTOR: NodeTool(self.nodes.devices),
                    BROWSER_EXECUTOR: self.browser.tools,
                    WORKER_EXECUTOR: WorkerTier(
                        lambda: self.workers,
                        self.catalog,
                        protected=settings.workspace.protected_names,
                        hosts=HostsOnWorkers(settings.sandbox, self.egress),
                        check=self.wasm.require_runnable,
                    ),
                },
                policy=self.policy,
                store=self.store,
                signer=signer,
                clock=self.clock,
                instance=self._instance,
                observer=watch_calls(self.metrics, self.catalog),
                redact=self.redactor.result,
                freshen=active_skills.freshen,
            )
        except BaseException:
            self.store.close()
            raise
        self.service = ApiService(
            store=self.store,
            broker=self.broker,
            vault=self.vault,
            skills=self.skills,
            prepare_skills=self.wasm.prepare,
            identity=lambda: self.identity,
            nodes=self.nodes.opened,
            workers=lambda: self.workers,
            browser=self.browser.desk,
            channels=self.channels,
            mcp=self.mcp.door,
            mcp_servers=self.mcp.servers,
            policy=self.policy,
            clock=self.clock,
            status=self.status,
            metrics=self.metrics.render,
            ready=self.missing,
            on_rejected=self.metrics.token_rejected,
            channel=channel,
        )
        self.metrics.watch(names.CALLS_RUNNING, "Calls running now.", self.broker.running)
        self.metrics.watch(names.JOURNAL_HEAD, "Number of the newest journal entry.", lambda: self.store.head()[0])
        self.metrics.watch(names.APPROVALS_PENDING, "Requests that wait for a person.", self._pending)
        self.metrics.watch(names.EGRESS_TUNNELS, "Connections of calls that are open.", self._tunnels)
        self.metrics.watch(names.NODES_ONLINE, "Devices connected now.", lambda: len(self.nodes.registry))

    @cached_property
    def identity(self) -> "IdentityManager":
        """Made when a device is first spoken of: most commands never do."""
        from palyra.daemons.identity_parts import make_identity

        return make_identity(
            self.settings.identity,
            store=self.store,
            clock=self.clock,
            sources=self._key_sources,
            source=self.settings.vault.key_source,
            actor=ACTOR,
            server_names=advertised_names(self.settings.nodes),
        )

    @cached_property
    def workers(self) -> "WorkerParts":
        """Made when the fleet is first spoken of, for the same reason."""
        from palyra.daemons.worker_parts import WorkerParts

        return WorkerParts(
            self.settings.workers,
            store=self.store,
            state=self.state,
            clock=self.clock,
            identity=lambda: self.identity,
            unpair=self._unpair,
            instance=self._instance,
            metrics=self.metrics,
        )

    async def _unpair(self, device_id: str, *, reason: str, actor: str) -> None:
        await (await self.nodes.opened()).desk.revoke(device_id, reason=reason, actor=actor)

    def release_abandoned(self) -> int:
        """Ends what dead processes left running on this state directory. Returns how many calls that were."""
        live = InstanceRegistry(self.state.path("instances")).live() | {self._instance}
        released = self.store.transact_blocking(lambda tx: sqlite_calls.release_abandoned(tx, live, actor=ACTOR))
        return len(released)

    def status(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "instance": self._instance,
            "policy": self.policy.status(),
            "journal": {"head": self.store.head()[0], "degraded": self.store.degraded},
            "workspace": self.broker.config.workspace,
            "running_calls": self.broker.running(),
            "pending_approvals": self._pending(),
            "nodes": self.nodes.status(),
            "workers": self.workers.status(),
            "browser": self.browser.parts.status(),
        }

    def missing(self) -> list[str]:
        """What keeps this daemon from taking calls; nothing when it is ready."""
        return [f"journal: {self.store.degraded}"] if self.store.degraded else []

    def _tunnels(self) -> int:
        return self.egress.proxy.stats().tunnels

    def _pending(self) -> int:
        return sqlite_approvals.count_pending(self.store)

    def close(self) -> None:
        self._files.close()
        self._fetch.close()
        self.egress.close()
        self.store.close()
        self._instance_lock.release(remove=True)


@asynccontextmanager
async def running_gateway(settings: Settings, state: StateDir, policy_dir: Path) -> AsyncIterator[Gateway]:
    """A gateway with everything that runs beside the calls: recovery, policy watching, expiry; and an orderly end."""
    gateway = Gateway(settings, state, policy_dir, channel="api")
    try:
        released = gateway.release_abandoned()
        await gateway.store.transact(
            lambda tx: tx.append(
                NewEvent(
                    kind="daemon.started",
                    actor=ACTOR,
                    payload={"bundle_digest": gateway.policy.bundle_digest, "abandoned_calls": released},
                )
            )
        )
        failure: Exception | None = None
        gateway.workers.join(gateway.nodes, gateway.metrics)
        expiry = expire_approvals(gateway.store, gateway.clock, gateway.broker.waiting_room, actor=ACTOR)
        async with gateway.nodes.running(), gateway.workers.running(), asyncio.TaskGroup() as beside:
            tasks = [
                beside.create_task(gateway.policy.watch(), name="policy watch"),
                beside.create_task(expiry, name="approval expiry"),
                beside.create_task(gateway.wasm.keep_prepared(), name="skill preparation"),
            ]
            try:
                yield gateway
            except Exception as error:
                # Raised again below: out of the task group it would come wrapped.
                failure = error
            finally:
                await gateway.broker.stop(limits.GRACEFUL_STOP_SECONDS)
                await gateway.mcp.close()
                await gateway.processes.close()
                await gateway.browser.parts.close()
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await gateway.wasm.close()
        if failure is not None:
            raise failure
        with contextlib.suppress(Exception):
            await gateway.store.transact(
                lambda tx: tx.append(NewEvent(kind="daemon.stopped", actor=ACTOR, payload={})), essential=True
            )
    finally:
        gateway.close()
