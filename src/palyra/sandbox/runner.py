"""Runs one program in its sandbox: checks, launch, output, deadline, receipt, and nothing left behind.

``run_constrained_process`` is the whole of it for a program that ends by itself; ``start`` is the first half, for one
that goes on in the background.
"""

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from palyra.errors import LimitExceeded, PalyraError
from palyra.sandbox.domain.launch_spec import Exit, LaunchSpec
from palyra.sandbox.domain.plan import BubblewrapPlan, plan_isolated
from palyra.sandbox.domain.process_run import (
    ProcessCommand,
    ProcessOutcome,
    ProcessTimedOut,
    QuotaExceeded,
    RuntimeFailure,
)
from palyra.sandbox.domain.profile import Layer, Receipt, SandboxProfile, SandboxTier, refuse_unmet
from palyra.sandbox.guards.checks import Checked, GuardHost, build_guard_host
from palyra.sandbox.launch.built_sandbox import BegunSandbox, ProgramOrder
from palyra.sandbox.launch.child import Child, applied_by
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.launch.prewarm import BuiltAhead, program_inside, spawn_failed
from palyra.sandbox.launch.supervisor_pool import READY_KEEPERS
from palyra.sandbox.layers.bubblewrap import to_launch_spec
from palyra.sandbox.layers.cgroup import CgroupPool
from palyra.sandbox.layers.landlock import abi as landlock_abi
from palyra.sandbox.layers.seccomp import build_tier_b_filter
from palyra.sandbox.network.call_network import NamespaceSockets, NetworkListener, SandboxNetwork
from palyra.sandbox.preparation import Call, CallPreparation, Prepared
from palyra.sandbox.running_process import (
    OutputCapture,
    Running,
    Sink,
    StreamName,
    always,
    outcome_of,
    refuse_unexecuted,
)
from palyra.sandbox.tier_b import FIXES, limited_receipt, limited_spec
from palyra.sandbox.verify.protected_changes import ProtectedAppeared, ProtectedUnseen
from palyra.sandbox.verify.readback import Gate, NotBuilt, Waiting, release_checked
from palyra.workspace.openat2 import hold

# Workspaces whose index of programs is kept.
MAX_KEPT_HOSTS: Final = 64
_MACHINE: Final = platform.machine()
# What an isolated process has or has not before it is started; the rest is read back from it.
_KNOWN_BEFORE: Final = frozenset({Layer.CGROUP_MEMORY, Layer.CGROUP_PIDS, Layer.CGROUP_CPU, Layer.LANDLOCK})


class TooManyWaiting(LimitExceeded):
    code = "sandbox.too_many_waiting"
    hint = "wait for running programs to end, then try again"


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    max_running: int = 64
    max_waiting: int = 1024
    # Whether sandboxes are built ahead, once a profile is in use.
    warm: bool = True
    # Processes that wait to start a program each.
    keepers: int = READY_KEEPERS
    # Where protected names that appeared are moved to, and where calls get their private folders.
    scratch: str


