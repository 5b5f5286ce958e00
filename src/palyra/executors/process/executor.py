"""The tools ``process.run``, ``process.start``, ``process.logs`` and ``process.stop`` for the broker.

A handle belongs to the run that started the process: another run's handle looks like a missing one, and no process id
is ever taken from outside.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from palyra.egress.domain.credential import bindings_for
from palyra.egress.domain.request_rules import describe_rules
from palyra.egress.domain.rules import BadHostRule, is_within, parse_rules
from palyra.egress.settings import EgressSettings
from palyra.errors import InvalidInput, LimitExceeded, PalyraError
from palyra.executors.process.planted import Report, render_protected, report_lost, report_running
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome, UnknownTool
from palyra.pipeline.domain.spec import (
    AccessedResources,
    reserve_nothing,
)
from palyra.policy.decision import EGRESS, Obligations
from palyra.sandbox.domain.launch_spec import Exit
from palyra.sandbox.domain.process_run import (
    ProcessCommand,
    ProcessOutcome,
    ProcessTimedOut,
    QuotaExceeded,
    drop_cut_character,
    encode_text,
    keep_whole_characters,
    parse_command,
)
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    Layer,
    NewProtectedPolicy,
    SandboxLimits,
    SandboxProfile,
    SandboxTier,
)
from palyra.sandbox.limits import DEFAULT_LOG_BYTES
from palyra.sandbox.network.call_network import NetworkListener
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.running_process import Running, Sink, StreamName, outcome_of
from palyra.sandbox.settings import SandboxSettings
from palyra.sandbox.verify.protected_changes import ProtectedAppeared, ProtectedUnseen
from palyra.sandbox.verify.protected_watch import RUNNING_NOTE

if TYPE_CHECKING:
    from palyra.executors.network.service import NetworkService, SandboxListener

MAX_BACKGROUND_PER_RUN: Final = 16
# Ended processes whose output can still be read, for each run.
MAX_ENDED_PER_RUN: Final = 32
# The same over all runs of a principal, so that opening runs gives no more of either.
MAX_BACKGROUND_OF_PRINCIPAL: Final = 24
MAX_ENDED_OF_PRINCIPAL: Final = 64
# One principal's programs, in the background or not, never take more than this part of those that run at once.
SHARE_OF_PROGRAMS: Final = 1 / 2


class UnknownHandle(InvalidInput):
    code = "process.unknown_handle"
    hint = "use the handle that process.start returned, in the same run"
    http_status = 404


class TooManyBackground(LimitExceeded):
    code = "process.too_many_background"
    hint = "stop one with process.stop first"


class _Done:
    """The outcome of a program that has ended, for the broker and for the report on what it planted."""

    def __init__(self, outcome: ProcessOutcome, error: PalyraError | None = None) -> None:
        self.changes = outcome.changes
        self.moved_into = outcome.moved_into
        self.outcome = ExecutorOutcome(result=render_outcome(outcome), receipt=_read_receipt(outcome), error=error)


class _Background:
    """A process that goes on after its call: one task owns it from start to end."""

    def __init__(self, run_id: str, principal: str) -> None:
        self.handle = secrets.token_urlsafe(16)
        self.run_id = run_id
        self.principal = principal
        self.running: Running | None = None
        self.started: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[ProcessOutcome] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class ProcessTools:
    def __init__(self, runner: ProcessRunner, share: int = sys.maxsize, report: Report | None = None) -> None:
        """``share`` is how many programs of one principal run at once. ``report`` records what they planted."""
        self._runner = runner
        self._report = report
        self._share = share
        # By principal, while a program of it runs or waits.
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._background: dict[str, _Background] = {}
        # Live output of the foreground call, for a person at a terminal.
        self.sink: Sink | None = None
        # And its live input: the reading end of a pipe.
        self.live_input: int | None = None

    async def perform(
        self,
        plan: ExecutionPlan,
        profile: SandboxProfile,
        listener: NetworkListener | None = None,
        before_start: Callable[[], None] | None = None,
    ) -> ExecutorOutcome:
        """Run one call. ``listener`` serves its hosts. ``before_start`` is the last look at it, on a thread."""
        match plan.tool:
            case "process.logs":
                return ExecutorOutcome(result=self._logs(plan))
            case "process.stop":
                return await self._stop(plan)
            case tool if tool not in STARTING:
                raise UnknownTool(f"the executor {PROCESS_EXECUTOR} does not run {tool}")
        command = msgspec.structs.replace(
            parse_command(dict(plan.arguments)),
            before_start=before_start,
            cwd_place=plan.places.get(str(plan.arguments.get("cwd", ""))),
        )
        if plan.tool == "process.start" or command.background:
            return await self._start(plan, profile, command, listener)
        if self.live_input is not None:
            command = msgspec.structs.replace(command, live_input=self.live_input)
        async with self._place(plan.principal):
            done = await self._run(profile, command, listener)
        if self._report is not None and done.changes:
            await self._report(plan, done.changes, done.moved_into)
        return done.outcome

    def _place(self, principal: str) -> asyncio.Semaphore:
        """Return what admits a program of the principal. One that has its share waits before it joins the others."""
        return self._places.setdefault(principal, asyncio.Semaphore(self._share))

    async def close(self) -> None:
        """End every background process."""
        tasks = [each.task for each in self._background.values() if each.task is not None]
        for each in self._background.values():
            each.stop.set()
        if tasks:
            await asyncio.wait(tasks)
        self._background.clear()

    async def _run(self, profile: SandboxProfile, command: ProcessCommand, listener: NetworkListener | None) -> "_Done":
        try:
            outcome = await self._runner.run_constrained_process(profile, command, sink=self.sink, listener=listener)
        except (QuotaExceeded, ProcessTimedOut, ProtectedAppeared, ProtectedUnseen) as error:
            if error.outcome is None:
                raise
            return _Done(error.outcome, error)
        return _Done(outcome)

    async def _start(
        self, plan: ExecutionPlan, profile: SandboxProfile, command: ProcessCommand, listener: NetworkListener | None
    ) -> ExecutorOutcome:
        own = [each for each in self._background.values() if each.principal == plan.principal]
        mine = [each for each in own if each.run_id == plan.run_id]
        for whose, known, most, most_ended in (
            ("this run", mine, MAX_BACKGROUND_PER_RUN, MAX_ENDED_PER_RUN),
            (plan.principal, own, MAX_BACKGROUND_OF_PRINCIPAL, MAX_ENDED_OF_PRINCIPAL),
        ):
            if sum(not each.ended.done() for each in known) >= most:
                raise TooManyBackground(f"{whose} already has {most} processes in the background")
            for oldest in [each for each in known if each.ended.done()][:-most_ended]:
                self._background.pop(oldest.handle, None)
        each = _Background(plan.run_id, plan.principal)
        life = self._live(each, plan, profile, command, listener)
        each.task = asyncio.create_task(life, name=f"background {each.handle}")
        try:
            running = await asyncio.shield(each.started)
        except asyncio.CancelledError:
            each.stop.set()
            await asyncio.wait([each.task])
            raise
        self._background[each.handle] = each
        state = {"state": _read_state(each)} if plan.tool == "process.start" else {}
        started = {"handle": each.handle, "tier": profile.tier.value, "backend": running.backend, **state}
        return ExecutorOutcome(result=started, receipt=tuple(running.receipt.as_dicts()))

    async def _live(
        self,
        each: _Background,
        plan: ExecutionPlan,
        profile: SandboxProfile,
        command: ProcessCommand,
        listener: NetworkListener | None,
    ) -> None:
        timeout_ms = min(command.timeout_ms or profile.limits.timeout_ms, profile.limits.timeout_ms)
        try:
            async with (
                self._place(each.principal),
                self._runner.started(profile, command, listener=listener) as running,
            ):
                each.running = running
                each.started.set_result(running)
                ended = await self._until_stopped(each, running, timeout_ms / 1000)
            await report_running(self._report, plan, running)
            each.ended.set_result(outcome_of(profile, running, ended))
        except Exception as error:
            await report_running(self._report, plan, each.running)
            # Any error: a task may be waiting for either future.
            for future in (each.started, each.ended):
                if not future.done():
                    future.set_exception(error)
                    future.exception()

    async def _until_stopped(self, each: _Background, running: Running, seconds: float) -> Exit:
        stopped: asyncio.Future[Any] = asyncio.ensure_future(each.stop.wait())
        ending: asyncio.Future[Exit] = asyncio.ensure_future(running.wait(seconds))
        try:
            await asyncio.wait({stopped, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                await running.kill("process.stop")
            return await ending
        finally:
            stopped.cancel()

    def _logs(self, plan: ExecutionPlan) -> dict[str, Any]:
        each = self._find_own(plan)
        name = StreamName(plan.arguments.get("stream", "stdout"))
        offset = int(plan.arguments.get("offset", 0))
        limit = int(plan.arguments.get("limit", DEFAULT_LOG_BYTES))
        assert each.running is not None
        whole = each.running.capture.kept(name)
        part = whole[offset : offset + limit]
        if not each.ended.done() or offset + limit < len(whole):
            # The next call starts with the character that this one would cut.
            part = keep_whole_characters(part) or part
        content, encoding = encode_text(part)
        logs: dict[str, Any] = {
            "handle": each.handle,
            "state": _read_state(each),
            "stream": name.value,
            "content": content,
            "encoding": encoding,
            "offset": min(offset, len(whole)),
            "next_offset": min(offset, len(whole)) + len(part),
            "truncated": each.running.capture.truncated(name),
        }
        if each.ended.done() and each.ended.exception() is None:
            logs |= {"exit_code": each.ended.result().exit_code, "signal": each.ended.result().signal}
        return logs

    async def _stop(self, plan: ExecutionPlan) -> ExecutorOutcome:
        each = self._find_own(plan)
        each.stop.set()
        outcome = await asyncio.shield(each.ended)
        return ExecutorOutcome(
            result={"handle": each.handle, "state": _read_state(each), **render_outcome(outcome)},
            receipt=_read_receipt(outcome),
        )

    def _find_own(self, plan: ExecutionPlan) -> _Background:
        each = self._background.get(str(plan.arguments["handle"]))
        if each is None or each.run_id != plan.run_id:
            raise UnknownHandle("there is no such process in this run")
        return each


def _read_state(each: _Background) -> str:
    if not each.ended.done():
        return "running"
    if each.ended.exception() is not None or each.ended.result().signal is not None:
        return "killed"
    return "exited"


def render_outcome(outcome: ProcessOutcome) -> dict[str, Any]:
    stdout, stdout_encoding = encode_text(drop_cut_character(outcome.stdout, outcome.stdout_truncated))
    stderr, stderr_encoding = encode_text(drop_cut_character(outcome.stderr, outcome.stderr_truncated))
    return {
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "stdout": stdout,
        "stdout_encoding": stdout_encoding,
        "stdout_truncated": outcome.stdout_truncated,
        "stderr": stderr,
        "stderr_encoding": stderr_encoding,
        "stderr_truncated": outcome.stderr_truncated,
        "duration_ms": outcome.duration_ms,
        "killed_by": outcome.killed_by,
        "tier": outcome.tier.value,
        "backend": outcome.backend,
        **(render_protected(outcome) if outcome.changes or outcome.in_the_way else {}),
    }


def _read_receipt(outcome: ProcessOutcome) -> tuple[dict[str, Any], ...]:
    return tuple(outcome.receipt.as_dicts())


PROCESS_EXECUTOR = "process"
STARTING = frozenset({"process.run", "process.start"})
# The size of a result without the output in it.
RESULT_BYTES = 512


def find_reserves(
    settings: SandboxSettings, egress: EgressSettings | None, name: str
) -> Callable[[Mapping[str, Any]], Mapping[BudgetKind, int]]:
    """Reserve the bytes of programs that get hosts from the run's budget."""
    if egress is None or not settings.allowed_hosts or name not in STARTING:
        return reserve_nothing
    most = {BudgetKind.EGRESS_BYTES: egress.max_call_bytes}
    return lambda _arguments: most


