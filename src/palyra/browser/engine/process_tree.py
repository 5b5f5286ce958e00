"""One browser's processes: started together, ended together, and known to be gone.

bubblewrap's outer process is our child. The first process inside is the init of a pid namespace. The kernel reports
its end only when every other process of that namespace is gone, so its descriptor proves that nothing is left.
"""

import asyncio
import fcntl
import os
import select
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.domain import limits
from palyra.browser.engine.launch_plan import CDP_READ_FD, CDP_WRITE_FD, GO_FD, INFO_FD, LIFE_FD, READY_FD
from palyra.browser.engine.process_inspection import start_time
from palyra.errors import Failed, Unavailable

# Notes of the running processes, so that the next daemon can end those of a killed one.
#
# The kernel ends a browser with its daemon in three ways. The notes are for the case that all three failed. A note has
# the process's number, its start and the machine's boot, so that no other process is ended in its place.

_SUFFIX: Final = ".json"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first process of a browser's pid namespace. When it is killed the kernel kills the others."""

    pid: int
    started: int
    boot: str


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """Processes of a killed daemon. ``unending`` were killed and did not end."""

    notes: int = 0
    ended: tuple[int, ...] = ()
    unending: tuple[int, ...] = ()


class ProcessNotes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._boot = _boot()

    def write(self, pid: int) -> Path | None:
        started = start_time(pid)
        if started is None:
            return None
        path = self._folder / f"{pid}-{started}{_SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(Note(pid, started, self._boot)))
        return path

    def remove(self, note: Path | None) -> None:
        if note is not None:
            note.unlink(missing_ok=True)

    def collect(self) -> Leftovers:
        """End every noted process that still runs. Only the sole user of the state directory may call this."""
        notes, ended, unending = 0, [], []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}"))[: limits.MAX_NOTES]:
            notes += 1
            note = _read(path)
            if note is not None and note.boot == self._boot:
                gone = _end(note)
                if gone is False:
                    # Its note stays, for the next start.
                    unending.append(note.pid)
                    continue
                if gone:
                    ended.append(note.pid)
            with suppress(FileNotFoundError):
                path.unlink()
        return Leftovers(notes=notes, ended=tuple(ended), unending=tuple(unending))


def _end(note: Note) -> bool | None:
    """Return True when the process ran and ended, None when it did not run."""
    try:
        descriptor = os.pidfd_open(note.pid)
    except OSError:
        return None
    try:
        # The check follows the opening of the descriptor, so the number still means this process.
        if start_time(note.pid) != note.started:
            return None
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(limits.END_SECONDS * 1000))
    finally:
        os.close(descriptor)


def _read(path: Path) -> Note | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(limits.MAX_NOTE_BYTES), type=Note)
    except (OSError, msgspec.MsgspecError):
        return None


def _boot() -> str:
    return Path(_BOOT_ID).read_text("ascii").strip()


# Above every number that the started process gets, so that no copy lands on one that is still needed.
_ABOVE: Final = 64


class StartFailed(Unavailable):
    code = "browser.start_failed"
    hint = "`palyra doctor` checks bubblewrap and Chromium; `said` is what they wrote"


class ProcessesStuck(Failed):
    code = "browser.processes_stuck"
    hint = "processes that do not end when killed wait for the kernel; look at `pid`"


class _Info(msgspec.Struct):
    child_pid: int = msgspec.field(name="child-pid")


