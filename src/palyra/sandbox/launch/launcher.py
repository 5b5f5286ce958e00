"""Start programs without forking the daemon.

``Launcher`` keeps one zygote process and one ready supervisor (see ``supervisor_main``). A launch sends a list of
system calls and descriptors to a supervisor's waiting process; the program runs a few hundred microseconds later. One
supervisor serves one program. It ends the program's whole tree when the daemon closes its socket or dies.
"""

import asyncio
import contextlib
import fcntl
import os
import platform
import resource
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from palyra.sandbox.domain.launch_spec import (
    BadLaunch,
    Exit,
    LaunchFailed,
    LaunchSpec,
    LaunchStage,
    RLimit,
    SupervisorLost,
)
from palyra.sandbox.launch.start_plan import StartPlan, plan_from_memory_file, plan_start
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor.native_code import BUFFER_BYTES, ORDERS_DESCRIPTOR
from palyra.sandbox.launch.supervisor_pool import SupervisorLink, SupervisorPool, receive
from palyra.sandbox.layers import landlock
from palyra.sandbox.layers.cgroup import CgroupPool

# How long a count of the user's tasks serves as the base of RLIMIT_NPROC.
TASK_COUNT_SECONDS: Final = 1.0
# Trees end at once, except for a process that waits for a slow disk.
TREE_SECONDS: Final = 10.0

_MACHINE: Final = platform.machine()
_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_NUMBERS: Final = {
    name: getattr(resource, f"RLIMIT_{name}")
    for name in ("CPU", "AS", "NPROC", "NOFILE", "FSIZE", "CORE", "DATA", "STACK", "MEMLOCK", "MSGQUEUE", "RTPRIO")
}


def number_limits(limits: Sequence[RLimit]) -> tuple[tuple[int, int, int], ...]:
    """Return the numbers that setrlimit takes, at most this process's hard limits: only root may raise those."""
    return tuple(_cap(limit) for limit in limits)


def _cap(limit: RLimit) -> tuple[int, int, int]:
    number = _NUMBERS.get(limit.name)
    if number is None:
        raise BadLaunch(f"there is no resource limit called {limit.name}", name=limit.name)
    if limit.soft < 0 or limit.hard < limit.soft:
        raise BadLaunch(f"the limits of {limit.name} are not in order", soft=limit.soft, hard=limit.hard)
    _, ceiling = resource.getrlimit(number)
    if ceiling == resource.RLIM_INFINITY:
        return number, limit.soft, limit.hard
    return number, min(limit.soft, ceiling), min(limit.hard, ceiling)


def count_tasks(uid: int | None = None) -> int:
    """Count the processes and threads of a user, as the kernel does for RLIMIT_NPROC.

    Processes that cannot be traced appear as root's and are missed. The launcher's own are of that kind, so it adds
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


def failed_handover(problem: OSError) -> LaunchFailed:
    return LaunchFailed(
        f"the program could not be handed over: {problem.strerror}",
        stage=LaunchStage.RECEIVE.value,
        errno=problem.errno or 0,
    )


class Child:
    """A started program. ``wait`` and ``kill`` return when nothing of its tree is left."""

    def __init__(self, supervisor: SupervisorLink, end: "asyncio.Future[Exit]") -> None:
        self.end = end
        self._supervisor = supervisor

    @property
    def pid(self) -> int:
        """Return the program's pid. It is 0 until the supervisor has created the process, in groups of version 2."""
        return self._supervisor.program

    async def wait(self) -> Exit:
        return await asyncio.shield(self.end)

    @property
    def ended(self) -> bool:
        return self.end.done()

    async def kill(self) -> Exit:
        """Send SIGKILL to the whole tree, however it hides."""
        if not self.end.done():
            self._supervisor.send(wire.KILL_TAG)
        return await self.wait()


def send_order(
    orders: socket.socket,
    spec: LaunchSpec,
    plan: Callable[[bool], StartPlan],
    descriptors: tuple[int, ...],
) -> StartPlan:
    """Send the plan and its descriptors. A long plan goes as a memory file, which shifts the others by one."""
    made: list[int] = []
    try:
        for _, content in spec.data_fds:
            made.append(_memory_file(content))
        start = plan(False)
        order = start.encoded
        if len(order) > wire.INLINE_ORDER_BYTES:
            start = plan(True)
            order = plan_from_memory_file(_MACHINE, len(start.encoded), BUFFER_BYTES)
            made.append(_memory_file(start.encoded))
            descriptors = (made[-1], *descriptors, *made[:-1])
        else:
            descriptors = (*descriptors, *made)
        socket.send_fds(orders, [order], descriptors, socket.MSG_NOSIGNAL)
        return start
    finally:
        for descriptor in made:
            os.close(descriptor)


