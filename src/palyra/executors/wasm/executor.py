"""The executor of tier A: tools of skills and ``plugin.run``, over one WebAssembly runtime."""

import asyncio
import contextlib
import hashlib
import os
import secrets
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import msgspec

from palyra.canonical import canonical_json
from palyra.clock import Clock
from palyra.config.state_dir import StateDir
from palyra.errors import PalyraError
from palyra.executors.wasm.active_skills import ActiveSkills
from palyra.executors.wasm.host_services import SkillCalls, SkillServices
from palyra.executors.wasm.skill_tools import ActiveTool, call_grants, call_limits, guest_input
from palyra.executors.wasm.spec import (
    PLUGIN_RUN,
    WASM_EXECUTOR,
    ModuleTooLarge,
    NoModule,
    WasmPluginRunnerPolicy,
    most_limits,
)
from palyra.ids import Principal
from palyra.pipeline.authorize import build_skill_request
from palyra.pipeline.domain.approval import ApprovedFileChanged
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import CallDenied, ExecutionPlan, ExecutorOutcome
from palyra.pipeline.intake import MAX_QUICK_BYTES
from palyra.policy.decision import Outcome as Verdict
from palyra.policy.decision import PolicyPort
from palyra.policy.request import EntityDirectory
from palyra.secret import Secret
from palyra.skills.package.configuration import refuse_configuration
from palyra.skills.registry.records import ResolvedInstalledSkillModule
from palyra.strict_json import NotStrictJson, parse_strict
from palyra.wasm.domain.limits import MAX_MODULE_BYTES, PoolSettings, RuntimeLimits
from palyra.wasm.domain.outcome import InvalidOutput, LogLine, NotCompiled, TimedOut, WasmOutcome, WasmUsage, WorkerLost
from palyra.wasm.runtime import CompiledModule, WasmRuntime
from palyra.wasm.settings import WasmSettings
from palyra.workspace.names import WorkspacePath
from palyra.workspace.root import open_workspace, read_up_to


def read_workspace_module(plan: ExecutionPlan, protected_names: tuple[str, ...]) -> bytes:
    """Read the module file without leaving the workspace. Blocks: call it on a thread."""
    path = WorkspacePath.parse(plan.arguments["path"])
    with (
        open_workspace(Path(plan.workspace), protected_names, read_only=True, decided=plan.places) as workspace,
        workspace.open_file(path) as descriptor,
    ):
        if os.fstat(descriptor).st_size > MAX_MODULE_BYTES:
            raise ModuleTooLarge(f"{path.render()} is larger than {MAX_MODULE_BYTES} bytes")
        module = read_up_to(descriptor, 0, MAX_MODULE_BYTES, shown=path.render(), cancelled=threading.Event())
    if plan.bound and hashlib.sha256(module).hexdigest() != plan.bound[0].sha256:
        raise ApprovedFileChanged(f"{path.render()} changed after {plan.tool} was approved", path=path.render())
    return module


CACHE: Final = "wasm/compiled"
# The key that authenticates compiled modules on disk: native code of another author is not loaded.
CACHE_KEY: Final = "wasm/cache.key"
_KEY_BYTES: Final = 32


def make_runtime(settings: WasmSettings, state: StateDir, limits: RuntimeLimits) -> WasmRuntime:
    """Make the runtime. Its first use starts the processes."""
    return WasmRuntime(
        cache_directory=state.path(CACHE),
        key=_cache_key(state),
        limits=limits,
        pool=PoolSettings(ready=settings.workers),
    )


def _cache_key(state: StateDir) -> Secret:
    path = state.path(CACHE_KEY)
    try:
        key = path.read_text("ascii")
    except FileNotFoundError:
        key = secrets.token_hex(_KEY_BYTES)
        state.write_atomic(CACHE_KEY, key.encode())
    return Secret(key)


# Characters of a guest's log in the receipt, which the journal and the attestation carry.
MAX_SHOWN_LOG_CHARS: Final = 8_192