def find_accesses(
    settings: SandboxSettings, egress: EgressSettings | None, name: str
) -> Callable[[Mapping[str, Any]], AccessedResources]:
    def find(arguments: Mapping[str, Any]) -> AccessedResources:
        """List every host and secret that the program gets, for the approver: not only those that it names."""
        if name not in STARTING:
            return AccessedResources()
        hosts = choose_hosts(arguments, settings.allowed_hosts)
        rules = parse_rules(hosts)
        bound = () if egress is None else bindings_for(egress.bindings, rules)
        return AccessedResources(
            paths=(arguments["cwd"],) if "cwd" in arguments else (),
            hosts=tuple(arguments.get("requested_egress_hosts", ())) or hosts,
            secrets=tuple(dict.fromkeys(binding.secret_ref for binding in bound)),
            requests=() if egress is None else describe_rules(egress.request_rules, rules),
        )

    return find


def compile_profile(
    plan: ExecutionPlan, settings: SandboxSettings, protected_names: tuple[str, ...], *, watched: bool = False
) -> SandboxProfile:
    """Apply the obligations of this call to the settings.

    With ``watched`` a person sees the output as it comes, so it need not fit into the result.
    """
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
        allowed_egress_hosts=choose_hosts(plan.arguments, settings.allowed_hosts),
        env=tuple(sorted(settings.env.items())),
        allow_interpreters=settings.allow_interpreters,
        allowed_executables=settings.allowed_executables or None,
        appearing_protected=NewProtectedPolicy(settings.appearing_protected),
        seals_git=plan.tool == "process.start" or bool(plan.arguments.get("background")),
        tool_roots=settings.tool_roots,
        require=_list_demands(obliged),
    )


