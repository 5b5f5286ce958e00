"""Run one program in its sandbox: checks, launch, output, deadline, receipt, and nothing left behind.

``run_constrained_process`` serves a program that ends by itself; ``started`` serves one that goes on in the background.
"""

import asyncio
import contextlib
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from palyra.errors import LimitExceeded
from palyra.sandbox.domain.facts import Facts
from palyra.sandbox.domain.launch_spec import Exit, LaunchSpec
from palyra.sandbox.domain.plan import BubblewrapPlan, build_environment, plan_isolated
from palyra.sandbox.domain.process_run import (
    ProcessCommand,
    ProcessOutcome,
    ProcessTimedOut,
    QuotaExceeded,
    RuntimeFailure,
)
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    Layer,
    Receipt,
    ReceiptLine,
    SandboxProfile,
    SandboxTier,
    refuse_unmet,
)
from palyra.sandbox.guards.checks import Checked, GuardHost, build_guard_host, check_before_spawn
from palyra.sandbox.launch.built_sandbox import PrewarmedSandbox, build
from palyra.sandbox.launch.gated_sandbox import Gate, GatedReadback, release_checked
from palyra.sandbox.launch.launcher import Child, Launcher
from palyra.sandbox.launch.prewarm import Prewarm
from palyra.sandbox.layers.bubblewrap import gather_host, to_launch_spec
from palyra.sandbox.layers.cgroup import CgroupPool, Group
from palyra.sandbox.layers.landlock import abi as landlock_abi
from palyra.sandbox.layers.protected_mounts import gather_workspace
from palyra.sandbox.layers.seccomp import build_tier_b_filter, build_tier_c_filter
from palyra.sandbox.layers.workspace_scan import WorkspaceScan, remove_tree
from palyra.sandbox.network.call_network import NamespaceSockets, NetworkListener, SandboxNetwork
from palyra.sandbox.running_process import (
    OutputCapture,
    Running,
    Sink,
    StreamName,
    lines_of_runner,
    open_stdin,
    outcome_of,
    refuse_unexecuted,
    translate_launch_errors,
)
from palyra.sandbox.tier_b import FIXES, receipt_of_tier_b, spec_of_tier_b
from palyra.sandbox.verify.protected_changes import ProtectedAppeared, ProtectedChanges, ProtectedUnseen
from palyra.sandbox.verify.protected_watch import ProtectedWatch
from palyra.sandbox.verify.readback import NotBuilt
from palyra.workspace.root import hold

# Workspaces whose index of programs is kept.
MAX_KEPT_HOSTS: Final = 64
_MACHINE: Final = platform.machine()
# The layers of an isolated process that are known before the start; the others are read back from it.
_KNOWN_BEFORE: Final = frozenset({Layer.CGROUP_MEMORY, Layer.CGROUP_PIDS})


class TooManyWaiting(LimitExceeded):
    code = "sandbox.too_many_waiting"
    hint = "wait for running programs to end, then try again"


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    max_running: int = 64
    max_waiting: int = 1024
    # Whether sandboxes are built before they are needed, once a profile is in use.
    prewarm: bool = True
    # The folder for protected names that are moved aside, and for the calls' private folders.
    scratch: str


class PreparedCall(msgspec.Struct, kw_only=True, eq=False):
    """A checked call and the resources that it holds from before its start until after its end."""

    profile: SandboxProfile
    command: ProcessCommand
    network: SandboxNetwork
    checked: Checked
    group: Group
    # Tier B: a private folder.
    home: str = ""
    # Tier C.
    facts: Facts | None = None
    watch: ProtectedWatch | None = None
    # A prewarmed one that is the same as one built now.
    sandbox: PrewarmedSandbox | None = None
    capture: OutputCapture | None = None

    def open_capture(self, sink: Sink | None) -> OutputCapture:
        limits = self.profile.limits
        self.capture = OutputCapture(limits.max_output_bytes, sink, keep=limits.kept_output_bytes)
        return self.capture


