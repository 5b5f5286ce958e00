"""A program in its sandbox, from its start to its outcome: its streams, its limits and its end.

The output pipes are read on the event loop without threads, so nothing outlives the call. One quota counts both
streams. Beyond it nothing more is kept: the stream is marked truncated, and ``exceeded`` ends the tree.
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
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final

from palyra.sandbox.domain.launch_spec import Exit, LaunchFailed, LaunchStage, SupervisorLost
from palyra.sandbox.domain.network import NetworkUsage
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome, RuntimeFailure, SpawnFailed
from palyra.sandbox.domain.profile import Layer, Receipt, ReceiptLine, SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.launch.built_sandbox import PrewarmedSandbox
from palyra.sandbox.launch.launcher import Child
from palyra.sandbox.verify.protected_changes import ProtectedChanges

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
    """Reads two pipes from ``listen`` on.

    ``sink`` gets every chunk up to the quota as it comes, for logs and terminals. ``keep`` is how much of it is kept,
    if that is less. The writing ends stay open here too, so the reader is woken by output alone.
    """

    def __init__(self, max_bytes: int, sink: Sink | None = None, *, keep: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = max_bytes
        self._room = max_bytes if keep is None else keep
        self._sink = sink
        self._streams = {name: _Stream(name) for name in StreamName}
        self.exceeded: asyncio.Future[None] = self._loop.create_future()

    def writers(self) -> tuple[int, int]:
        """Return the ends for the program."""
        return self._streams[StreamName.STDOUT].writer, self._streams[StreamName.STDERR].writer

    def listen(self) -> None:
        for stream in self._streams.values():
            self._loop.add_reader(stream.reader, self._read, stream)

    def kept(self, name: StreamName) -> bytes:
        return bytes(self._streams[name].kept)

    def truncated(self, name: StreamName) -> bool:
        return self._streams[name].truncated

    def finish(self) -> None:
        """Take all that was written until now, and close the pipes.

        The program's tree is gone by then. Other holders of the writing ends may keep them or flood them.
        """
        for stream in self._streams.values():
            left = _count_unread(stream.reader) if stream.open else 0
            while left > 0 and (taken := self._read(stream, left)) > 0:
                left -= taken
        self.close()

    def close(self) -> None:
        """Close the pipes, also if a process still writes."""
        for stream in self._streams.values():
            self._end(stream)

    def _read(self, stream: _Stream, most: int = CAPTURE_CHUNK_BYTES) -> int:
        """Take what was written, and return how much it was."""
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
            if not self.exceeded.done():
                self.exceeded.set_result(None)
        return len(chunk)

    def _end(self, stream: _Stream) -> None:
        if not stream.open:
            return
        stream.open = False
        with contextlib.suppress(ValueError, OSError):
            self._loop.remove_reader(stream.reader)
        os.close(stream.reader)
        os.close(stream.writer)


def _count_unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@contextlib.contextmanager
def translate_launch_errors(command: ProcessCommand) -> Iterator[None]:
    try:
        yield
    except LaunchFailed as error:
        if error.details.get("stage") == LaunchStage.MOUNTS:
            raise RuntimeFailure(f"the sandbox could not be built: {error.message}") from error
        raise SpawnFailed(f"{command.command} could not be started: {error.message}", **error.details) from error


def open_stdin(command: ProcessCommand) -> int:
    """Open a memory file with the input, a pipe that the caller fills, or /dev/null.

    It is never the caller's own descriptor: a program could open through it what lies outside, past every mount.
    """
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


# bubblewrap prints this if the program inside cannot be executed. It then exits with 1, as a program might.
_NOT_EXECUTED: Final = b"bwrap: execvp "
_SIGNAL_BASE: Final = 128


class Running:
    """A program in its sandbox. ``wait`` returns its end once; ``kill`` ends it early."""

    def __init__(
        self,
        child: Child,
        capture: OutputCapture,
        receipt: Receipt,
        backend: str,
        since: float,
        sandbox: PrewarmedSandbox | None = None,
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
        # Known after the end.
        self.changes: ProtectedChanges | None = None

    @property
    def seconds(self) -> float:
        """How long it ran, or has run until now."""
        return (self.until or time.monotonic()) - self.since

    async def kill(self, why: str) -> None:
        self.killed_by = self.killed_by or why
        with contextlib.suppress(SupervisorLost):
            await self.child.kill()

    async def wait(self, deadline_seconds: float | None) -> Exit:
        """Wait for the end. Kill the tree at the deadline, or when it prints too much."""
        try:
            first: tuple[asyncio.Future[Any], ...] = (self.child.end, self.capture.exceeded)
            await asyncio.wait(first, timeout=deadline_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not self.child.ended:
                await self.kill("max_output_bytes" if self.capture.exceeded.done() else "timeout_ms")
            ended = await self.child.wait()
            self.until = time.monotonic()
        except SupervisorLost as error:
            raise RuntimeFailure("the program's supervisor was killed, and the program with it") from error
        except asyncio.CancelledError:
            await asyncio.shield(self.kill("cancelled"))
            raise
        # Its tree is gone, so the pipes have all that it wrote.
        self.capture.finish()
        if self.capture.exceeded.done():
            # It may have ended by itself before the last of its output was read. The answer is the same.
            self.killed_by = self.killed_by or "max_output_bytes"
        return ended


def lines_of_runner(limits: SandboxLimits) -> tuple[ReceiptLine, ...]:
    """Return the lines for the limits that the runner itself enforces."""
    quota, deadline = f"{limits.max_output_bytes} bytes", f"{limits.timeout_ms} ms"
    return (
        ReceiptLine(layer=Layer.OUTPUT_QUOTA, asked=quota, got=f"{quota}, then the tree is killed", held=True),
        ReceiptLine(layer=Layer.DEADLINE, asked=deadline, got=f"{deadline}, then the tree is killed", held=True),
        ReceiptLine(
            layer=Layer.TREE_KILL, asked="nothing outlives the call", got="a supervisor reaps the tree", held=True
        ),
    )


def refuse_unexecuted(command: ProcessCommand, outcome: ProcessOutcome) -> None:
    """Refuse a program that only bubblewrap ran for: a script without its interpreter, one of another machine."""
    if outcome.backend == "bubblewrap" and outcome.exit_code == 1 and outcome.stderr.startswith(_NOT_EXECUTED):
        reason = outcome.stderr.decode("utf-8", "replace").strip().rpartition(": ")[2]
        raise SpawnFailed(f"{command.command} could not be executed: {reason}", outcome=outcome, errno=errno.ENOEXEC)


def _limit_that_killed(profile: SandboxProfile, running: Running, ended: Exit) -> str | None:
    """Return the limit for which the kernel ended the program.

    bubblewrap reports a signal in its exit code, which a program may also choose for itself. So only one that ran long
    enough can have used up its processor time.
    """
    reported = (ended.exit_code or 0) - _SIGNAL_BASE if profile.tier is SandboxTier.C else None
    if running.out_of_memory and signal.SIGKILL in (ended.signal, reported):
        return "memory_bytes"
    if signal.SIGXCPU not in (ended.signal, reported):
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
        changes=running.changes.notable if running.changes is not None else (),
        moved_into=running.changes.folder if running.changes is not None else "",
        in_the_way=() if running.changes is None else running.changes.find_in_the_way(capture.kept(StreamName.STDERR)),
    )
