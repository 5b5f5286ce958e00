"""Starts programs without ever forking the daemon.

``Launcher`` keeps one zygote process and a few keepers ready (see ``keeper_main``). A launch hands a ``LaunchSpec``
and descriptors to a ready keeper over a socket; the program runs a few hundred microseconds later. One keeper serves
one program. Closing the daemon's end of a keeper's socket, on purpose or by dying, ends the program's whole tree.
"""

import asyncio
import contextlib
import os
import platform
import resource
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from palyra.sandbox.domain.launch_spec import BadLaunch, Exit, KeeperLost, LaunchFailed, LaunchSpec, LaunchStage, RLimit
from palyra.sandbox.launch.child import Child, KeeperEnd, applied_by, closed_by_exec, exit_of, send_order
from palyra.sandbox.launch.start_plan import StartPlan, plan_start
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor.native_code import ORDERS_DESCRIPTOR
from palyra.sandbox.launch.supervisor_pool import READY_KEEPERS, KeeperPool
from palyra.sandbox.layers import landlock
from palyra.sandbox.layers.cgroup import CgroupPool

# Resource limits: from a profile's limits to the numbers of setrlimit(2).
#
# They bind each process, except RLIMIT_NPROC, which counts all of a user's processes and threads on the machine and
# does not bind root. Limits for a whole tree need control groups; these hold everywhere.

_NUMBERS: Final = {
    name: getattr(resource, f"RLIMIT_{name}")
    for name in ("CPU", "AS", "NPROC", "NOFILE", "FSIZE", "CORE", "DATA", "STACK", "MEMLOCK", "MSGQUEUE", "RTPRIO")
}


def numbered(limits: Sequence[RLimit]) -> tuple[tuple[int, int, int], ...]:
    """As setrlimit takes them, never above the hard limit this process itself has: only root could raise that."""
    return tuple(_capped(limit) for limit in limits)


def _capped(limit: RLimit) -> tuple[int, int, int]:
    number = _NUMBERS.get(limit.name)
    if number is None:
        raise BadLaunch(f"there is no resource limit called {limit.name}", name=limit.name)
    if limit.soft < 0 or limit.hard < limit.soft:
        raise BadLaunch(f"the limits of {limit.name} are not in order", soft=limit.soft, hard=limit.hard)
    _, ceiling = resource.getrlimit(number)
    if ceiling == resource.RLIM_INFINITY:
        return number, limit.soft, limit.hard
    return number, min(limit.soft, ceiling), min(limit.hard, ceiling)


def tasks_of_user(uid: int | None = None) -> int:
    """How many processes and threads a user has now, which is what the kernel counts against RLIMIT_NPROC.

    Processes that cannot be traced show as root's and are missed; the launcher's own are of that kind, and it adds
    them.
    """
    wanted = os.getuid() if uid is None else uid
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid == wanted:
                # The directory has one link for each thread, and two of its own.
                total += max(os.stat(f"/proc/{name}/task").st_nlink - 2, 1)
        except OSError:
            continue
    return total


__all__ = ["READY_KEEPERS", "Child", "Launcher"]

# How long a count of the user's tasks stays good enough to base RLIMIT_NPROC on.
TASK_COUNT_SECONDS: Final = 1.0
# Trees end at once, but for a process that waits for a disk that is slow to answer.
TREE_SECONDS: Final = 10.0

_MACHINE: Final = platform.machine()