class ProcessRunner:
    """One per event loop."""

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings
        self._cgroups = CgroupPool()
        self._launcher = Launcher(ready=settings.keepers, cgroups=self._cgroups)
        self._namespace_sockets = NamespaceSockets()
        self._slots = asyncio.Semaphore(settings.max_running)
        self._waiting = 0
        self._hosts: dict[object, GuardHost] = {}
        self.ahead = BuiltAhead(self._launcher, self._cgroups, self._namespace_sockets, enabled=settings.warm)
        self._calls = CallPreparation(self._cgroups, self.ahead, settings.scratch)

    @property
    def keepers_ready(self) -> int:
        """How many programs could be started at this moment without a process being made first."""
        return self._launcher.ready

    async def close(self) -> None:
        await self.ahead.close()
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
        """The outcome of a program that ended by itself, whatever its exit code.

        Raises the sandbox's error for everything else; ``quota_exceeded`` and ``timed_out`` carry the outcome so far.
        """
        timeout_ms = min(command.timeout_ms or profile.limits.timeout_ms, profile.limits.timeout_ms)
        since = time.monotonic()
        wait = timeout_ms / 1000
        ended: Exit | None = None
        try:
            async with self.started(
                profile, command, sink=sink, listener=listener, wait_seconds=wait, confirmed=False
            ) as running:
                ended = await running.ended(max(0.0, wait - (time.monotonic() - since)))
                _refuse_failed(command, running)
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
        confirmed: bool = True,
    ) -> AsyncIterator[Running]:
        """A started program. Leaving the block ends it and everything it started, and cleans up after it.

        It may have to wait for its turn, at most ``wait_seconds``. ``listener`` serves the hosts that the profile
        allows. Without ``confirmed`` a program that could not be executed has ended soon, and its caller asks whether
        that was so.
        """
        host = self._guard_host(profile)
        # Written out: a generator around a generator costs every call as much as looking for its program.
        if self._slots.locked():
            await self._turn(command, wait_seconds)
        else:
            await self._slots.acquire()
        try:
            network = SandboxNetwork(listener, self._namespace_sockets)
            network.begin(profile)
            prepared = await self._calls.prepare(Call(profile=profile, command=command, host=host, network=network))
            running: Running | None = None
            try:
                begin = await self._way_of(profile)
                running = await begin(prepared, sink)
                try:
                    if confirmed and running.sandbox is not None:
                        with spawn_failed(command):
                            await running.sandbox.started()
                    yield running
                finally:
                    if not running.child.ended:
                        await asyncio.shield(running.kill("left"))
            finally:
                # However the call ends, by being cancelled too: a hook planted just before must not stay unseen.
                if running is None or not self._calls.finish_at_once(prepared, running):
                    await asyncio.shield(self._calls.finish(prepared, running))
        finally:
            self._slots.release()

    async def _way_of(self, profile: SandboxProfile) -> "Callable[..., Awaitable[Running]]":
        if profile.tier is SandboxTier.B:
            return self._limited
        return self._inside if await self.ahead.serves() else self._isolated

    async def _inside(self, prepared: Prepared, sink: Sink | None) -> Running:
        """The sandbox is complete, with all its layers, before the program's words are in it."""
        assert prepared.facts is not None
        profile, command = prepared.call.profile, prepared.call.command
        if required := profile.required_layers & _KNOWN_BEFORE:
            refuse_unmet(Receipt.of(prepared.group.receipt()), required)
        since = time.monotonic()
        sandbox = prepared.sandbox
        try:
            with spawn_failed(command):
                begun: BegunSandbox | None = None
                if sandbox is None:
                    begun = await self.ahead.begin(profile, prepared.facts, prepared.group)
                try:
                    # While bubblewrap works, if it does.
                    checked = self._calls.checked(prepared)
                    capture = prepared.captured(_capture_of(profile, sink))
                    order = ProgramOrder(program_inside(with_environment(profile, checked), checked))
                except BaseException:
                    if begun is not None:
                        await asyncio.shield(begun.end())
                    raise
                if begun is not None:
                    sandbox = await self.ahead.built(begun)
                assert sandbox is not None
                await prepared.call.network.serve(sandbox.sockets)
                with hold(_stdin_of(command)) as stdin:
                    receipt = sandbox.start(order, (stdin, *capture.writers()))
        except BaseException:
            if sandbox is not None:
                await asyncio.shield(sandbox.end())
            raise
        capture.listen()
        return Running(sandbox.child, capture, receipt.with_lines(always(profile)), "bubblewrap", since, sandbox)

    def _guard_host(self, profile: SandboxProfile) -> GuardHost:
        """Kept for each place programs are looked up from: its index of PATH is worth keeping."""
        key = (profile.workspace_root, profile.tool_roots, profile.env)
        if key not in self._hosts:
            if len(self._hosts) >= MAX_KEPT_HOSTS:
                self._hosts.clear()
            self._hosts[key] = build_guard_host(profile, enabled=self._settings.enabled)
        return self._hosts[key]

    async def _turn(self, command: ProcessCommand, wait_seconds: float | None) -> None:
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

    async def _limited(self, prepared: Prepared, sink: Sink | None) -> Running:
        profile, command = prepared.call.profile, prepared.call.command
        checked, group = self._calls.checked(prepared), prepared.group
        capture = prepared.captured(_capture_of(profile, sink))
        spec = limited_spec(
            with_environment(profile, checked),
            checked.argv,
            os.fsencode(checked.executable.found),
            cwd=checked.cwd,
            home=prepared.home,
            seccomp=build_tier_b_filter(_MACHINE),
            tasks_of_user=self._launcher.tasks_of_user(),
            memory_by_cgroup=group.limits_memory,
            cgroup=group.entry,
            landlock=landlock_abi() > 0,
        )
        known = (*always(profile), *group.receipt())
        # Before the launch: a program that must not run does not run for a moment.
        expected = limited_receipt(profile, spec, applied_by(spec, landlock_abi()))
        refuse_unmet(expected.with_lines(known), profile.required_layers, FIXES)
        since = time.monotonic()
        child = await self._launch(spec, command, capture)
        receipt = limited_receipt(profile, spec, child.applied).with_lines(known)
        running = Running(child, capture, receipt, "limited_process", since)
        try:
            refuse_unmet(receipt, profile.required_layers, FIXES)
        except PalyraError:
            await running.kill("refused")
            raise
        return running

    async def _isolated(self, prepared: Prepared, sink: Sink | None) -> Running:
        assert prepared.facts is not None
        profile, command, network = prepared.call.profile, prepared.call.command, prepared.call.network
        checked, group = self._calls.checked(prepared), prepared.group
        capture = prepared.captured(_capture_of(profile, sink))
        refuse_unmet(Receipt.of(group.receipt()), profile.required_layers & _KNOWN_BEFORE)
        plan = plan_isolated(
            with_environment(profile, checked),
            checked.argv,
            prepared.facts,
            cwd=checked.cwd,
            memory_is_counted=group.limits_memory,
        )
        spec = to_launch_spec(plan, cgroup=group.entry)
        since = time.monotonic()
        with Gate() as gate:
            child = await self._launch(spec, command, capture, gate.child_descriptors)
            gate.handed_over()
            running = Running(child, capture, Receipt(), "bubblewrap", since)
            try:
                with Waiting(await gate.described()) as waiting:
                    await network.open(profile, waiting)
                    seen = await self._released(plan, gate, waiting, running, network)
            except NotBuilt as error:
                await running.kill("not built")
                capture.finish()
                said = capture.kept(StreamName.STDERR).decode("utf-8", "replace").strip()
                raise RuntimeFailure(f"the sandbox could not be built: {said or error.message}") from error
            except BaseException:
                await asyncio.shield(running.kill("refused"))
                if gate.released and prepared.before is not None and not profile.read_only:
                    # It ran for a moment, and nobody else will look at what it left.
                    await asyncio.shield(asyncio.to_thread(self._calls.look_again, profile, prepared.before, running))
                raise
            running.receipt = seen.with_lines(always(profile))
        return running

    async def _released(
        self, plan: BubblewrapPlan, gate: Gate, waiting: Waiting, running: Running, network: SandboxNetwork
    ) -> Receipt:
        looking = asyncio.ensure_future(asyncio.to_thread(release_checked, plan, gate, waiting, network.look))
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            # The thread uses descriptors that are about to be closed: it is waited for, and soon has nothing to see.
            await asyncio.shield(running.kill("cancelled"))
            await asyncio.wait([looking])
            # What it says of a sandbox that was taken from under it is of no interest.
            looking.exception()
            raise

    async def _launch(
        self, spec: LaunchSpec, command: ProcessCommand, capture: OutputCapture, fds: tuple[int, ...] = ()
    ) -> Child:
        stdin = _stdin_of(command)
        try:
            stdout, stderr = capture.writers()
            with spawn_failed(command):
                child = await self._launcher.launch(spec, stdin=stdin, stdout=stdout, stderr=stderr, fds=fds)
        finally:
            os.close(stdin)
        capture.listen()
        return child


def _capture_of(profile: SandboxProfile, sink: Sink | None) -> OutputCapture:
    return OutputCapture(profile.limits.max_output_bytes, sink, keep=profile.limits.kept_output_bytes)


def _refuse_failed(command: ProcessCommand, running: Running) -> None:
    if running.sandbox is not None:
        with spawn_failed(command):
            running.sandbox.refuse_failed()


def with_environment(profile: SandboxProfile, checked: Checked) -> SandboxProfile:
    """The caller's variables over the operator's."""
    if not checked.env:
        return profile
    return msgspec.structs.replace(profile, env=tuple({**dict(profile.env), **dict(checked.env)}.items()))


def _stdin_of(command: ProcessCommand) -> int:
    """A file in memory with the input, a pipe that the caller fills, or nothing to read. Never the caller's own
    descriptor: what it is open to could be opened again through it, past every mount."""
    if command.live_input is not None:
        return os.dup(command.live_input)
    if not command.stdin:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.memfd_create("palyra-stdin", os.MFD_CLOEXEC)
    view = memoryview(command.stdin)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