class WasmTools:
    """The executor. The first call, or ``prepare``, starts its runtime; after ``close`` the next call does."""

    name = WASM_EXECUTOR
    keeps_deadline = True

    def __init__(
        self,
        settings: WasmSettings,
        state: StateDir,
        *,
        skills: ActiveSkills,
        calls: SkillCalls,
        policy: PolicyPort,
        directory: EntityDirectory,
        protected_names: tuple[str, ...],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._state = state
        self._skills = skills
        self._calls = calls
        self._policy = policy
        self._directory = directory
        self._protected = protected_names
        self._clock = clock
        self._runtime: WasmRuntime | None = None
        self._changed = asyncio.Event()
        self.runner = WasmPluginRunnerPolicy.of(settings)

    @property
    def runtime(self) -> WasmRuntime:
        if self._runtime is None:
            self._runtime = make_runtime(self._settings, self._state, most_limits(self._settings))
        return self._runtime

    async def keep_prepared(self) -> None:
        """Compile the skills in use, and each later one as it is approved; run until cancelled."""
        while self._settings.enabled:
            self._changed.clear()
            await self._skills.prepare(self._compile)
            await self._changed.wait()

    async def prepare(self) -> None:
        """Compile the skills in use, and return when that is done."""
        if self._settings.enabled:
            await self._skills.prepare(self._compile)

    def wait_until_ready(self, plan: ExecutionPlan) -> Awaitable[None] | None:
        """Wait for the compilation of the call's module, which may take longer than the call's deadline."""
        waits = self._skills.has_uncompiled and self._settings.enabled and not plan.on_worker
        return self._compile_for(plan) if waits else None

    async def _compile_for(self, plan: ExecutionPlan) -> None:
        # A failure here occurs again in the call, which reports it.
        with contextlib.suppress(PalyraError):
            active = self._skills.tool(plan.tool, plan.reviewed_digest)
            await self._skills.compiled(active.module, self._compile)

    def skills_changed(self) -> None:
        self._changed.set()

    async def close(self) -> None:
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            self._skills.forget_compiled()
            await runtime.close()

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        self.runner.require_enabled()
        if plan.tool == PLUGIN_RUN:
            return await self._run_plugin(plan)
        return await self._run_skill(plan)

    def require_runnable(self, plan: ExecutionPlan) -> None:
        """Raise for a call on a worker what ``execute`` raises before it reads the module."""
        if plan.tool == PLUGIN_RUN:
            self.runner.require_enabled()
            plugin_input(plan)
            if "path" not in plan.arguments:
                raise NoModule("a skill's module runs here; workers run modules of the workspace")
            self.runner.require_workspace_module(self._directory, Principal.parse(plan.principal))

    async def _compile(self, module: bytes) -> CompiledModule:
        return await self.runtime.compile(module)

    async def _run_skill(self, plan: ExecutionPlan) -> ExecutorOutcome:
        active = self._skills.tool(plan.tool, plan.reviewed_digest)
        try:
            return await self._run_active(plan, active)
        except NotCompiled:
            # The compiled module is gone from memory and disk. The approved archive still exists.
            self._skills.forget_compiled()
            await self._skills.refresh()
            return await self._run_active(plan, self._skills.tool(plan.tool, plan.reviewed_digest))

    async def _run_active(self, plan: ExecutionPlan, active: ActiveTool) -> ExecutorOutcome:
        async with self._calls.services(plan, active) as services:
            return await self._run_with(plan, active, services)

    async def _run_with(self, plan: ExecutionPlan, active: ActiveTool, services: SkillServices) -> ExecutorOutcome:
        limits = call_limits(plan, active.limits)
        compiled = await self._skills.compiled(active.module, self._compile)
        error: PalyraError | None = None
        done: WasmOutcome | PalyraError
        _note_full_budget(plan, limits)
        try:
            done = await self.runtime.run(
                compiled,
                tool=active.tool.id,
                input=guest_input(active, plan.arguments),
                grants=call_grants(active, self._clock.now_ms()),
                services=services,
                limits=limits,
                timeout_ms=min(plan.timeout_ms, active.requested.quotas.timeout_ms or self._settings.timeout_ms),
            )
            result = await _skill_output(done)
        except NotCompiled:
            plan.usage.note(BudgetKind.WASM_FUEL, 0)
            raise
        except PalyraError as failure:
            services.explain(failure)
            done = error = failure
            result = None
        _, lines = _charge(plan, done, limits)
        return ExecutorOutcome(
            result=result, receipt=(_skill_line(active.module), *lines, *services.receipt()), error=error
        )

    async def _run_plugin(self, plan: ExecutionPlan) -> ExecutorOutcome:
        # Refuse bad input before the module is compiled.
        plugin_input(plan)
        if "path" in plan.arguments:
            self.runner.require_workspace_module(self._directory, Principal.parse(plan.principal))
            compiled = await self._compile(await asyncio.to_thread(read_workspace_module, plan, self._protected))
        elif "skill_id" in plan.arguments:
            await self._skills.refresh()
            module = self._skills.module_of(plan.arguments["skill_id"], plan.arguments.get("module", ""))
            self._require_skill(plan, module)
            compiled = await self._skills.compiled(module, self._compile)
        else:
            raise NoModule("neither a skill nor a file is named")
        return await run_plugin(self.runtime, compiled, plan, self.runner)

    def _require_skill(self, plan: ExecutionPlan, module: ResolvedInstalledSkillModule) -> None:
        decision = self._policy.decide(
            build_skill_request(
                self._directory,
                module.entity(),
                principal=Principal.parse(plan.principal),
                channel=plan.channel,
                workspace=plan.workspace,
                run=plan.run_id,
                session=plan.session,
                device=plan.device,
                entrypoint=plan.arguments.get("tool", ""),
                argument_bytes=len(canonical_json(plan.arguments)),
                approved=plan.approved,
            )
        )
        if decision.outcome is not Verdict.ALLOW:
            raise CallDenied(
                f"policy does not let {plan.principal} run {module.skill_id}: {', '.join(decision.reasons)}",
                policies=list(decision.policies),
            )


def plugin_input(plan: ExecutionPlan) -> bytes:
    """Encode the module's input. It may carry no configuration, which only skills have."""
    value = plan.arguments.get("input", {})
    refuse_configuration(value)
    return msgspec.json.encode(value)


async def run_plugin(
    runtime: WasmRuntime, compiled: CompiledModule, plan: ExecutionPlan, policy: WasmPluginRunnerPolicy
) -> ExecutorOutcome:
    """Run the compiled module of ``plugin.run``, without host services."""
    limits = call_limits(plan, policy.limits)
    given = plugin_input(plan)
    done: WasmOutcome | PalyraError
    _note_full_budget(plan, limits)
    try:
        done = await runtime.run(
            compiled,
            tool=plan.arguments.get("tool", ""),
            input=given,
            limits=limits,
            timeout_ms=min(plan.timeout_ms, policy.timeout_ms),
        )
    except PalyraError as failure:
        _, lines = _charge(plan, failure, limits)
        return ExecutorOutcome(result=None, receipt=lines, error=failure)
    usage, lines = _charge(plan, done, limits)
    shown = {
        **await _plugin_output(done),
        "fuel_used": usage.fuel_used,
        "peak_memory_bytes": usage.peak_memory_bytes,
        "module_sha256": compiled.digest,
    }
    return ExecutorOutcome(result=shown, receipt=lines)


async def _skill_output(done: WasmOutcome) -> Any:
    """Parse a skill's output. A module of the minimal form returns an exit code only."""
    if isinstance(done.output, int):
        return {"exit_code": done.output}
    try:
        return await _parse(done.output)
    except NotStrictJson as problem:
        error = InvalidOutput(f"the skill's output is not strict JSON: {problem.message}")
        error.usage, error.logs = done.usage, done.logs
        raise error from problem


async def _parse(output: bytes) -> Any:
    if len(output) > MAX_QUICK_BYTES:
        return await asyncio.to_thread(parse_strict, output)
    return parse_strict(output)


async def _plugin_output(done: WasmOutcome) -> dict[str, Any]:
    if isinstance(done.output, int):
        return {"exit_code": done.output}
    try:
        return {"output": await _parse(done.output)}
    except NotStrictJson:
        return {"text": done.output.decode("utf-8", "replace")}


def _note_full_budget(plan: ExecutionPlan, limits: RuntimeLimits) -> None:
    """Charge all fuel before the guest runs: a call that is stopped in the middle reports no usage."""
    plan.usage.note(BudgetKind.WASM_FUEL, limits.fuel_budget)


def _charge(
    plan: ExecutionPlan, done: WasmOutcome | PalyraError, limits: RuntimeLimits
) -> tuple[WasmUsage, tuple[dict[str, Any], ...]]:
    """Charge the run for the usage. Return the usage and the lines of the receipt.

    An error that ended a guest carries its usage too. A killed guest reports none and is charged its whole budget.
    """
    usage: WasmUsage = getattr(done, "usage", WasmUsage())
    unknown = isinstance(done, TimedOut | WorkerLost) and not usage.fuel_used
    plan.usage.note(BudgetKind.WASM_FUEL, limits.fuel_budget if unknown else usage.fuel_used)
    logs: tuple[LogLine, ...] = getattr(done, "logs", ())
    lines: list[dict[str, Any]] = [
        {
            "layer": "wasm",
            "asked": f"fuel at most {limits.fuel_budget}, memory at most {limits.max_memory_bytes}",
            "got": f"fuel {usage.fuel_used}, memory {usage.peak_memory_bytes}, host calls {usage.host_calls}",
        }
    ]
    if logs:
        text = "\n".join(f"{line.level}: {line.text}" for line in logs)
        cut = f" (of {len(text)} characters)" if len(text) > MAX_SHOWN_LOG_CHARS else ""
        lines.append({"layer": "log", "asked": f"{len(logs)} lines{cut}", "got": text[:MAX_SHOWN_LOG_CHARS]})
    return usage, tuple(lines)


def _skill_line(module: ResolvedInstalledSkillModule) -> dict[str, Any]:
    return {
        "layer": "skill",
        "asked": f"{module.skill_id} {module.version}, approved archive {module.digest}",
        "got": f"{module.module} {module.module_digest}",
    }