class Launcher:
    """One per event loop. Use ``start`` and ``close``, or ``async with``."""

    def __init__(
        self, *, ready: int = READY_KEEPERS, python: str = sys.executable, cgroups: CgroupPool | None = None
    ) -> None:
        self._pool = KeeperPool(
            ready=ready, python=python, on_swept=self._swept, on_gone=self._zygote_gone, cgroups=cgroups
        )
        self._running: dict[int, tuple[KeeperEnd, asyncio.Future[Exit]]] = {}
        self._lost: dict[int, asyncio.Future[Exit]] = {}
        self._tasks_counted = (0, float("-inf"))

    async def __aenter__(self) -> "Launcher":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def ready(self) -> int:
        """How many keepers wait for work."""
        return len(self._pool.ready)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def zygote_pid(self) -> int | None:
        return self._pool.zygote_pid

    def tasks_of_user(self) -> int:
        """The user's processes and threads, for RLIMIT_NPROC; counted anew when the last count is stale."""
        now = asyncio.get_running_loop().time()
        count, when = self._tasks_counted
        if now - when > TASK_COUNT_SECONDS:
            count = tasks_of_user()
            self._tasks_counted = (count, now)
        return count + self._pool.processes + len(self._running)

    async def start(self) -> None:
        await self._pool.start()

    @property
    def known_native(self) -> bool:
        """Whether a keeper is there, with a small native process waiting under it."""
        return self._pool.alive and self._pool.native

    async def runs_native(self) -> bool:
        """Whether waiting processes are the small native ones here. Known when the first keeper is there."""
        if self.known_native:
            return True
        await self._pool.start()
        await self._pool.greeted.wait()
        return self._pool.native

    async def close(self) -> None:
        """Ends every program and its tree, then the launcher's own processes."""
        for keeper, _ in list(self._running.values()):
            keeper.tell(wire.KILL_TAG)
        ending = [ended for _, ended in self._running.values()] + list(self._lost.values())
        if ending:
            await asyncio.wait(ending, timeout=TREE_SECONDS)
        await self._pool.close()

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
        rlimits = numbered(spec.rlimits)
        abi = landlock.abi() if spec.landlock is not None else 0

        keeper = await self._pool.take()

        def plan_for(in_memory_file: bool) -> StartPlan:
            return plan_start(
                spec,
                machine=_MACHINE,
                landlock_abi=abi,
                rlimits=rlimits,
                orders=ORDERS_DESCRIPTOR,
                in_memory_file=in_memory_file,
            )

        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exit] = loop.create_future()
        # Whoever launched may be gone by the time it ends; that is no reason to complain.
        ended.add_done_callback(_look)
        self._running[keeper.pid] = (keeper, ended)
        loop.add_reader(keeper.control.fileno(), self._hear_keeper, keeper)
        try:
            keeper.enter(spec.cgroup)
            given = (stdin, stdout, stderr, *fds)
            keeper.plan = send_order(keeper.orders, spec, plan_for, given)
            if confirm:
                await closed_by_exec(loop, keeper)
        except OSError as problem:
            await self._abandon(keeper, ended)
            if keeper.failure is not None:
                # It could not be created in its group, and nobody takes the order.
                raise keeper.failure from problem
            raise LaunchFailed(
                f"the program could not be handed over: {problem.strerror}",
                stage=LaunchStage.RECEIVE.value,
                errno=problem.errno or 0,
            ) from problem
        except BaseException:
            # Waited for: the keeper closes the program's control groups, and the next program may get the same ones.
            await _for_sure(self._abandon(keeper, ended))
            raise
        finally:
            self._pool.refill_soon()
        if keeper.failure is not None:
            await self._abandon(keeper, ended)
            raise keeper.failure
        return Child(keeper, applied_by(spec, abi), ended)

    async def _abandon(self, keeper: KeeperEnd, ended: "asyncio.Future[Exit]") -> None:
        keeper.tell(wire.KILL_TAG)
        with contextlib.suppress(KeeperLost, LaunchFailed):
            await asyncio.shield(ended)

    def _hear_keeper(self, keeper: KeeperEnd) -> None:
        try:
            message = keeper.heard()
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message[:1] == wire.HELLO_TAG:
            keeper.learn_program(message)
            return
        asyncio.get_running_loop().remove_reader(keeper.control.fileno())
        keeper.control.close()
        if keeper.orders.fileno() >= 0:
            keeper.hear_start()
            if not keeper.confirming:
                keeper.orders.close()
        _, ended = self._running.pop(keeper.pid)
        if message[:1] == wire.DONE_TAG:
            if keeper.failure is not None:
                ended.set_exception(keeper.failure)
            else:
                ended.set_result(exit_of(message))
            for listener in keeper.listeners:
                listener(ended)
            return
        # Killed: the zygote ends what it left behind, and says so.
        self._lost[keeper.pid] = ended
        if not self._pool.alive:
            self._conclude_lost(keeper.pid, swept=False)

    def _swept(self, pid: int) -> None:
        self._conclude_lost(pid, swept=True)

    def _zygote_gone(self) -> None:
        for pid in list(self._lost):
            self._conclude_lost(pid, swept=False)

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


async def _for_sure(work: Coroutine[Any, Any, None]) -> None:
    """Finishes the work, also when it is cancelled meanwhile: who calls this is on its way out already."""
    doing = asyncio.ensure_future(work)
    while not doing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([doing])
    doing.result()


def _look(ended: "asyncio.Future[Exit]") -> None:
    if not ended.cancelled():
        ended.exception()
