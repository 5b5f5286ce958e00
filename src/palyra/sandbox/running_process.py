"""What a program prints, read as it comes and counted against one quota for both streams.

The pipes are read on the event loop without threads, so nothing outlives the call. Beyond the quota nothing more is
kept: the part up to it stays, the stream is marked truncated, and ``exceeded`` is set so that the tree is ended. Less
than the quota may be kept, where somebody sees all of it as it comes.

The writing ends stay open here too. So the end of a program, which closes its own, wakes nobody to read nothing: that
would compete with the end of its sandbox, which somebody else tells of. What is left in the pipes is read then.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import sys
import termios
import time
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Final

from palyra.sandbox.domain.launch_spec import Exit, KeeperLost
from palyra.sandbox.domain.network import NetworkUsage
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome, RuntimeFailure, SpawnFailed
from palyra.sandbox.domain.profile import Layer, Receipt, ReceiptLine, SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.launch.built_sandbox import WaitingSandbox
from palyra.sandbox.launch.child import Child

# One read: the size of a pipe's buffer.
CAPTURE_CHUNK_BYTES: Final = 64 * 1024


class StreamName(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


Sink = Callable[[StreamName, bytes], None]


class _Stream:
    def __init__(self, name: StreamName) -> None:
        self.name = name
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self.kept = bytearray()
        self.truncated = False
        self.open = True


class OutputCapture:
    """Made on the loop that reads, from ``listen`` on. ``sink`` sees every chunk up to the quota as it comes, for logs
    and terminals; ``keep`` is how much of it is kept, where that is less."""

    def __init__(self, max_bytes: int, sink: Sink | None = None, *, keep: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = max_bytes
        self._room = max_bytes if keep is None else keep
        self._sink = sink
        self._streams = {name: _Stream(name) for name in StreamName}
        self.exceeded = asyncio.Event()
        self._when_exceeded: Callable[[], None] | None = None

    def writers(self) -> tuple[int, int]:
        """The ends to hand to the program."""
        return self._streams[StreamName.STDOUT].writer, self._streams[StreamName.STDERR].writer

    def listen(self) -> None:
        """Once the program was given them, so that it does not wait for this."""
        for stream in self._streams.values():
            self._loop.add_reader(stream.reader, self._read, stream)

    def kept(self, name: StreamName) -> bytes:
        return bytes(self._streams[name].kept)

    def truncated(self, name: StreamName) -> bool:
        return self._streams[name].truncated

    def when_exceeded(self, do: Callable[[], None]) -> None:
        self._when_exceeded = do
        if self.exceeded.is_set():
            do()

    def finish(self) -> None:
        """Takes what is in the pipes, and closes them: all that was written until now, and not a byte more. For when
        the program's tree is gone; who else was given the writing ends, to hold or to flood them, is not waited for."""
        for stream in self._streams.values():
            left = _waiting_in(stream.reader) if stream.open else 0
            while left > 0 and (taken := self._read(stream, left)) > 0:
                left -= taken
        self.close()

    def close(self) -> None:
        """Lets go of everything, whoever still writes."""
        for stream in self._streams.values():
            self._end(stream)

    def _read(self, stream: _Stream, most: int = CAPTURE_CHUNK_BYTES) -> int:
        """Takes what is there, and says how much it was."""
        try:
            chunk = os.read(stream.reader, min(most, CAPTURE_CHUNK_BYTES))
        except OSError:
            return 0
        fitting = chunk[: self._left]
        self._left -= len(fitting)
        if fitting:
            stream.kept += fitting[: self._room]
            stream.truncated |= len(fitting) > self._room
            self._room -= min(len(fitting), self._room)
            if self._sink is not None:
                self._sink(stream.name, fitting)
        if len(fitting) < len(chunk):
            stream.truncated = True
            self.exceeded.set()
            if self._when_exceeded is not None:
                self._when_exceeded()
        return len(chunk)

    def _end(self, stream: _Stream) -> None:
        if not stream.open:
            return
        stream.open = False
        with contextlib.suppress(ValueError, OSError):
            self._loop.remove_reader(stream.reader)
        os.close(stream.reader)
        os.close(stream.writer)


def _waiting_in(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


# A program in its sandbox, from its start to its outcome.

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
        self.egress: NetworkUsage | None = None

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
