"""A program in its sandbox, from its start to its outcome."""

import asyncio
import contextlib
import errno
import os
import signal
import time
from functools import lru_cache
from typing import Final

from palyra.sandbox.capture import OutputCapture, StreamName
from palyra.sandbox.child import Child
from palyra.sandbox.command import ProcessCommand
from palyra.sandbox.launch import Exit, KeeperLost
from palyra.sandbox.network_door import DoorUsage
from palyra.sandbox.outcome import ProcessOutcome, RuntimeFailure, SpawnFailed
from palyra.sandbox.profile import SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.receipt import Layer, Receipt, ReceiptLine
from palyra.sandbox.waiting_sandbox import WaitingSandbox

# How bubblewrap says that the program inside could not be executed; it then exits with 1 as a program might.
_NOT_EXECUTED: Final = b"bwrap: execvp "
_SIGNAL_BASE: Final = 128


class Running:
    """A program in its sandbox. ``ended`` gives its outcome once; ``stop`` ends it early."""

    def __init__(
        self,
        child: Child,
        capture: OutputCapture,
        receipt: Receipt,
        backend: str,
        since: float,
        sandbox: WaitingSandbox | None = None,
    ) -> None:
        self.child = child
        self.capture = capture
        self.receipt = receipt
        self.backend = backend
        self.since = since
        self.sandbox = sandbox
        self.until: float | None = None
        self.killed_by: str | None = None
        self.out_of_memory = False
        self.egress: DoorUsage | None = None

    @property
    def seconds(self) -> float:
        """How long it ran, or has run."""
        return (self.until or time.monotonic()) - self.since

    async def kill(self, why: str) -> None:
        self.killed_by = self.killed_by or why
        with contextlib.suppress(KeeperLost):
            await self.child.kill()

    async def ended(self, deadline_seconds: float | None) -> Exit:
        """Waits for the end; kills the tree at the deadline or when it prints too much."""
        try:
            try:
                async with asyncio.timeout(deadline_seconds):
                    await self._ended_or_exceeded()
            except TimeoutError:
                await self.kill("timeout_ms")
            if not self.child.ended:
                await self.kill("max_output_bytes")
            ended = await self.child.wait()
            self.until = time.monotonic()
        except KeeperLost as error:
            raise RuntimeFailure("the program's keeper was killed, and the program with it") from error
        except asyncio.CancelledError:
            await asyncio.shield(self.kill("cancelled"))
            raise
        # Its tree is gone: what is in the pipes is all that it wrote.
        self.capture.finish()
        if self.capture.exceeded.is_set():
            # It may have ended by itself before the last of its output was read: the same program, the same answer.
            self.killed_by = self.killed_by or "max_output_bytes"
        return ended

    async def _ended_or_exceeded(self) -> None:
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(_: object = None) -> None:
            if not first.done():
                first.set_result(None)

        self.capture.when_exceeded(settle)
        self.child.when_ended(settle)
        try:
            await first
        finally:
            self.child.forget(settle)


def always(profile: SandboxProfile) -> tuple[ReceiptLine, ...]:
    """What the runner itself holds a program to."""
    return _held_by_runner(profile.limits)


@lru_cache(maxsize=64)
def _held_by_runner(limits: SandboxLimits) -> tuple[ReceiptLine, ...]:
    quota, deadline = f"{limits.max_output_bytes} bytes", f"{limits.timeout_ms} ms"
    return (
        ReceiptLine(layer=Layer.OUTPUT_QUOTA, asked=quota, got=f"{quota}, then the tree is killed", held=True),
        ReceiptLine(layer=Layer.DEADLINE, asked=deadline, got=f"{deadline}, then the tree is killed", held=True),
        ReceiptLine(layer=Layer.TREE_KILL, asked="nothing outlives the call", got="a keeper reaps the tree", held=True),
    )


def refuse_unexecuted(command: ProcessCommand, outcome: ProcessOutcome) -> None:
    """bubblewrap runs even where the program cannot: a script without its interpreter, a program of another machine."""
    if outcome.backend == "bubblewrap" and outcome.exit_code == 1 and outcome.stderr.startswith(_NOT_EXECUTED):
        said = outcome.stderr.decode("utf-8", "replace").strip().rpartition(": ")[2]
        raise SpawnFailed(f"{command.command} could not be executed: {said}", outcome=outcome, errno=errno.ENOEXEC)


def _limit_that_killed(profile: SandboxProfile, running: Running, ended: Exit) -> str | None:
    """The limit for which the kernel ended the program. bubblewrap tells of a signal in its exit code, which a program
    may also choose for itself: only one that ran long enough can have used up its processor time."""
    told = (ended.exit_code or 0) - _SIGNAL_BASE if profile.tier is SandboxTier.C else None
    if running.out_of_memory and signal.SIGKILL in (ended.signal, told):
        return "memory_bytes"
    if signal.SIGXCPU not in (ended.signal, told):
        return None
    possible = running.seconds * (os.cpu_count() or 1) >= profile.limits.cpu_seconds
    return "cpu_seconds" if possible else None


def outcome_of(profile: SandboxProfile, running: Running, ended: Exit) -> ProcessOutcome:
    capture = running.capture
    return ProcessOutcome(
        exit_code=ended.exit_code,
        signal=ended.signal,
        stdout=capture.kept(StreamName.STDOUT),
        stderr=capture.kept(StreamName.STDERR),
        stdout_truncated=capture.truncated(StreamName.STDOUT),
        stderr_truncated=capture.truncated(StreamName.STDERR),
        duration_ms=round(running.seconds * 1000),
        tier=profile.tier,
        backend=running.backend,
        receipt=running.receipt,
        killed_by=running.killed_by or _limit_that_killed(profile, running, ended),
        egress=running.egress,
    )
