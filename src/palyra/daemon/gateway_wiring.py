"""The composition root of palyrad: every adapter is made and joined here, and nowhere else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palyra import limits
from palyra.clock import SystemClock
from palyra.config.state_dir import InstanceRegistry, StateDir
from palyra.daemon.browser_wiring import BrowserTier
from palyra.daemon.pipeline_wiring import SCHEMA, directory_of, tool_call_config
from palyra.daemon.services import ACTOR, GatewayServices
from palyra.daemon.settings import Settings
from palyra.executors import builtin
from palyra.executors.browser.spec import BROWSER_EXECUTOR
from palyra.executors.fetch.spec import EXECUTOR as FETCH_EXECUTOR
from palyra.executors.files.spec import FILES_EXECUTOR, file_spec
from palyra.executors.inspection import CallInspector
from palyra.executors.mcp_upstream.settings import MCP_EXECUTOR
from palyra.executors.node.spec import NODE_EXECUTOR
from palyra.executors.process.executor import PROCESS_EXECUTOR, ProcessExecutor
from palyra.executors.process.planted import report_to
from palyra.executors.tool_set import builtin_catalog
from palyra.executors.wasm.spec import WASM_EXECUTOR
from palyra.journal.chain import JournalLog
from palyra.journal.checkpoint import CHECKPOINT_NAME
from palyra.journal.redaction import Redactor
from palyra.pipeline import settle
from palyra.pipeline.broker import Broker
from palyra.pipeline.domain.spec import WORKER_EXECUTOR
from palyra.pipeline.execute import DeferredExecutors, Executor
from palyra.pipeline.observe import build_observer
from palyra.policy.live_policy import LivePolicy
from palyra.signing.ed25519 import Ed25519Signer
from palyra.store.event import NewEvent
from palyra.store.sqlite.store import SqliteStore
from palyra.telemetry import metrics
from palyra.telemetry.metrics import UnreadMetrics

if TYPE_CHECKING:
    from palyra.telemetry.prometheus import PrometheusMetrics

DATABASE: Final = "palyra.db"
SIGNING_KEY: Final = "signing.key"


class Gateway(GatewayServices):
    """One running pipeline on one state directory, with or without a listener in front of it."""

    def __init__(
        self,
        settings: Settings,
        state: StateDir,
        policy_dir: Path,
        *,
        channel: str,
        settings_file: Path | None = None,
    ) -> None:
        """``settings_file`` is the one in force, whether or not it is written: no workspace may hold it."""
        self.settings = settings
        self.state = state
        self.policy_dir = policy_dir
        self.channel = channel
        self.clock = SystemClock()
        self.redactor = Redactor()
        self.browser = BrowserTier(settings, state, file_spec)
        self.catalog = builtin_catalog(
            settings.sandbox, settings.egress, settings.wasm, lambda: self.nodes.devices(), self.browser.specs
        )
        self.metrics = self._new_metrics()
        self.signer = signer = Ed25519Signer.load_or_create(state.path(SIGNING_KEY))
        self.store = SqliteStore.open(
            state.path(DATABASE),
            clock=self.clock,
            log=JournalLog(
                clock=self.clock,
                redactor=self.redactor,
                signer=signer,
                checkpoint_path=state.path(CHECKPOINT_NAME),
                checkpoint_events=settings.journal.checkpoint_events,
                checkpoint_seconds=settings.journal.checkpoint_seconds,
            ),
            schema=SCHEMA,
        )
        try:
            self.directory = directory_of(settings)
            self.policy = LivePolicy(
                policy_dir, self.directory, self.store, state, self.metrics, named=bool(settings.policy.dir)
            )
            self.policy.on_change = self.policy_changed
            instance, self._instance_lock = InstanceRegistry(state.path("instances")).enter()
            self.instance = str(instance)
            self.browser.join(
                store=self.store,
                policy=self.policy,
                directory=self.directory,
                secrets=lambda: self.secrets,
                serving=channel != "cli",
                actor=ACTOR,
            )
            inspector = CallInspector(settings.sandbox, settings.workspace.protected_names)
            self.processes = ProcessExecutor(
                settings.sandbox,
                settings.workspace.protected,
                state.path("sandbox"),
                lambda: self.egress,
                one_command=channel == "cli",
                verify=inspector.verify,
                report=report_to(self.store, ACTOR),
            )
            self.executors = DeferredExecutors(
                {
                    builtin.EXECUTOR: builtin.BuiltinExecutor,
                    FILES_EXECUTOR: lambda: self.files,
                    PROCESS_EXECUTOR: lambda: self.processes,
                    FETCH_EXECUTOR: lambda: self.fetch,
                    WASM_EXECUTOR: lambda: self.wasm,
                    MCP_EXECUTOR: lambda: self.mcp.servers,
                    NODE_EXECUTOR: self._node_tool,
                    BROWSER_EXECUTOR: lambda: self.browser.tools,
                    WORKER_EXECUTOR: partial(self._worker_tier, inspector),
                }
            )
            self.broker = Broker(
                config=tool_call_config(settings, state, policy_dir, self.directory, settings_file),
                catalog=self.catalog,
                executors=self.executors,
                policy=self.policy,
                store=self.store,
                signer=signer,
                clock=self.clock,
                instance=self.instance,
                observer=build_observer(self.metrics.registry, self.catalog),
                redact=self.redactor.result,
                seal=self.arguments.seal,
                refresh=lambda: self.skills_in_use.refresh(),
                wait_until_ready=lambda plan: self.wasm.wait_until_ready(plan),
                inspect=inspector.inspect,
            )
            if settings.mcp.servers:
                # Their tools are in the catalog.
                self.mcp  # noqa: B018
        except BaseException:
            self.store.close()
            raise
        self.metrics.watch(metrics.CALLS_RUNNING, "Calls running now.", self.broker.running)
        self.metrics.watch(metrics.JOURNAL_HEAD, "Number of the newest journal entry.", lambda: self.store.head()[0])
        self.metrics.watch(metrics.APPROVALS_PENDING, "Requests that wait for a person.", self.pending)
        self.metrics.watch(metrics.EGRESS_TUNNELS, "Connections of calls that are open.", self._tunnels)
        self.metrics.watch(metrics.NODES_ONLINE, "Devices connected now.", lambda: len(self.nodes.registry))

    def _new_metrics(self) -> "PrometheusMetrics | UnreadMetrics":
        if self.channel == "cli":
            return UnreadMetrics()
        from palyra.telemetry.prometheus import PrometheusMetrics

        return PrometheusMetrics()

    def _node_tool(self) -> Executor:
        from palyra.executors.node.executor import NodeTool

        return NodeTool(self.nodes.devices)

    def _worker_tier(self, inspector: CallInspector) -> Executor:
        from palyra.executors.worker.executor import WorkerExecutor, WorkerHosts

        return WorkerExecutor(
            lambda: self.workers,
            self.catalog,
            protected=self.settings.workspace.protected,
            hosts=WorkerHosts(self.settings.sandbox, self.egress),
            check=self.wasm.require_runnable,
            verify=inspector.verify,
        )

    def release_abandoned(self) -> int:
        """End the calls that dead processes left running on this state directory. Return how many."""
        live = InstanceRegistry(self.state.path("instances")).live() | {self.instance}
        released = self.store.transact_blocking(lambda tx: settle.release_abandoned(tx, live, actor=ACTOR))
        return len(released)

    def _tunnels(self) -> int:
        return self.egress.proxy.tunnels if self.has("egress") else 0

    def close(self) -> None:
        if self.has("files"):
            self.files.close()
        if self.has("fetch"):
            self.fetch.close()
        if self.has("egress"):
            self.egress.close()
        self.store.close()
        self._instance_lock.release(remove=True)


@asynccontextmanager
async def running_gateway(
    settings: Settings, state: StateDir, policy_dir: Path, settings_file: Path | None = None
) -> AsyncIterator[Gateway]:
    """Run a gateway with all that belongs to it: recovery, policy watching, expiry, and an orderly end."""
    from palyra.pipeline.approve import expire_approvals
    from palyra.pipeline.retention import bound_results, compute_bounds

    gateway = Gateway(settings, state, policy_dir, channel="api", settings_file=settings_file)
    try:
        gateway.build_all()
        released = gateway.release_abandoned()
        await gateway.arguments.prepare()
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
        expiry = expire_approvals(gateway.store, gateway.clock, gateway.broker.approval_waiters, actor=ACTOR)
        bounds = compute_bounds(settings.retention.results_days, settings.retention.results_bytes)
        retention = bound_results(gateway.store, bounds, gateway.clock, actor=ACTOR)
        async with gateway.nodes.running(), gateway.workers.running(), asyncio.TaskGroup() as beside:
            tasks = [
                beside.create_task(gateway.policy.watch(), name="policy watch"),
                beside.create_task(expiry, name="approval expiry"),
                beside.create_task(gateway.arguments.keep_bounded(), name="kept arguments"),
                beside.create_task(retention, name="result retention"),
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
                await gateway.browser.supervisor.close()
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
