"""Starts programs without ever forking the daemon.

``Launcher`` keeps one zygote process and a few keepers ready (see ``keeper_main``). A launch hands a ``LaunchSpec``
and descriptors to a ready keeper over a socket; the program runs a few hundred microseconds later. One keeper serves
one program. Closing the daemon's end of a keeper's socket, on purpose or by dying, ends the program's whole tree.
"""

import asyncio
import contextlib
import os
import platform
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from palyra.sandbox import landlock, launch_wire, rlimit
from palyra.sandbox.child import PACKET_BYTES, Child, KeeperEnd, applied_by, closed_by_exec, exit_of, send_order
from palyra.sandbox.launch import (
    BadLaunch,
    Exit,
    KeeperLost,
    LandlockRules,
    LauncherGone,
    LaunchFailed,
    LaunchSpec,
    LaunchStage,
)
from palyra.sandbox.native_start import ORDERS_DESCRIPTOR, SECOND_MESSAGE_ADDRESS
from palyra.sandbox.start_plan import StartPlan, plan_preparation, plan_start, preparation_of

__all__ = ["Child", "Launcher"]

# Ready keepers. Each is two processes of about 1 MiB of their own; more only helps bursts.
READY_KEEPERS: Final = 4
REFILL_SECONDS: Final = 0.005
# A prepared keeper has opened files by name; a file that was since replaced would be out of the program's reach.
PREPARED_SECONDS: Final = 20.0
# How long a count of the user's tasks stays good enough to base RLIMIT_NPROC on.
TASK_COUNT_SECONDS: Final = 1.0
# Making a keeper takes a millisecond or two; a machine that cannot do it in this time is in trouble.
KEEPER_SECONDS: Final = 30.0
# The zygote waits for its keepers' trees to end; this long covers a disk that is slow to answer.
STOP_SECONDS: Final = 10.0

_MACHINE: Final = platform.machine()
_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[2])
# Appended, so that nothing installed beside Palyra can take the place of a standard module.
_ZYGOTE: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from palyra.sandbox.keeper_main import main; main(sys.argv[1:])"
)


