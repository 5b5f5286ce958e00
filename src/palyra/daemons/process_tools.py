"""The process tools as this daemon offers them: their specs, and the profile each call is compiled to."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palyra.config.settings import EgressSettings, SandboxSettings
from palyra.egress.bound_hosts import bindings_for
from palyra.egress.rules import BadHostRule, is_within, parse_rules
from palyra.limits import MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES
from palyra.policy.obligations import EGRESS, Obligations
from palyra.sandbox import schemas
from palyra.sandbox.launcher import READY_KEEPERS
from palyra.sandbox.process_executor import ProcessTools
from palyra.sandbox.process_runner import ProcessRunner, RunnerSettings
from palyra.sandbox.profile import (
    AppearingProtected,
    EgressEnforcementMode,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
)
from palyra.sandbox.receipt import Layer
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan, Outcome
from palyra.tools.spec import (
    ToolCapability,
    ToolMetadata,
    ToolName,
    ToolSpec,
    ToolTier,
    Touches,
    reserves_nothing,
)

if TYPE_CHECKING:
    from palyra.daemons.egress_parts import EgressParts, SandboxDoor

PROCESS_EXECUTOR = "process"
STARTING = frozenset({"process.run", "process.start"})
# What a result takes beside the output in it.
RESULT_BYTES = 512
_ENFORCEABLE = frozenset(("timeout_ms", "max_output_bytes", "memory_bytes", "cpu_seconds", "egress", "read_only"))
_TEXTS = {
    "process.run": (
        "Run a program",
        "Runs one program in the sandbox and returns what it printed and how it ended. No shell is involved.",
        schemas.RUN_INPUT,
        schemas.RUN_OUTPUT,
    ),
    "process.start": (
        "Start a program in the background",
        "Starts one program in the sandbox and returns a handle. It ends with its deadline, or when it is stopped.",
        schemas.START_INPUT,
        schemas.START_OUTPUT,
    ),
    "process.logs": (
        "Read a background program's output",
        "Returns what a program started in this run has printed, from a given byte on.",
        schemas.LOGS_INPUT,
        schemas.LOGS_OUTPUT,
    ),
    "process.stop": (
        "Stop a background program",
        "Ends a program started in this run, with everything it started, and returns how it ended.",
        schemas.STOP_INPUT,
        schemas.STOP_OUTPUT,
    ),
}


def process_specs(settings: SandboxSettings, egress: EgressSettings | None = None) -> list[ToolSpec]:
    """Reading and stopping what one's own run started needs no approval; running programs does."""
    runs = {ToolCapability.PROCESS_EXEC, ToolCapability.FILESYSTEM_READ}
    if not settings.read_only:
        runs.add(ToolCapability.FILESYSTEM_WRITE)
    if settings.egress != "strict" or settings.allowed_hosts:
        runs.add(ToolCapability.NETWORK)
    return [
        ToolSpec(
            name=ToolName(name),
            title=title,
            description=description,
            input_schema=input_schema,
            output_schema=output_schema,
            metadata=ToolMetadata(
                capabilities=frozenset(runs) if name in STARTING else frozenset({ToolCapability.ARTIFACTS_READ})
            ),
            tier=ToolTier(settings.tier),
            # What a program started in the background would go on doing on a worker, nobody could read or stop.
            other_tiers=frozenset({ToolTier.B, ToolTier.C} | ({ToolTier.WORKER} if name == "process.run" else set())),
            executor=PROCESS_EXECUTOR,
            max_input_bytes=MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES,
            changes_state=name == "process.stop",
            touches=_touches_of(settings, egress, name),
            reserves=_reserves(settings, egress, name),
            enforceable=_ENFORCEABLE,
        )
        for name, (title, description, input_schema, output_schema) in _TEXTS.items()
    ]


def _reserves(
    settings: SandboxSettings, egress: EgressSettings | None, name: str
) -> Callable[[Mapping[str, Any]], Mapping[BudgetKind, int]]:
    """Programs that are given hosts take their bytes out of the run's budget."""
    if egress is None or not settings.allowed_hosts or name not in STARTING:
        return reserves_nothing
    most = {BudgetKind.EGRESS_BYTES: egress.max_call_bytes}
    return lambda _arguments: most


def _touches_of(
    settings: SandboxSettings, egress: EgressSettings | None, name: str
) -> Callable[[Mapping[str, Any]], Touches]:
    def touches(arguments: Mapping[str, Any]) -> Touches:
        """Who approves is shown every host and secret that the program gets, not only those that it names."""
        if name not in STARTING:
            return Touches()
        hosts = hosts_for(arguments, settings.allowed_hosts)
        bound = () if egress is None else bindings_for(egress.bindings, parse_rules(hosts))
        return Touches(
            paths=(arguments["cwd"],) if "cwd" in arguments else (),
            hosts=tuple(arguments.get("requested_egress_hosts", ())) or hosts,
            secrets=tuple(dict.fromkeys(binding.secret_ref for binding in bound)),
        )

    return touches


