"""Keepers that are ready before they are needed, and the zygote process that makes them.

The pool knows nothing of programs. It hands out keepers, asks for more, and passes on what the zygote says of keepers
that were killed.
"""

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palyra.sandbox.domain.launch_spec import LauncherGone, LaunchFailed, LaunchStage
from palyra.sandbox.launch.child import PACKET_BYTES, KeeperEnd
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.layers.cgroup import CgroupPool

# Ready keepers. Each is two processes of about 1 MiB of their own; more only helps bursts.
READY_KEEPERS: Final = 4
# After a launch, so that making the next keeper does not compete with the program that starts.
REFILL_SECONDS: Final = 0.005
# The same while more than half of them are still ready.
UNHURRIED_REFILL_SECONDS: Final = 0.025
# Making a keeper takes a millisecond or two; a machine that cannot do it in this time is in trouble.
KEEPER_SECONDS: Final = 30.0
# The zygote waits for its keepers' trees to end; this long covers a disk that is slow to answer.
STOP_SECONDS: Final = 10.0

_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[3])
# Appended, so that nothing installed beside Palyra can take the place of a standard module.
_ZYGOTE: Final = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from palyra.sandbox.launch.supervisor.supervisor_main import main; main(sys.argv[1:])"
)


class KeeperPool:
    """``on_swept`` is told the keeper whose descendants are gone, ``on_gone`` that the zygote ended."""

    def __init__(
        self,
        *,
        ready: int,
        python: str,
        on_swept: Callable[[int], None],
        on_gone: Callable[[], None],
        cgroups: CgroupPool | None = None,
    ) -> None:
        self._python = python
        self._wanted_ready = ready
        self._on_swept = on_swept
        self._on_gone = on_gone
        self._cgroups = cgroups
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.ready: deque[KeeperEnd] = deque()
        self._waiting: deque[asyncio.Future[KeeperEnd]] = deque()
        self._requested = 0
        self._greeting: dict[int, KeeperEnd] = {}
        self._refilling: asyncio.TimerHandle | None = None
        # Whether keepers have the native executor waiting, once one has said so.
        self.native = False
        self.greeted = asyncio.Event()
        self._starting = asyncio.Lock()
        # Zygotes that closed their socket and are about to end.
        self._ending: set[asyncio.Future[None]] = set()
        self._closed = False

    @property
    def zygote_pid(self) -> int | None:
        return self._zygote.pid if self._zygote is not None else None

    @property
    def alive(self) -> bool:
        return self._control is not None

    @property
    def processes(self) -> int:
        """The zygote, and for each keeper not yet used itself and what waits under it."""
        return 1 + 2 * (len(self.ready) + len(self._greeting) + self._requested)

    async def start(self) -> None:
        async with self._starting:
            if self._closed:
                raise LauncherGone("the launcher was closed")
            if self._control is not None:
                return
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            starting = asyncio.ensure_future(asyncio.to_thread(self._start_zygote, theirs.fileno()))
            try:
                self._zygote = await asyncio.shield(starting)
            except OSError as problem:
                ours.close()
                raise LauncherGone(f"the launcher process could not be started: {problem.strerror}") from problem
            except asyncio.CancelledError:
                # A thread cannot be stopped; what it started ends without its socket.
                ours.close()
                await asyncio.wait([starting])
                if starting.exception() is None:
                    await asyncio.to_thread(_wait_for_end, starting.result())
                raise
            finally:
                theirs.close()
            ours.setblocking(False)
            self._control = ours
            asyncio.get_running_loop().add_reader(ours.fileno(), self._hear_zygote)
            self._refill()

    def _start_zygote(self, control: int) -> "subprocess.Popen[bytes]":
        late = self._cgroups is not None and self._cgroups.has_version_2
        return subprocess.Popen(
            [self._python, "-I", "-S", "-B", "-c", _ZYGOTE, _PACKAGE_ROOT, str(control), str(int(late))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(control,),
            env={},
            start_new_session=True,
        )

    async def close(self) -> None:
        self._closed = True
        # What is being started at this moment is ended as well.
        async with self._starting:
            zygote = self._forget_zygote()
            if zygote is not None:
                await asyncio.to_thread(_wait_for_end, zygote)
            while self._ending:
                await asyncio.wait(self._ending)

    def _take_ready(self) -> KeeperEnd | None:
        while self.ready:
            keeper = self.ready.popleft()
            if keeper.waits():
                return keeper
            keeper.close()
        return None

    async def take(self) -> KeeperEnd:
        """A ready keeper, or the next one that gets ready."""
        if self._control is None:
            await self.start()
        keeper = self._take_ready()
        if keeper is not None:
            return keeper
        waiting: asyncio.Future[KeeperEnd] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._refill()
        try:
            async with asyncio.timeout(KEEPER_SECONDS):
                return await waiting
        except TimeoutError as late:
            raise LauncherGone(f"no keeper was ready within {KEEPER_SECONDS:.0f} s") from late
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self.ready.appendleft(waiting.result())
            raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def refill_soon(self) -> None:
        """Making a keeper costs as much as the launch it replaces: not now, while the program starts, unless it is the
        last one."""
        if not self.ready:
            self._refill()
        elif not self._closed:
            hurry = 2 * len(self.ready) <= self._wanted_ready
            if self._refilling is not None:
                if not hurry:
                    return
                self._refilling.cancel()
            delay = REFILL_SECONDS if hurry else UNHURRIED_REFILL_SECONDS
            self._refilling = asyncio.get_running_loop().call_later(delay, self._refill)

    def _refill(self) -> None:
        """Asks for as many keepers as are missing."""
        if self._refilling is not None:
            self._refilling.cancel()
            self._refilling = None
        if self._control is None or self._closed:
            return
        coming = self._requested + len(self._greeting)
        missing = self._wanted_ready + len(self._waiting) - len(self.ready) - coming
        if missing > 0:
            with contextlib.suppress(OSError):
                self._control.send(wire.WANT.pack(wire.WANT_TAG, missing), socket.MSG_NOSIGNAL)
                self._requested += missing

    def _hear_zygote(self) -> None:
        control = self._control
        while control is not None and control is self._control:
            try:
                message, descriptors, _, _ = socket.recv_fds(control, PACKET_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                message, descriptors = b"", []
            tag = message[:1]
            if tag == wire.MADE_TAG and len(descriptors) == 2:
                _, pid = wire.MADE.unpack(message)
                self._greet(pid, descriptors[0], descriptors[1])
            elif tag == wire.MADE_TAG:
                # This process may open no more of them: the keeper ends, as its sockets are gone.
                for descriptor in descriptors:
                    os.close(descriptor)
                self._refuse_one(errno.EMFILE)
            elif tag == wire.SWEPT_TAG:
                _, pid = wire.SWEPT.unpack(message)
                self._on_swept(pid)
            elif tag == wire.REFUSED_TAG:
                _, number = wire.REFUSED.unpack(message)
                self._refuse_one(number)
            else:
                zygote = self._forget_zygote()
                if zygote is not None:
                    # It closed its socket by ending: this is over at once, if nothing keeps it.
                    ending = asyncio.ensure_future(asyncio.to_thread(_wait_for_end, zygote))
                    self._ending.add(ending)
                    ending.add_done_callback(self._ending.discard)

    def _greet(self, pid: int, control: int, orders: int) -> None:
        keeper = KeeperEnd(pid, socket.socket(fileno=control), socket.socket(fileno=orders))
        keeper.control.setblocking(False)
        keeper.orders.setblocking(False)
        self._requested = max(self._requested - 1, 0)
        self._greeting[pid] = keeper
        asyncio.get_running_loop().add_reader(control, self._hear_greeting, keeper)

    def _hear_greeting(self, keeper: KeeperEnd) -> None:
        asyncio.get_running_loop().remove_reader(keeper.control.fileno())
        del self._greeting[keeper.pid]
        if not keeper.greeted():
            keeper.close()
            self._refill()
            return
        self.native = keeper.native
        self.greeted.set()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(keeper)
                return
        self.ready.append(keeper)

    def _refuse_one(self, number: int) -> None:
        self._requested = max(self._requested - 1, 0)
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(
                    LaunchFailed(
                        f"no process could be made: {os.strerror(number)}",
                        stage=LaunchStage.RECEIVE.value,
                        errno=number,
                    )
                )
                return

    def _forget_zygote(self) -> "subprocess.Popen[bytes] | None":
        """The zygote is gone or to be gone. Keepers notice by themselves and end their trees."""
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control.fileno())
            control.close()
        for keeper in self._greeting.values():
            asyncio.get_running_loop().remove_reader(keeper.control.fileno())
        for keeper in (*self.ready, *self._greeting.values()):
            keeper.close()
        self.ready.clear()
        self._greeting.clear()
        self._requested = 0
        if self._refilling is not None:
            self._refilling.cancel()
            self._refilling = None
        self._on_gone()
        # Who waits for the first greeting waits no more.
        self.native = False
        self.greeted.set()
        self.greeted = asyncio.Event()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(LauncherGone("the launcher process ended"))
        zygote, self._zygote = self._zygote, None
        return zygote


def _wait_for_end(zygote: "subprocess.Popen[bytes]") -> None:
    try:
        zygote.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        zygote.kill()
        zygote.wait()
