"""Leased calls on a worker: the daemon's executors in the scratch workspace of the lease.

The daemon decides. The worker runs the call in this machine's tiers, under its own settings as restricted by the lease.
The only network is the worker's egress proxy.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from palyra.clock import Clock
from palyra.config.state_dir import StateDir
from palyra.egress.settings import EgressSettings
from palyra.errors import PalyraError
from palyra.executors import builtin
from palyra.executors.files.executor import FilesExecutor
from palyra.executors.files.spec import FILES_EXECUTOR
from palyra.executors.process.executor import PROCESS_EXECUTOR, ProcessTools, compile_profile
from palyra.executors.tool_set import builtin_catalog
from palyra.executors.wasm.executor import make_runtime, read_workspace_module, run_plugin
from palyra.executors.wasm.spec import PLUGIN_RUN, WASM_EXECUTOR, NoModule, WasmPluginRunnerPolicy, most_limits
from palyra.fleet.agent.lease import BadOffer, LeaseOffer, ToolNotOffered
from palyra.fleet.agent.ports import CallEnd, EgressOfLease, OutputSink
from palyra.fleet.agent.scratch import Scratch
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.pipeline.domain.spec import ToolCapability, ToolSpec, ToolTier
from palyra.pipeline.execute import Executor, execute
from palyra.pipeline.intake import accept_arguments
from palyra.sandbox.domain.profile import NewProtectedPolicy, SandboxProfile
from palyra.sandbox.layers.bubblewrap import gather_host
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.running_process import StreamName
from palyra.sandbox.settings import SandboxSettings
from palyra.wasm.runtime import WasmRuntime
from palyra.wasm.settings import WasmSettings
from palyra.workspace.names import ProtectedNames
from palyra.workspace.protected_table import watched_in_sandbox

SANDBOX: Final = "sandbox"
PROCESS_RUN: Final = "process.run"
# The channel of leased calls here; the daemon has recorded the true one.
CHANNEL: Final = "worker"
_FILES: Final = "fs."
_STREAMS: Final = {StreamName.STDOUT: 1, StreamName.STDERR: 2}


class LeasedCallSettings(msgspec.Struct, frozen=True, kw_only=True):
    sandbox: SandboxSettings
    egress: EgressSettings
    wasm: WasmSettings
    protected_names: tuple[str, ...]


class WorkerCalls:
    """Created without an event loop; the first call that needs a runner or a runtime creates it."""

    def __init__(
        self, settings: LeasedCallSettings, state: StateDir, *, egress: EgressOfLease | None, clock: Clock
    ) -> None:
        self._settings = settings
        self._state = state
        self._egress = egress
        self._clock = clock
        self._catalog = builtin_catalog(settings.sandbox, settings.egress, settings.wasm)
        self._protected = settings.protected_names
        self._protected_names = ProtectedNames(watched_in_sandbox(self._protected))
        self._builtin = builtin.BuiltinExecutor()
        self._files = FilesExecutor(self._protected)
        self._plugins = WasmPluginRunnerPolicy.of(settings.wasm)
        self._runner: ProcessRunner | None = None
        self._runtime: WasmRuntime | None = None
        self._tiers = _find_tiers(settings)
        self._specs = {str(spec.name): spec for spec in self._catalog.specs() if self._is_leased(spec)}

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The tools and tiers that this machine attests."""
        return (*(f"tool.{tool}" for tool in sorted(self._specs)), *(f"tier.{tier}" for tier in sorted(self._tiers)))

    def require_offered(self, offer: LeaseOffer) -> None:
        spec = self._specs.get(offer.tool)
        if spec is None:
            raise ToolNotOffered(f"this worker does not run {offer.tool[:128]!r}", tool=offer.tool[:128])
        tier = _tier_of(offer, spec)
        if tier not in {spec.tier, *spec.other_tiers}:
            raise ToolNotOffered(f"{offer.tool} does not run in tier {tier.value}")
        if tier is not ToolTier.BUILTIN and tier.value not in self._tiers:
            raise ToolNotOffered(f"this worker has no tier {tier.value}")
        entry = self._catalog.entry(offer.tool)
        accepted = accept_arguments(spec, entry.input_check, dict(offer.arguments))
        if accepted.digest != offer.argument_digest:
            raise BadOffer("the completed arguments differ from those that the lease names")
        if offer.tool == PROCESS_RUN and offer.arguments.get("background"):
            raise ToolNotOffered("a lease ends with its call: nothing goes on in the background")
        writes = ToolCapability.FILESYSTEM_WRITE in spec.metadata.capabilities and offer.tool.startswith(_FILES)
        for path in spec.touches(offer.arguments).paths:
            if path not in ("", "."):
                offer.scope.require(path, write=writes)

    def is_protected(self, names: tuple[str, ...]) -> bool:
        return self._protected_names.match(names) is not None

    async def perform(self, offer: LeaseOffer, scratch: Scratch, timeout_ms: int, sink: OutputSink) -> CallEnd:
        entry = self._catalog.entry(offer.tool)
        obliged = offer.obligations
        plan = ExecutionPlan(
            call_id=offer.call_id,
            run_id=offer.run_id,
            tool=offer.tool,
            arguments=offer.arguments,
            workspace=str(scratch.workspace),
            timeout_ms=min(timeout_ms, obliged.timeout_ms or timeout_ms),
            max_output_bytes=min(offer.max_output_bytes, obliged.max_output_bytes or offer.max_output_bytes),
            tier=_tier_of(offer, entry.spec),
            obligations=msgspec.structs.replace(obliged, read_only=offer.scope.read_only or obliged.read_only),
            principal=offer.principal,
            channel=CHANNEL,
            approved=True,
        )
        executor = self._choose_executor(entry.spec, offer, sink)
        ended = await execute(executor, entry, plan, redact=lambda value: value, clock=self._clock)
        return CallEnd(
            outcome=LeaseOutcome(ended.state.value),
            result=ended.result,
            error=ended.error,
            receipt=ended.receipt,
            executor=entry.spec.executor,
        )

    async def close(self) -> None:
        self._files.close()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.close()
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            await runtime.close()

    def _is_leased(self, spec: ToolSpec) -> bool:
        """Tell whether the tool needs nothing but its arguments and the files of the lease."""
        if spec.executor in (builtin.EXECUTOR, FILES_EXECUTOR):
            return True
        if str(spec.name) == PROCESS_RUN:
            return self._settings.sandbox.enabled
        return str(spec.name) == PLUGIN_RUN and self._settings.wasm.enabled

    def _choose_executor(self, spec: ToolSpec, offer: LeaseOffer, sink: OutputSink) -> Executor:
        match spec.executor:
            case builtin.EXECUTOR:
                return self._builtin
            case "files":
                return self._files
            case "process":
                return _LeasedProcess(
                    self._open_runner(), self._settings.sandbox, self._protected, offer, self._egress, sink
                )
            case _:
                return _LeasedPlugin(self._open_runtime, self._plugins, self._protected)

    def _open_runner(self) -> ProcessRunner:
        if self._runner is None:
            scratch = self._state.path(SANDBOX)
            scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            settings = self._settings.sandbox
            self._runner = ProcessRunner(
                RunnerSettings(
                    enabled=settings.enabled,
                    max_running=settings.max_running,
                    max_waiting=settings.max_waiting,
                    # A prewarmed sandbox would hold the workspace of a lease after its end.
                    prewarm=False,
                    scratch=str(scratch),
                )
            )
        return self._runner

    def _open_runtime(self) -> WasmRuntime:
        if self._runtime is None:
            self._runtime = make_runtime(self._settings.wasm, self._state, most_limits(self._settings.wasm))
        return self._runtime