class Launcher:
    """One per event loop. Use ``start`` and ``close``, or ``async with``."""

    def __init__(self, *, ready: int = READY_KEEPERS, python: str = sys.executable) -> None:
        self._python = python
        self._wanted_ready = ready
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready: deque[KeeperEnd] = deque()
        self._waiting: deque[asyncio.Future[KeeperEnd]] = deque()
        self._requested = 0
        self._greeting: dict[int, KeeperEnd] = {}
        self._running: dict[int, tuple[KeeperEnd, asyncio.Future[Exit]]] = {}
        self._lost: dict[int, asyncio.Future[Exit]] = {}
        self._refilling: asyncio.TimerHandle | None = None
        self._usual: LandlockRules | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._tasks_counted = (0, float("-inf"))

    async def __aenter__(self) -> "Launcher":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def ready(self) -> int:
        """How many keepers wait for work."""
        return len(self._ready)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def zygote_pid(self) -> int | None:
        return self._zygote.pid if self._zygote is not None else None

    def tasks_of_user(self) -> int:
        """The user's processes and threads, for RLIMIT_NPROC; counted anew when the last count is stale."""
        now = asyncio.get_running_loop().time()
        count, when = self._tasks_counted
        if now - when > TASK_COUNT_SECONDS:
            count = rlimit.tasks_of_user()
            self._tasks_counted = (count, now)
        own = 1 + len(self._running) + 2 * (len(self._ready) + len(self._greeting) + self._requested)
        return count + own

    async def start(self) -> None:
        async with self._starting:
            if self._closed:
                raise LauncherGone("the launcher was closed")
            if self._control is not None:
                return
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self._zygote = await asyncio.to_thread(self._start_zygote, theirs.fileno())
            except OSError as problem:
                ours.close()
                raise LauncherGone(f"the launcher process could not be started: {problem.strerror}") from problem
            finally:
                theirs.close()
            ours.setblocking(False)
            self._control = ours
            asyncio.get_running_loop().add_reader(ours.fileno(), self._hear_zygote)
            self._refill()

    def _start_zygote(self, control: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [self._python, "-I", "-S", "-B", "-c", _ZYGOTE, _PACKAGE_ROOT, str(control)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(control,),
            env={},
            start_new_session=True,
        )

    async def close(self) -> None:
        """Ends every program and its tree, then the launcher's own processes."""
        self._closed = True
        for keeper, _ in list(self._running.values()):
            keeper.tell(launch_wire.KILL_TAG)
        ending = [ended for _, ended in self._running.values()] + list(self._lost.values())
        if ending:
            await asyncio.wait(ending, timeout=STOP_SECONDS)
        zygote = self._forget_zygote()
        if zygote is not None:
            await asyncio.to_thread(_wait_for_end, zygote)

    async def launch(
        self,
        spec: LaunchSpec,
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        fds: Sequence[int] = (),
        confirm: bool = True,
    ) -> Child:
        """Starts a program. ``fds`` go to the numbers of ``spec.pass_fds``; the caller keeps and closes its own.

        Returns once the program itself runs, and raises ``sandbox.launch_failed`` with the stage and the errno when it
        could not be started. With ``confirm=False`` it returns at once, which spares the loop a turn while the program
        starts, and ``Child.wait`` raises that error instead.
        """
        if len(fds) != len(spec.pass_fds):
            raise BadLaunch(f"{len(fds)} descriptors given for {len(spec.pass_fds)} numbers")
        rlimits = rlimit.numbered(spec.rlimits)
        abi = landlock.abi() if spec.landlock is not None else 0

        keeper = await self._take()
        if spec.landlock is not None:
            self._usual = preparation_of(spec.landlock)

        def plan_for(in_memory_file: bool) -> StartPlan:
            return plan_start(
                spec,
                machine=_MACHINE,
                landlock_abi=abi,
                rlimits=rlimits,
                orders=ORDERS_DESCRIPTOR,
                in_memory_file=in_memory_file,
                prepared=keeper.prepared,
            )

        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exit] = loop.create_future()
        # Whoever launched may be gone by the time it ends; that is no reason to complain.
        ended.add_done_callback(_look)
        self._running[keeper.pid] = (keeper, ended)
        loop.add_reader(keeper.control.fileno(), self._hear_keeper, keeper)
        try:
            keeper.plan = send_order(keeper, spec, plan_for, (stdin, stdout, stderr, *fds))
            if spec.cgroup_procs:
                groups = b"\0".join(os.fsencode(path) for path in spec.cgroup_procs)
                keeper.tell(launch_wire.GROUPS_TAG + groups)
            if confirm:
                await closed_by_exec(loop, keeper)
        except OSError as problem:
            await self._abandon(keeper, ended)
            raise LaunchFailed(
                f"the program could not be handed over: {problem.strerror}",
                stage=LaunchStage.RECEIVE.value,
                errno=problem.errno or 0,
            ) from problem
        except BaseException:
            keeper.tell(launch_wire.KILL_TAG)
            raise
        finally:
            self._refill_soon()
        if keeper.failure is not None:
            await self._abandon(keeper, ended)
            raise keeper.failure
        return Child(keeper, applied_by(spec, abi), ended)

    async def _abandon(self, keeper: KeeperEnd, ended: "asyncio.Future[Exit]") -> None:
        keeper.tell(launch_wire.KILL_TAG)
        with contextlib.suppress(KeeperLost, LaunchFailed):
            await asyncio.shield(ended)

    async def _take(self) -> KeeperEnd:
        """A ready keeper, or the next one that gets ready."""
        if self._control is None:
            await self.start()
        now = asyncio.get_running_loop().time()
        while self._ready:
            keeper = self._ready.popleft()
            fresh = keeper.prepared is None or now - keeper.prepared_at < PREPARED_SECONDS
            if fresh and keeper.waits():
                return keeper
            keeper.close()
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
                self._ready.appendleft(waiting.result())
            raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _refill_soon(self) -> None:
        """Making a keeper costs as much as the launch it replaces: not now, while the program starts, unless it is the
        last one."""
        if not self._ready:
            self._refill()
        elif self._refilling is None and not self._closed:
            self._refilling = asyncio.get_running_loop().call_later(REFILL_SECONDS, self._refill)

    def _refill(self) -> None:
        """Asks for as many keepers as are missing."""
        if self._refilling is not None:
            self._refilling.cancel()
            self._refilling = None
        if self._control is None or self._closed:
            return
        coming = self._requested + len(self._greeting)
        missing = self._wanted_ready + len(self._waiting) - len(self._ready) - coming
        if missing > 0:
            with contextlib.suppress(OSError):
                self._control.send(launch_wire.WANT.pack(launch_wire.WANT_TAG, missing), socket.MSG_NOSIGNAL)
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
            if tag == launch_wire.MADE_TAG and len(descriptors) == 2:
                _, pid = launch_wire.MADE.unpack(message)
                self._greet(pid, descriptors[0], descriptors[1])
            elif tag == launch_wire.SWEPT_TAG:
                _, pid = launch_wire.SWEPT.unpack(message)
                self._conclude_lost(pid, swept=True)
            elif tag == launch_wire.REFUSED_TAG:
                _, number = launch_wire.REFUSED.unpack(message)
                self._refuse_one(number)
            else:
                zygote = self._forget_zygote()
                if zygote is not None:
                    # It closed its socket by ending: this is over at once.
                    _wait_for_end(zygote)

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
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(keeper)
                return
        self._prepare(keeper)
        self._ready.append(keeper)

    def _prepare(self, keeper: KeeperEnd) -> None:
        """Lets it do ahead what the last confined program had in common with the next, most likely."""
        if self._usual is None or not keeper.native:
            return
        order = plan_preparation(
            self._usual,
            machine=_MACHINE,
            landlock_abi=landlock.abi(),
            orders=ORDERS_DESCRIPTOR,
            message=SECOND_MESSAGE_ADDRESS,
        )
        if len(order) <= launch_wire.INLINE_ORDER_BYTES:
            with contextlib.suppress(OSError):
                keeper.orders.send(order, socket.MSG_NOSIGNAL)
                keeper.prepared = self._usual
                keeper.prepared_at = asyncio.get_running_loop().time()

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

    def _hear_keeper(self, keeper: KeeperEnd) -> None:
        try:
            message = keeper.control.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        asyncio.get_running_loop().remove_reader(keeper.control.fileno())
        keeper.control.close()
        if keeper.orders.fileno() >= 0:
            keeper.hear_start()
            if not keeper.confirming:
                keeper.orders.close()
        _, ended = self._running.pop(keeper.pid)
        if message[:1] == launch_wire.DONE_TAG:
            if keeper.failure is not None:
                ended.set_exception(keeper.failure)
            else:
                ended.set_result(exit_of(message))
            return
        # Killed: the zygote ends what it left behind, and says so.
        self._lost[keeper.pid] = ended
        if self._control is None:
            self._conclude_lost(keeper.pid, swept=False)

    def _conclude_lost(self, pid: int, *, swept: bool) -> None:
        ended = self._lost.pop(pid, None)
        if ended is None and pid in self._running:
            # The zygote was heard before the keeper's own end of file.
            keeper, ended = self._running.pop(pid)
            asyncio.get_running_loop().remove_reader(keeper.control.fileno())
            keeper.control.close()
            if not keeper.confirming:
                keeper.orders.close()
        if ended is not None and not ended.done():
            ended.set_exception(KeeperLost("the keeper of this program was killed", swept=swept))

    def _forget_zygote(self) -> "subprocess.Popen[bytes] | None":
        """The zygote is gone or to be gone. Keepers notice by themselves and end their trees."""
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control.fileno())
            control.close()
        for keeper in self._greeting.values():
            asyncio.get_running_loop().remove_reader(keeper.control.fileno())
        for keeper in (*self._ready, *self._greeting.values()):
            keeper.close()
        self._ready.clear()
        self._greeting.clear()
        self._requested = 0
        if self._refilling is not None:
            self._refilling.cancel()
            self._refilling = None
        for pid in list(self._lost):
            self._conclude_lost(pid, swept=False)
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


def _look(ended: "asyncio.Future[Exit]") -> None:
    if not ended.cancelled():
        ended.exception()
