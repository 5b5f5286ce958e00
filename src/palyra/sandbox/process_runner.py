"""Runs one program in its sandbox: checks, launch, output, deadline, receipt, and nothing left behind.

``run_constrained_process`` is the whole of it for a program that ends by itself; ``start`` is the first half, for one
that goes on in the background.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from palyra.errors import LimitExceeded, PalyraError
from palyra.sandbox.appearing import look_again
from palyra.sandbox.bubblewrap import gather_host, to_launch_spec
from palyra.sandbox.capture import OutputCapture, Sink, StreamName
from palyra.sandbox.cgroup import CgroupPool, Group
from palyra.sandbox.checks import Checked, GuardHost, check_before_spawn
from palyra.sandbox.command import ProcessCommand
from palyra.sandbox.host_facts import Facts
from palyra.sandbox.landlock import abi as landlock_abi
from palyra.sandbox.launch import Exit, KeeperLost, LaunchFailed, LaunchSpec
from palyra.sandbox.launcher import Child, Launcher
from palyra.sandbox.limited import limited_receipt, limited_spec
from palyra.sandbox.outcome import (
    ProcessOutcome,
    ProcessTimedOut,
    QuotaExceeded,
    RuntimeFailure,
    SpawnFailed,
)
from palyra.sandbox.plan import plan_isolated
from palyra.sandbox.profile import SandboxProfile, SandboxTier
from palyra.sandbox.protected_mounts import gather_workspace
from palyra.sandbox.readback import Gate, NotBuilt, Waiting, release_checked
from palyra.sandbox.receipt import Layer, Receipt, ReceiptLine, refuse_unmet
from palyra.sandbox.resolve_executable import guard_host
from palyra.sandbox.seccomp_program import default_program
from palyra.sandbox.survey import Survey

# Workspaces whose index of programs is kept.
MAX_KEPT_HOSTS: Final = 64


class TooManyWaiting(LimitExceeded):
    code = "sandbox.too_many_waiting"
    hint = "wait for running programs to end, then try again"


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    max_running: int = 64
    max_waiting: int = 1024
    # Where protected names that appeared are moved to, and where calls get their private folders.
    scratch: str


class Running:
    """A program in its sandbox. ``ended`` gives its outcome once; ``stop`` ends it early."""

    def __init__(self, child: Child, capture: OutputCapture, receipt: Receipt, backend: str, since: float) -> None:
        self.child = child
        self.capture = capture
        self.receipt = receipt
        self.backend = backend
        self.since = since
        self.killed_by: str | None = None

    async def kill(self, why: str) -> None:
        self.killed_by = self.killed_by or why
        with contextlib.suppress(KeeperLost):
            await self.child.kill()

    async def ended(self, deadline_seconds: float | None) -> Exit:
        """Waits for the end; kills the tree at the deadline or when it prints too much."""
        async with asyncio.TaskGroup() as watch:
            exceeded = watch.create_task(self.capture.exceeded.wait())
            waiting = watch.create_task(self.child.wait())
            try:
                done, _ = await asyncio.wait(
                    {exceeded, waiting}, timeout=deadline_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if waiting not in done:
                    await self.kill("max_output_bytes" if exceeded in done else "timeout_ms")
                ended = await waiting
            except asyncio.CancelledError:
                await asyncio.shield(self.kill("cancelled"))
                raise
            finally:
                exceeded.cancel()
        # Every writer of the pipes died with the tree: what is left in them is all there is.
        await self.capture.finished()
        return ended


class ProcessRunner:
    """One per event loop."""

    def __init__(self, settings: RunnerSettings) -> None:
        self._settings = settings
        self._launcher = Launcher()
        self._cgroups = CgroupPool()
        self._slots = asyncio.Semaphore(settings.max_running)
        self._waiting = 0
        self._hosts: dict[object, GuardHost] = {}

    async def close(self) -> None:
        await self._launcher.close()
        await asyncio.to_thread(self._cgroups.close)

    async def run_constrained_process(
        self, profile: SandboxProfile, command: ProcessCommand, *, sink: Sink | None = None
    ) -> ProcessOutcome:
        """The outcome of a program that ended by itself, whatever its exit code.

        Raises the sandbox's error for everything else; ``quota_exceeded`` and ``timed_out`` carry the outcome so far.
        """
        timeout_ms = min(command.timeout_ms or profile.limits.timeout_ms, profile.limits.timeout_ms)
        since = time.monotonic()
        async with self.started(profile, command, sink=sink) as running:
            left = timeout_ms / 1000 - (time.monotonic() - since)
            ended = await running.ended(max(0.0, left))
        outcome = outcome_of(profile, running, ended)
        if running.killed_by == "max_output_bytes":
            raise QuotaExceeded(
                f"{command.command} printed more than {profile.limits.max_output_bytes} bytes", outcome=outcome
            )
        if running.killed_by == "timeout_ms":
            raise ProcessTimedOut(f"{command.command} did not end within {timeout_ms} ms", outcome=outcome)
        return outcome

    @asynccontextmanager
    async def started(
        self, profile: SandboxProfile, command: ProcessCommand, *, sink: Sink | None = None
    ) -> AsyncIterator[Running]:
        """A started program. Leaving the block ends it and everything it started, and cleans up after it."""
        host = self._guard_host(profile)
        checked = await asyncio.to_thread(check_before_spawn, profile, command, host)
        async with self._slot():
            capture = OutputCapture(profile.limits.max_output_bytes, sink)
            group = await asyncio.to_thread(self._cgroups.take, profile.limits)
            try:
                begin = self._isolated if profile.tier is SandboxTier.C else self._limited
                async with begin(profile, command, checked, capture, group) as running:
                    try:
                        yield running
                    finally:
                        if not running.child.ended:
                            await asyncio.shield(running.kill("left"))
                        running.receipt = running.receipt.with_lines(group.receipt())
            finally:
                capture.close()
                await asyncio.to_thread(group.release)

    def _guard_host(self, profile: SandboxProfile) -> GuardHost:
        """Kept for each place programs are looked up from: its index of PATH is worth keeping."""
        key = (profile.workspace_root, profile.tool_roots, profile.env)
        if key not in self._hosts:
            if len(self._hosts) >= MAX_KEPT_HOSTS:
                self._hosts.clear()
            self._hosts[key] = guard_host(profile, enabled=self._settings.enabled)
        return self._hosts[key]

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        if self._slots.locked() and self._waiting >= self._settings.max_waiting:
            raise TooManyWaiting(f"{self._waiting} programs already wait to run")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    @asynccontextmanager
    async def _limited(
        self, profile: SandboxProfile, command: ProcessCommand, checked: Checked, capture: OutputCapture, group: Group
    ) -> AsyncIterator[Running]:
        home = await asyncio.to_thread(tempfile.mkdtemp, prefix="call-", dir=self._settings.scratch)
        try:
            spec = limited_spec(
                with_environment(profile, checked),
                checked.argv,
                os.fsencode(checked.executable.found),
                cwd=checked.cwd,
                home=home,
                seccomp=default_program(),
                tasks_of_user=self._launcher.tasks_of_user(),
                memory_by_cgroup=group.limits_memory,
                cgroup_procs=group.procs,
                landlock=landlock_abi() > 0,
            )
            since = time.monotonic()
            child = await self._launch(spec, command, capture)
            receipt = limited_receipt(profile, spec, child.applied).with_lines(_always(profile))
            running = Running(child, capture, receipt, "limited_process", since)
            try:
                refuse_unmet(receipt, profile.required_layers)
            except PalyraError:
                await running.kill("refused")
                raise
            yield running
        finally:
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    @asynccontextmanager
    async def _isolated(
        self, profile: SandboxProfile, command: ProcessCommand, checked: Checked, capture: OutputCapture, group: Group
    ) -> AsyncIterator[Running]:
        host, (workspace, before) = await asyncio.gather(
            asyncio.to_thread(gather_host), asyncio.to_thread(gather_workspace, profile)
        )
        facts = Facts(host=host, workspace=workspace, seccomp=default_program())
        plan = plan_isolated(with_environment(profile, checked), checked.argv, facts, cwd=checked.cwd)
        spec = to_launch_spec(plan, cgroup_procs=group.procs)
        since = time.monotonic()
        with Gate() as gate:
            child = await self._launch(spec, command, capture, gate.child_descriptors)
            gate.handed_over()
            running = Running(child, capture, Receipt(), "bubblewrap", since)
            try:
                with Waiting(await gate.described()) as waiting:
                    seen = await asyncio.to_thread(release_checked, plan, gate, waiting)
            except NotBuilt as error:
                await running.kill("not built")
                said = capture.kept(StreamName.STDERR).decode("utf-8", "replace").strip()
                raise RuntimeFailure(f"the sandbox could not be built: {said or error.message}") from error
            except BaseException:
                await asyncio.shield(running.kill("refused"))
                raise
            running.receipt = seen.with_lines(_always(profile))
        yield running
        if not profile.read_only:
            await asyncio.to_thread(self._look_again, profile, before, running)

    def _look_again(self, profile: SandboxProfile, before: Survey, running: Running) -> None:
        """What appeared under a protected name while the program ran is named in the receipt, and dealt with."""
        aside = tempfile.mkdtemp(prefix="aside-", dir=self._settings.scratch)
        report = look_again(profile, before, aside=aside)
        with contextlib.suppress(OSError):
            # Stays where something was moved into it.
            os.rmdir(aside)
        line = running.receipt.line(Layer.PROTECTED_NAMES)
        running.receipt = running.receipt.with_lines([report.line(line)])
        report.refuse()

    async def _launch(
        self, spec: LaunchSpec, command: ProcessCommand, capture: OutputCapture, fds: tuple[int, ...] = ()
    ) -> Child:
        stdin = _stdin_of(command.stdin)
        try:
            stdout, stderr = capture.writers()
            return await self._launcher.launch(spec, stdin=stdin, stdout=stdout, stderr=stderr, fds=fds)
        except LaunchFailed as error:
            raise SpawnFailed(f"{command.command} could not be started: {error.message}", **error.details) from error
        finally:
            os.close(stdin)
            capture.handed_over()


def with_environment(profile: SandboxProfile, checked: Checked) -> SandboxProfile:
    """The caller's variables over the operator's."""
    return msgspec.structs.replace(profile, env=tuple({**dict(profile.env), **dict(checked.env)}.items()))


def _stdin_of(content: bytes) -> int:
    """A file in memory with the input, or nothing to read: never a pipe that somebody must keep writing."""
    if not content:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.memfd_create("palyra-stdin", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _always(profile: SandboxProfile) -> list[ReceiptLine]:
    """What the runner itself holds a program to."""
    limits = profile.limits
    quota, deadline = f"{limits.max_output_bytes} bytes", f"{limits.timeout_ms} ms"
    return [
        ReceiptLine(layer=Layer.OUTPUT_QUOTA, asked=quota, got=f"{quota}, then the tree is killed", held=True),
        ReceiptLine(layer=Layer.DEADLINE, asked=deadline, got=f"{deadline}, then the tree is killed", held=True),
        ReceiptLine(layer=Layer.TREE_KILL, asked="nothing outlives the call", got="a keeper reaps the tree", held=True),
    ]


def outcome_of(profile: SandboxProfile, running: Running, ended: Exit) -> ProcessOutcome:
    capture = running.capture
    return ProcessOutcome(
        exit_code=ended.exit_code,
        signal=ended.signal,
        stdout=capture.kept(StreamName.STDOUT),
        stderr=capture.kept(StreamName.STDERR),
        stdout_truncated=capture.truncated(StreamName.STDOUT),
        stderr_truncated=capture.truncated(StreamName.STDERR),
        duration_ms=round((time.monotonic() - running.since) * 1000),
        tier=profile.tier,
        backend=running.backend,
        receipt=running.receipt,
        killed_by=running.killed_by,
    )