def profile_for(
    plan: ExecutionPlan, settings: SandboxSettings, protected_names: tuple[str, ...], *, watched: bool = False
) -> SandboxProfile:
    """The settings, made stricter by what policy obliges this call to. ``watched``: a person sees the output as it
    comes, so that it need not fit into the result."""
    obliged = plan.obligations
    # The result wraps the output in JSON, which at most doubles it.
    fitting = max(0, plan.max_output_bytes - RESULT_BYTES) // 2
    most = fitting
    if watched:
        most = settings.max_output_bytes if obliged.max_output_bytes is None else obliged.max_output_bytes
    egress = max((settings.egress, obliged.egress or settings.egress), key=EGRESS.index)
    return SandboxProfile(
        workspace_root=plan.workspace,
        tier=SandboxTier(plan.tier.value),
        read_only=settings.read_only or bool(obliged.read_only),
        protected_names=protected_names,
        limits=SandboxLimits(
            cpu_seconds=min(settings.cpu_seconds, obliged.cpu_seconds or settings.cpu_seconds),
            memory_bytes=min(settings.memory_bytes, obliged.memory_bytes or settings.memory_bytes),
            pids=settings.pids,
            open_files=settings.open_files,
            file_bytes=settings.file_bytes,
            max_output_bytes=min(settings.max_output_bytes, most),
            kept_output_bytes=fitting if watched else None,
            timeout_ms=plan.timeout_ms,
        ),
        egress=EgressEnforcementMode(egress),
        allowed_egress_hosts=hosts_for(plan.arguments, settings.allowed_hosts),
        env=tuple(sorted(settings.env.items())),
        allow_interpreters=settings.allow_interpreters,
        allowed_executables=settings.allowed_executables or None,
        appearing_protected=AppearingProtected(settings.appearing_protected),
        tool_roots=settings.tool_roots,
        require=_demanded(obliged),
    )


def _demanded(obliged: Obligations) -> frozenset[Layer]:
    """What policy obliges to must hold. Settings alone ask for what the tier can do, and the receipt says how much."""
    egress = {Layer.EGRESS} if obliged.egress == EgressEnforcementMode.STRICT.value else set()
    return frozenset(egress | ({Layer.WORKSPACE} if obliged.read_only else set()))


def hosts_for(arguments: Mapping[str, Any], ceiling: tuple[str, ...]) -> tuple[str, ...]:
    """A call that says which hosts it needs gets those and no others; what the ceiling does not allow is left for the
    checks to refuse."""
    asked = tuple(arguments.get("requested_egress_hosts", ()))
    try:
        within = all(is_within(rule, parse_rules(ceiling)) for rule in parse_rules(asked))
    except BadHostRule:
        within = False
    return asked if asked and within else ceiling


class ProcessExecutor:
    """Made before there is an event loop; the runner behind it is made on the loop of the first call."""

    name = PROCESS_EXECUTOR
    keeps_deadline = True

    def __init__(
        self,
        settings: SandboxSettings,
        protected_names: tuple[str, ...],
        scratch: Path,
        egress: "Callable[[], EgressParts] | None" = None,
        *,
        one_command: bool = False,
    ) -> None:
        """Without ``egress`` programs that are given hosts are refused: nothing would let just those through. It is
        asked for when the first of them is. With ``one_command`` nothing is made ready for a next call."""
        self._settings = settings
        self._protected = protected_names
        self._scratch = scratch
        self._egress = egress
        self._one_command = one_command
        self._runner: ProcessRunner | None = None
        self._tools: ProcessTools | None = None

    @property
    def tools(self) -> ProcessTools:
        if self._tools is None:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._runner = ProcessRunner(
                RunnerSettings(
                    enabled=self._settings.enabled,
                    max_running=self._settings.max_running,
                    max_waiting=self._settings.max_waiting,
                    warm=not self._one_command,
                    keepers=1 if self._one_command else READY_KEEPERS,
                    scratch=str(self._scratch),
                )
            )
            self._tools = ProcessTools(self._runner)
        return self._tools

    async def execute(self, plan: ExecutionPlan) -> Outcome:
        watched = self.tools.sink is not None
        profile = profile_for(plan, self._settings, self._protected, watched=watched)
        door: SandboxDoor | None = None
        if self._egress is not None and plan.tool in STARTING and profile.has_a_door:
            profile, door = self._egress().sandbox_door(plan, profile)
        done = await self.tools.perform(plan, profile, door)
        return Outcome(result=done.result, receipt=done.receipt, error=done.error)

    async def close(self) -> None:
        if self._tools is not None and self._runner is not None:
            tools, runner = self._tools, self._runner
            self._tools = self._runner = None
            await tools.close()
            await asyncio.shield(runner.close())