@dataclass(eq=False)
class _LeasedProcess:
    name = PROCESS_EXECUTOR
    keeps_deadline = True

    runner: ProcessRunner
    settings: SandboxSettings
    protected: tuple[str, ...]
    offer: LeaseOffer
    egress: EgressOfLease | None
    sink: OutputSink

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        """Allow the hosts that the daemon granted to the worker's proxy for this lease; without a proxy, no host."""
        offer, egress = self.offer, self.egress
        hosts = () if egress is None else await egress.hosts(offer.lease_id, offer.fence)
        settings = msgspec.structs.replace(self.settings, egress="strict", allowed_hosts=hosts)
        profile = _keep_protected(compile_profile(plan, settings, self.protected, watched=True))
        network = egress.network(offer.lease_id, offer.fence) if egress is not None and hosts else None
        tools = ProcessTools(self.runner)
        tools.sink = lambda stream, data: self.sink(_STREAMS[stream], data)
        return await tools.perform(plan, profile, network)


@dataclass(eq=False)
class _LeasedPlugin:
    name = WASM_EXECUTOR
    keeps_deadline = True

    runtime: Callable[[], WasmRuntime]
    policy: WasmPluginRunnerPolicy
    protected: tuple[str, ...]

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        """Run a module from the files of the lease; the daemon has decided which."""
        self.policy.require_enabled()
        if "path" not in plan.arguments:
            raise NoModule("a leased plugin is a file of its lease")
        module = await asyncio.to_thread(read_workspace_module, plan, self.protected)
        compiled = await self.runtime().compile(module)
        return await run_plugin(self.runtime(), compiled, plan, self.policy)


def _keep_protected(profile: SandboxProfile) -> SandboxProfile:
    """Keep new protected names where they are: they are not sent back and vanish with the scratch workspace."""
    if profile.appearing_protected is not NewProtectedPolicy.MOVE_ASIDE:
        return profile
    return msgspec.structs.replace(profile, appearing_protected=NewProtectedPolicy.KEEP)


def _tier_of(offer: LeaseOffer, spec: ToolSpec) -> ToolTier:
    named = offer.obligations.tier or offer.tier
    return spec.tier if named in ("", ToolTier.BUILTIN.value) else ToolTier(named)


def _find_tiers(settings: LeasedCallSettings) -> frozenset[str]:
    """Return the tiers of this machine, each tried for real."""
    found: set[Any] = {ToolTier.A.value} if settings.wasm.enabled else set()
    if settings.sandbox.enabled:
        found.add(ToolTier.B.value)
        try:
            gather_host()
            found.add(ToolTier.C.value)
        except PalyraError:
            pass
    return frozenset(found)