class ProcessRunner:
    """One per event loop."""

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings
        self._cgroups = CgroupPool()
        self._launcher = Launcher(cgroups=self._cgroups)
        self._namespace_sockets = NamespaceSockets()
        self._slots = asyncio.Semaphore(settings.max_running)
        self._waiting = 0
        self._hosts: dict[object, GuardHost] = {}
        self.prewarm = Prewarm(self._build_unused, self._end_unused, enabled=settings.prewarm)

    @property
    def ready(self) -> int:
        """How many programs could start now without a new process."""
        return self._launcher.ready

    async def close(self) -> None:
        await self.prewarm.close()
        await self._launcher.close()
        await self._namespace_sockets.close()
        await asyncio.to_thread(self._cgroups.close)

    async def run_constrained_process(
        self,
        profile: SandboxProfile,
        command: ProcessCommand,
        *,
        sink: Sink | None = None,
        listener: NetworkListener | None = None,
    ) -> ProcessOutcome:
        """Return the outcome of a program that ended by itself, with any exit code.

        Everything else raises the sandbox's error; ``quota_exceeded`` and ``timed_out`` carry the outcome so far.
        """
        timeout_ms = min(command.timeout_ms or profile.limits.timeout_ms, profile.limits.timeout_ms)
        since = time.monotonic()
        wait = timeout_ms / 1000
        ended: Exit | None = None
        try:
            async with self.started(profile, command, sink=sink, listener=listener, wait_seconds=wait) as running:
                ended = await running.wait(max(0.0, wait - (time.monotonic() - since)))
        except (ProtectedAppeared, ProtectedUnseen) as error:
            error.outcome = None if ended is None else outcome_of(profile, running, ended)
            raise
        outcome = outcome_of(profile, running, ended)
        refuse_unexecuted(command, outcome)
        if running.killed_by == "max_output_bytes":
            raise QuotaExceeded(
                f"{command.command} printed more than {profile.limits.max_output_bytes} bytes", outcome=outcome
            )
        if running.killed_by == "timeout_ms":
            raise ProcessTimedOut(f"{command.command} did not end within {timeout_ms} ms", outcome=outcome)
        return outcome

    @asynccontextmanager
    async def started(
        self,
        profile: SandboxProfile,
        command: ProcessCommand,
        *,
        sink: Sink | None = None,
        listener: NetworkListener | None = None,
        wait_seconds: float | None = None,
    ) -> AsyncIterator[Running]:
        """Start a program. Leaving the block ends it and everything it started, and cleans up after it.

        It waits for a free slot, at most ``wait_seconds``. ``listener`` serves the hosts that the profile allows.
        """
        host = self._guard_host(profile)
        await self._wait_for_slot(command, wait_seconds)
        try:
            network = SandboxNetwork(listener, self._namespace_sockets)
            network.begin(profile)
            call = await self._prepare(profile, command, host, network)
            running: Running | None = None
            try:
                start = await self._choose_backend(profile)
                running = await start(call, sink)
                try:
                    async with call.watch.over(running) if call.watch else contextlib.nullcontext():
                        yield running
                finally:
                    if not running.child.ended:
                        await asyncio.shield(running.kill("left"))
            finally:
                # Also if the call is cancelled: a hook planted just before must not stay unseen.
                await asyncio.shield(self._finish(call, running))
        finally:
            self._slots.release()

    async def _wait_for_slot(self, command: ProcessCommand, wait_seconds: float | None) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        if self._waiting >= self._settings.max_waiting:
            raise TooManyWaiting(f"{self._waiting} programs already wait to run")
        self._waiting += 1
        try:
            async with asyncio.timeout(wait_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise ProcessTimedOut(f"{command.command} waited for its turn until its time was over") from None
        finally:
            self._waiting -= 1

    def _guard_host(self, profile: SandboxProfile) -> GuardHost:
        """Keep one for each set of folders that programs are looked up in: it has an index of PATH."""
        key = (profile.workspace_root, profile.tool_roots, profile.env)
        if key not in self._hosts:
            if len(self._hosts) >= MAX_KEPT_HOSTS:
                self._hosts.clear()
            self._hosts[key] = build_guard_host(profile, enabled=self._settings.enabled)
        return self._hosts[key]

    async def _prepare(
        self, profile: SandboxProfile, command: ProcessCommand, host: GuardHost, network: SandboxNetwork
    ) -> PreparedCall:
        """Check the call and take what it needs. A refused call holds nothing."""
        prewarmed = self.prewarm.take(profile)
        preparing = asyncio.ensure_future(
            asyncio.to_thread(self._check_and_take, profile, command, host, network, prewarmed)
        )
        call: PreparedCall | None = None
        try:
            call = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            # The thread goes on, and only this task can give back what it takes.
            await asyncio.wait([preparing])
            if preparing.exception() is None:
                call = preparing.result()
                await asyncio.shield(self._finish(call, None))
            raise
        finally:
            if prewarmed is not None and call is None:
                self.prewarm.put_back(profile, prewarmed)
            elif prewarmed is not None and call is not None and call.sandbox is not prewarmed:
                self.prewarm.discard(prewarmed)
        return call

    def _check_and_take(
        self,
        profile: SandboxProfile,
        command: ProcessCommand,
        host: GuardHost,
        network: SandboxNetwork,
        prewarmed: PrewarmedSandbox | None,
    ) -> PreparedCall:
        checked = check_before_spawn(profile, command, host, served=network.served)
        scanned = None if profile.tier is SandboxTier.B else gather_facts(profile)
        if command.before_start is not None:
            # After the scan, which may take a second.
            command.before_start()
        if scanned is None:
            home = tempfile.mkdtemp(prefix="call-", dir=self._settings.scratch)
            group = self._cgroups.take(profile.limits)
            return PreparedCall(
                profile=profile, command=command, network=network, checked=checked, group=group, home=home
            )
        facts, before = scanned
        sandbox = prewarmed if prewarmed is not None and prewarmed.serves(facts) else None
        return PreparedCall(
            profile=profile,
            command=command,
            network=network,
            checked=checked,
            group=self._cgroups.take(profile.limits) if sandbox is None else sandbox.group,
            facts=facts,
            watch=None if profile.read_only else ProtectedWatch(profile, before, self._settings.scratch),
            sandbox=sandbox,
        )

    async def _choose_backend(
        self, profile: SandboxProfile
    ) -> Callable[[PreparedCall, Sink | None], Awaitable[Running]]:
        if profile.tier is SandboxTier.B:
            return self._start_tier_b
        return self._start_prewarmed if await self._launcher.runs_native() else self._start_gated

    async def _start_prewarmed(self, call: PreparedCall, sink: Sink | None) -> Running:
        """Start the program in a sandbox that is complete, with all its layers. Build one if none was prewarmed."""
        assert call.facts is not None
        refuse_unmet(Receipt.of(call.group.receipt()), call.profile.required_layers & _KNOWN_BEFORE)
        since = time.monotonic()
        sandbox = call.sandbox
        try:
            with translate_launch_errors(call.command):
                if sandbox is None:
                    sandbox = await self._build(call.profile, call.facts, call.group)
                await call.network.serve(sandbox.sockets)
                capture = call.open_capture(sink)
                with hold(open_stdin(call.command)) as stdin:
                    receipt = await sandbox.start(
                        program_inside(call.profile, call.checked), (stdin, *capture.writers())
                    )
        except BaseException:
            if sandbox is not None:
                await asyncio.shield(sandbox.end())
                self.prewarm.refill(call.profile)
            raise
        capture.listen()
        receipt = receipt.with_lines(lines_of_runner(call.profile.limits))
        return Running(sandbox.child, capture, receipt, "bubblewrap", since, sandbox)

    async def _build(self, profile: SandboxProfile, facts: Facts, group: Group) -> PrewarmedSandbox:
        try:
            return await build(self._launcher, profile, facts, group, self._namespace_sockets)
        except NotBuilt as error:
            reason = error.details.get("said") or error.message
            raise RuntimeFailure(f"the sandbox could not be built: {reason}") from error

    async def _build_unused(self, profile: SandboxProfile) -> PrewarmedSandbox:
        facts, _ = await asyncio.to_thread(gather_facts, profile)
        group = await asyncio.to_thread(self._cgroups.take, profile.limits)
        try:
            sandbox = await self._build(profile, facts, group)
            sandbox.hide()
        except BaseException:
            await asyncio.shield(asyncio.to_thread(group.release))
            raise
        return sandbox

    async def _end_unused(self, sandbox: PrewarmedSandbox) -> None:
        await sandbox.end()
        await asyncio.to_thread(sandbox.group.release)

    async def _start_tier_b(self, call: PreparedCall, sink: Sink | None) -> Running:
        profile, group = call.profile, call.group
        capture = call.open_capture(sink)
        spec = spec_of_tier_b(
            merge_environment(profile, call.checked),
            call.checked.argv,
            os.fsencode(call.checked.executable.found),
            cwd=call.checked.cwd,
            home=call.home,
            seccomp=build_tier_b_filter(_MACHINE),
            tasks_of_user=self._launcher.tasks_of_user(),
            memory_by_cgroup=group.limits_memory,
            cgroup=group.entry,
            landlock=landlock_abi() > 0,
        )
        receipt = receipt_of_tier_b(profile, spec, landlock_abi())
        receipt = receipt.with_lines((*lines_of_runner(profile.limits), *group.receipt()))
        # Before the launch: a program that must not run does not run for a moment.
        refuse_unmet(receipt, profile.required_layers, FIXES)
        since = time.monotonic()
        return Running(await self._launch(spec, call.command, capture), capture, receipt, "limited_process", since)

    async def _start_gated(self, call: PreparedCall, sink: Sink | None) -> Running:
        assert call.facts is not None
        profile, group = call.profile, call.group
        capture = call.open_capture(sink)
        refuse_unmet(Receipt.of(group.receipt()), profile.required_layers & _KNOWN_BEFORE)
        plan = plan_isolated(
            merge_environment(profile, call.checked),
            call.checked.argv,
            call.facts,
            cwd=call.checked.cwd,
            memory_is_counted=group.limits_memory,
        )
        spec = to_launch_spec(plan, cgroup=group.entry)
        since = time.monotonic()
        with Gate() as gate:
            child = await self._launch(spec, call.command, capture, gate.child_descriptors)
            gate.hand_over()
            running = Running(child, capture, Receipt(), "bubblewrap", since)
            try:
                with GatedReadback(await gate.describe()) as waiting:
                    await call.network.open(profile, waiting)
                    seen = await self._release(plan, gate, waiting, running, call.network)
            except NotBuilt as error:
                await running.kill("not built")
                capture.finish()
                stderr = capture.kept(StreamName.STDERR).decode("utf-8", "replace").strip()
                raise RuntimeFailure(f"the sandbox could not be built: {stderr or error.message}") from error
            except BaseException:
                await asyncio.shield(running.kill("refused"))
                if gate.released and not profile.read_only:
                    # It ran for a moment, and ``_finish`` does not look again at a call that never started.
                    await asyncio.shield(asyncio.to_thread(self._find_protected_changes, call, running))
                raise
            running.receipt = seen.with_lines(lines_of_runner(profile.limits))
        return running

    async def _release(
        self, plan: BubblewrapPlan, gate: Gate, waiting: GatedReadback, running: Running, network: SandboxNetwork
    ) -> Receipt:
        releasing = asyncio.ensure_future(asyncio.to_thread(release_checked, plan, gate, waiting, network.look))
        try:
            return await asyncio.shield(releasing)
        except asyncio.CancelledError:
            # The thread uses descriptors that close next, so wait for it. It ends soon: the program is killed.
            await asyncio.shield(running.kill("cancelled"))
            await asyncio.wait([releasing])
            # Retrieve the exception so asyncio does not log it.
            releasing.exception()
            raise

    async def _launch(
        self, spec: LaunchSpec, command: ProcessCommand, capture: OutputCapture, fds: tuple[int, ...] = ()
    ) -> Child:
        stdout, stderr = capture.writers()
        with hold(open_stdin(command)) as stdin, translate_launch_errors(command):
            child = await self._launcher.launch(spec, stdin=stdin, stdout=stdout, stderr=stderr, fds=fds)
        capture.listen()
        return child

    async def _finish(self, call: PreparedCall, running: Running | None) -> None:
        """Give back what a call holds, and report protected changes. Callers that may be cancelled shield it."""
        if call.capture is not None:
            call.capture.close()
        if call.sandbox is not None and (running is None or running.sandbox is not call.sandbox):
            await call.sandbox.end()
        receipt, usage = await call.network.close(running.receipt if running is not None else Receipt())
        if running is not None:
            running.receipt, running.egress = receipt, usage
        try:
            await asyncio.to_thread(self._clean, call, running)
        finally:
            if running is not None and running.sandbox is not None:
                self.prewarm.refill(call.profile)

    def _clean(self, call: PreparedCall, running: Running | None) -> None:
        try:
            if running is not None:
                running.out_of_memory = call.group.out_of_memory()
                if call.watch is None:
                    running.receipt = running.receipt.with_lines(call.group.receipt())
                else:
                    self._find_protected_changes(call, running, also=call.group.receipt()).refuse()
        finally:
            if call.watch is not None:
                call.watch.forget()
            if running is not None and running.sandbox is not None:
                running.sandbox.close()
            call.group.release()
            if call.home:
                remove_tree(call.home)

    def _find_protected_changes(
        self, call: PreparedCall, running: Running, *, also: tuple[ReceiptLine, ...] = ()
    ) -> ProtectedChanges:
        """Name in the receipt what appeared under a protected name, and handle it as the profile says."""
        assert call.watch is not None
        changes = call.watch.finish()
        running.changes = changes
        line = running.receipt.line(Layer.PROTECTED_NAMES)
        running.receipt = running.receipt.with_lines((*also, changes.line(line)))
        return changes


def gather_facts(profile: SandboxProfile) -> tuple[Facts, WorkspaceScan]:
    """Look at the host and the workspace, in a thread. The scan is compared with one after the call."""
    workspace, before = gather_workspace(profile)
    return Facts(host=gather_host(), workspace=workspace, seccomp=filter_of(profile)), before


def filter_of(profile: SandboxProfile) -> bytes:
    """Return the filter. Abstract unix sockets belong to the network: a shared one would show the host's own."""
    strict = profile.egress is EgressEnforcementMode.STRICT
    return build_tier_c_filter(_MACHINE) if strict else build_tier_b_filter(_MACHINE)


def merge_environment(profile: SandboxProfile, checked: Checked) -> SandboxProfile:
    """Put the caller's variables over the operator's."""
    if not checked.env:
        return profile
    return msgspec.structs.replace(profile, env=tuple({**dict(profile.env), **dict(checked.env)}.items()))


def program_inside(profile: SandboxProfile, checked: Checked) -> LaunchSpec:
    """Describe the program for the process that waits inside. The limits and the filter bind that process already."""
    environment = {**dict(build_environment(merge_environment(profile, checked))), "PWD": checked.cwd}
    return LaunchSpec(
        argv=checked.argv,
        executable=os.fsencode(checked.executable.found),
        env=tuple((os.fsencode(name), os.fsencode(value)) for name, value in environment.items()),
        cwd=os.fsencode(checked.cwd),
        no_new_privs=False,
        new_session=False,
    )