class ProcessTree:
    """Made by ``spawn``. ``release`` must follow in every case."""

    def __init__(self, pid: int, descriptors: dict[int, int], said: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.pid = pid
        self.first = 0
        self.status: int | None = None
        self._descriptors = descriptors
        self._said_from = said
        self._said = b""
        self._outer = os.pidfd_open(pid)
        self._inner = -1
        self._outer_gone = asyncio.Event()
        self._inner_gone = asyncio.Event()
        self._on_end: Callable[[], None] | None = None
        os.set_blocking(said, False)
        self._loop.add_reader(said, self._listen)
        self._loop.add_reader(self._outer, self._outer_ended)

    @property
    def said(self) -> str:
        return self._said.decode("utf-8", "replace").strip()

    def on_end(self, call: Callable[[], None]) -> None:
        self._on_end = call
        if self._outer_gone.is_set() or self._inner_gone.is_set():
            call()

    def take(self, number: int) -> int:
        return self._descriptors.pop(number)

    async def wait_until_built(self) -> int:
        """Wait until everything is mounted. Return the first process inside, as the host numbers it."""
        ready = self._descriptors[READY_FD]
        answered = asyncio.Event()
        self._loop.add_reader(ready, answered.set)
        try:
            async with asyncio.timeout(limits.START_SECONDS):
                await answered.wait()
        except TimeoutError as late:
            raise self.failed(f"bubblewrap built nothing within {limits.START_SECONDS:g} s") from late
        finally:
            self._loop.remove_reader(ready)
        if not os.read(ready, 1):
            raise self.failed("bubblewrap ended before it was done")
        try:
            info = msgspec.json.decode(os.pread(self._descriptors[INFO_FD], limits.MAX_INFO_BYTES, 0), type=_Info)
            self._inner = os.pidfd_open(info.child_pid)
        except (msgspec.MsgspecError, OSError) as problem:
            raise self.failed("the first process inside could not be found") from problem
        self.first = info.child_pid
        self._loop.add_reader(self._inner, self._inner_ended)
        return self.first

    def go(self) -> None:
        """Let it become Chromium, which ends with its pipe: the watching shell is not needed any more."""
        gone = ((GO_FD, "it ended before Chromium could begin"), (LIFE_FD, "the shell that watched its start is gone"))
        for number, why in gone:
            descriptor = self.take(number)
            try:
                os.write(descriptor, b"\n")
            except OSError as problem:
                raise self.failed(why) from problem
            finally:
                os.close(descriptor)

    def failed(self, why: str) -> StartFailed:
        self._listen()
        return StartFailed(f"Chromium could not be started: {why}", said=self.said)

    def kill(self) -> None:
        self._kill_group()
        for descriptor in (self._inner, self._outer):
            if descriptor >= 0:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    def _kill_group(self) -> None:
        """Kill bubblewrap and its child together.

        The child waits for bubblewrap before it does anything, also before it asks to die with it: killed
        alone, bubblewrap would leave it waiting for ever. Until then both are in one group, whose number
        stays taken while our child is not reaped.
        """
        if not self._outer_gone.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def wait_until_gone(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._outer_gone.wait()
                if self._inner >= 0:
                    await self._inner_gone.wait()
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        self.kill()
        try:
            if not await self.wait_until_gone(limits.END_SECONDS):
                raise ProcessesStuck("a browser's processes did not end when they were killed", pid=self.pid)
        finally:
            self.release()

    def release(self) -> None:
        for descriptor in (self._said_from, self._outer, self._inner):
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                os.close(descriptor)
        self._said_from = self._outer = self._inner = -1
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    # Events of the kernel.

    def _listen(self) -> None:
        """Read always, so that no process waits for us. Only the end is kept."""
        if self._said_from < 0:
            return
        try:
            data = os.read(self._said_from, limits.READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._said_from)
        self._said = (self._said + data)[-limits.SAID_BYTES :]

    def _outer_ended(self) -> None:
        self._loop.remove_reader(self._outer)
        # However it ended.
        self._kill_group()
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_PIDFD, self._outer, os.WEXITED)
            self.status = None if ended is None else ended.si_status
        self._outer_gone.set()
        self._notify()

    def _inner_ended(self) -> None:
        self._loop.remove_reader(self._inner)
        self._inner_gone.set()
        self._notify()

    def _notify(self) -> None:
        call, self._on_end = self._on_end, None
        if call is not None:
            call()


def spawn(argv: tuple[str, ...]) -> ProcessTree:
    """Start it without a fork, which is slow in a large process. This thread must live as long as bubblewrap."""
    with ExitStack() as theirs, ExitStack() as ours:
        kept: dict[int, int] = {}
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        ]
        for number, inside_reads in (
            (CDP_READ_FD, True),
            (CDP_WRITE_FD, False),
            (GO_FD, True),
            (READY_FD, False),
            (LIFE_FD, True),
            (1, False),
        ):
            reading, writing = _pipe()
            inside, outside = (reading, writing) if inside_reads else (writing, reading)
            theirs.callback(os.close, inside)
            ours.callback(os.close, outside)
            kept[number] = outside
            actions.append((os.POSIX_SPAWN_DUP2, inside, number))
        # Not a pipe: bubblewrap writes there while its child waits. If that write failed, because the daemon is gone,
        # bubblewrap would end and leave the child waiting for ever.
        kept[INFO_FD] = _memory()
        ours.callback(os.close, kept[INFO_FD])
        actions.append((os.POSIX_SPAWN_DUP2, kept[INFO_FD], INFO_FD))
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
        actions += [(os.POSIX_SPAWN_CLOSE, each) for each in _inheritable()]
        try:
            pid = os.posix_spawn(argv[0], argv, {}, file_actions=actions, setsid=True, setsigmask=())
        except OSError as problem:
            raise StartFailed(f"{argv[0]} could not be started: {problem.strerror}") from problem
        ours.pop_all()
    return ProcessTree(pid, kept, kept.pop(1))


def _inheritable() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own is closed already
            if int(name) > LIFE_FD and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _memory() -> int:
    made = os.memfd_create("palyra-browser", os.MFD_CLOEXEC)
    try:
        return fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    finally:
        os.close(made)


def _pipe() -> tuple[int, int]:
    ends = os.pipe2(os.O_CLOEXEC)
    try:
        reading = fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        try:
            return reading, fcntl.fcntl(ends[1], fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        except OSError:
            os.close(reading)
            raise
    finally:
        for each in ends:
            os.close(each)