def _list_demands(obliged: Obligations) -> frozenset[Layer]:
    """Demand the layers that policy obliges to. Settings alone ask for what the tier can do."""
    egress = {Layer.EGRESS} if obliged.egress == EgressEnforcementMode.STRICT.value else set()
    return frozenset(egress | ({Layer.WORKSPACE} if obliged.read_only else set()))


def choose_hosts(arguments: Mapping[str, Any], ceiling: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts that the call names, if it names any and the ceiling allows them; else the ceiling.

    The checks refuse the others.
    """
    requested = tuple(arguments.get("requested_egress_hosts", ()))
    try:
        within = all(is_within(rule, parse_rules(ceiling)) for rule in parse_rules(requested))
    except BadHostRule:
        within = False
    return requested if requested and within else ceiling


class ProcessExecutor:
    """Made without an event loop. The first call makes the runner on its loop."""

    name = PROCESS_EXECUTOR
    keeps_deadline = True

    def __init__(
        self,
        settings: SandboxSettings,
        protected_names: tuple[str, ...],
        scratch: Path,
        egress: "Callable[[], NetworkService] | None" = None,
        *,
        one_command: bool = False,
        verify: Callable[[ExecutionPlan], None] = lambda plan: None,
        report: Report | None = None,
    ) -> None:
        """Create an executor. ``report`` records the protected names that programs plant.

        Without ``egress`` it refuses programs that get hosts: nothing would let just those through. The first such
        call calls ``egress``. With ``one_command`` it prepares nothing for a next call. ``verify`` raises if the files
        that an approval is bound to are others by now. It runs on a thread.
        """
        self._settings = settings
        self._protected = protected_names
        self._scratch = scratch
        self._egress = egress
        self._one_command = one_command
        self._verify = verify
        self._report = report
        # Whether a daemon before this one may have died while a program ran.
        self._may_have_lost = False
        self._runner: ProcessRunner | None = None
        self._tools: ProcessTools | None = None

    @property
    def tools(self) -> ProcessTools:
        if self._tools is None:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._may_have_lost = any(self._scratch.glob(f"{RUNNING_NOTE}*"))
            self._runner = ProcessRunner(
                RunnerSettings(
                    enabled=self._settings.enabled,
                    max_running=self._settings.max_running,
                    max_waiting=self._settings.max_waiting,
                    prewarm=not self._one_command,
                    scratch=str(self._scratch),
                )
            )
            share = max(1, int(self._settings.max_running * SHARE_OF_PROGRAMS))
            self._tools = ProcessTools(self._runner, share, self._report)
        return self._tools

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        profile = compile_profile(plan, self._settings, self._protected, watched=self.tools.sink is not None)
        if self._may_have_lost:
            self._may_have_lost = False
            await report_lost(self._report, str(self._scratch))
        listener: SandboxListener | None = None
        if self._egress is not None and plan.tool in STARTING and profile.reaches_hosts:
            profile, listener = self._egress().prepare_listener(plan, profile)
        return await self.tools.perform(plan, profile, listener, partial(self._verify, plan) if plan.bound else None)

    async def close(self) -> None:
        if self._tools is not None and self._runner is not None:
            tools, runner = self._tools, self._runner
            self._tools = self._runner = None
            await tools.close()
            await asyncio.shield(runner.close())