def _memory_file(content: bytes) -> int:
    """Make a sealed file in memory, to be read from its beginning."""
    descriptor = os.memfd_create("palyra", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def exit_of(message: bytes) -> Exit:
    _, status, orphans, survivors = wire.DONE.unpack(message)
    died = os.WIFSIGNALED(status)
    return Exit(
        exit_code=None if died else os.waitstatus_to_exitcode(status),
        signal=os.WTERMSIG(status) if died else None,
        orphans_killed=orphans,
        survivors=survivors,
    )


class Launcher:
    """One per event loop. Use ``start`` and ``close``, or ``async with``."""

    def __init__(self, *, python: str = sys.executable, cgroups: CgroupPool | None = None) -> None:
        self._pool = SupervisorPool(
            python=python, on_swept=self._fail_lost, on_gone=self._on_zygote_gone, cgroups=cgroups
        )
        self._running: dict[int, tuple[SupervisorLink, asyncio.Future[Exit]]] = {}
        self._lost: dict[int, asyncio.Future[Exit]] = {}
        self._tasks_counted = (0, float("-inf"))

    async def __aenter__(self) -> "Launcher":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def ready(self) -> int:
        """How many supervisors wait for work."""
        return len(self._pool.ready)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def zygote_pid(self) -> int | None:
        return self._pool.zygote_pid

    def tasks_of_user(self) -> int:
        """Return the count of the user's processes and threads for RLIMIT_NPROC, at most a second old."""
        now = asyncio.get_running_loop().time()
        count, when = self._tasks_counted
        if now - when > TASK_COUNT_SECONDS:
            count = count_tasks()
            self._tasks_counted = (count, now)
        return count + self._pool.processes + len(self._running)

    async def start(self) -> None:
        await self._pool.start()

    async def runs_native(self) -> bool:
        """Return whether waiting processes are the small native ones here. The first supervisor reports it."""
        return await self._pool.runs_native()

    async def close(self) -> None:
        """End every program and its tree, then the launcher's own processes."""
        for supervisor, _ in list(self._running.values()):
            supervisor.send(wire.KILL_TAG)
        ending = [end for _, end in self._running.values()] + list(self._lost.values())
        if ending:
            await asyncio.wait(ending, timeout=TREE_SECONDS)
        await self._pool.close()

    async def launch(self, spec: LaunchSpec, *, stdin: int, stdout: int, stderr: int, fds: Sequence[int] = ()) -> Child:
        """Start a program, and return once it runs.

        ``fds`` go to the numbers of ``spec.pass_fds``; the caller keeps and closes its own. A program that cannot be
        started raises ``sandbox.launch_failed`` with the stage and the errno.
        """
        if len(fds) != len(spec.pass_fds):
            raise BadLaunch(f"{len(fds)} descriptors given for {len(spec.pass_fds)} numbers")
        rlimits = number_limits(spec.rlimits)
        abi = landlock.abi() if spec.landlock is not None else 0
        supervisor = await self._pool.take()

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
        end: asyncio.Future[Exit] = loop.create_future()
        # Retrieve the exception so asyncio does not log it: the caller may be gone by then.
        end.add_done_callback(asyncio.Future.exception)
        self._running[supervisor.pid] = (supervisor, end)
        loop.add_reader(supervisor.control.fileno(), self._on_message, supervisor)
        try:
            supervisor.enter(spec.cgroup)
            supervisor.plan = send_order(supervisor.orders, spec, plan_for, (stdin, stdout, stderr, *fds))
            await supervisor.wait_for_exec(loop)
        except OSError as problem:
            await self._abandon(supervisor, end)
            supervisor.read_failure()
            # With a failure it could not be created in its group, so nobody takes the order.
            raise supervisor.failure or failed_handover(problem) from problem
        except BaseException:
            # Wait: the supervisor closes the program's control groups, and the next program may get the same ones.
            await _finish_despite_cancel(self._abandon(supervisor, end))
            raise
        finally:
            supervisor.orders.close()
            self._pool.refill_soon()
        if supervisor.failure is not None:
            await self._abandon(supervisor, end)
            raise supervisor.failure
        return Child(supervisor, end)

    async def _abandon(self, supervisor: SupervisorLink, end: "asyncio.Future[Exit]") -> None:
        supervisor.send(wire.KILL_TAG)
        with contextlib.suppress(SupervisorLost):
            await asyncio.shield(end)

    def _on_message(self, supervisor: SupervisorLink) -> None:
        try:
            message = receive(supervisor.control)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message[:1] == wire.HELLO_TAG:
            supervisor.learn_program(message)
            return
        end = self._forget(supervisor.pid)
        if message[:1] == wire.DONE_TAG:
            end.set_result(exit_of(message))
            return
        # It was killed. The zygote ends what it left behind and reports that.
        self._lost[supervisor.pid] = end
        if not self._pool.alive:
            self._fail_lost(supervisor.pid, swept=False)

    def _forget(self, pid: int) -> "asyncio.Future[Exit]":
        supervisor, end = self._running.pop(pid)
        asyncio.get_running_loop().remove_reader(supervisor.control.fileno())
        supervisor.control.close()
        return end

    def _on_zygote_gone(self) -> None:
        for pid in list(self._lost):
            self._fail_lost(pid, swept=False)

    def _fail_lost(self, pid: int, *, swept: bool = True) -> None:
        end = self._lost.pop(pid, None)
        if end is None and pid in self._running:
            # The zygote's report came before the end of the supervisor's own socket.
            end = self._forget(pid)
        if end is not None and not end.done():
            end.set_exception(SupervisorLost("the supervisor of this program was killed", swept=swept))


async def _finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work, also when the caller is cancelled meanwhile: it is about to raise already."""
    doing = asyncio.ensure_future(work)
    while not doing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([doing])
    doing.result()
