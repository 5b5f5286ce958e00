"""The daemon's end of one keeper, and the started program it stands for."""

import asyncio
import contextlib
import fcntl
import os
import platform
import socket
import struct
from collections.abc import Callable
from typing import Final

from palyra.sandbox.domain.launch_spec import (
    NO_CGROUP,
    Applied,
    BadLaunch,
    CgroupEntry,
    Exit,
    LaunchFailed,
    LaunchSpec,
    LaunchStage,
)
from palyra.sandbox.launch.plan_encoding import Step
from palyra.sandbox.launch.start_plan import StartPlan, plan_from_memory_file
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor.native_code import BUFFER_BYTES

PACKET_BYTES: Final = 1024
_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class KeeperEnd:
    """A keeper that has not been used yet, or whose program is running: the daemon's two sockets to it."""

    def __init__(self, pid: int, control: socket.socket, orders: socket.socket) -> None:
        self.pid = pid
        self.program = 0
        self.control = control
        self.orders = orders
        self.plan: StartPlan | None = None
        self.native = False
        self.cgroup = NO_CGROUP
        # Whether somebody listens to the orders' socket, and so closes it.
        self.confirming = False
        self.failure: LaunchFailed | None = None
        # Called when the keeper has said how its program ended.
        self.listeners: list[Callable[[object], None]] = []

    def learn_program(self, hello: bytes) -> None:
        """Take the number of a process that was created after the first greeting."""
        _, _, _, self.program = wire.HELLO.unpack(hello)

    def greeted(self) -> bool:
        """Takes the greeting. False when the keeper ended instead, or is of another release."""
        try:
            tag, version, native, self.program = wire.HELLO.unpack(self.control.recv(PACKET_BYTES))
        except (OSError, struct.error):
            return False
        self.native = bool(native)
        return bool(tag == wire.HELLO_TAG and version == wire.VERSION)

    def waits(self) -> bool:
        """Whether an unused keeper is still there. It says nothing until its program ended, or it did."""
        try:
            self.control.recv(PACKET_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def tell(self, message: bytes) -> None:
        """A keeper that is gone has nothing left to be told."""
        with contextlib.suppress(OSError):
            self.control.send(message, socket.MSG_NOSIGNAL)

    def enter(self, cgroup: CgroupEntry) -> None:
        """Name the control groups that end with the program, and have it created in the one of version 2."""
        self.cgroup = cgroup
        if cgroup.directories:
            self.tell(wire.GROUPS_TAG + b"\0".join(os.fsencode(path) for path in cgroup.directories))
        if not self.program:
            self.tell(wire.START_TAG + os.fsencode(cgroup.v2 or ""))
        elif cgroup.v2 is not None:
            raise BadLaunch("this launcher was given no version 2 control groups to start programs in")

    def heard(self) -> bytes:
        return _receive(self.control)

    def close(self) -> None:
        self.orders.close()
        self.control.close()

    def hear_start(self) -> bool:
        """Reads what came instead of a successful exec. True when there is nothing more to hear."""
        try:
            while message := _receive(self.orders):
                index, number = wire.FAILED.unpack(message)
                if index == wire.NOT_IN_GROUP:
                    where = self.cgroup.v2 or "no group"
                    self.failure = failure_of(Step(LaunchStage.CGROUP, "clone3", where), number)
                elif self.plan is not None and 0 <= index < len(self.plan.steps):
                    self.failure = failure_of(self.plan.steps[index], number)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


def _receive(connection: socket.socket) -> bytes:
    """Take one message. A peer that ended without reading our last one makes the kernel report that once, ahead of the
    message that the peer sent before it ended."""
    try:
        return connection.recv(PACKET_BYTES)
    except ConnectionResetError:
        return connection.recv(PACKET_BYTES)


def failure_of(step: Step, number: int) -> LaunchFailed:
    return LaunchFailed(
        f"the program was not started, {step.stage.value} failed: {os.strerror(number)}"
        + (f" ({step.subject})" if step.subject else ""),
        stage=step.stage.value,
        errno=number,
        call=step.call,
        subject=step.subject,
    )


class Child:
    """A program that was started. ``wait`` and ``kill`` return when nothing of its tree is left."""

    def __init__(self, keeper: KeeperEnd, applied: Applied, ended: "asyncio.Future[Exit]") -> None:
        self.applied = applied
        self._keeper = keeper
        self._ended = ended

    @property
    def pid(self) -> int:
        """Of the program. It is 0 until the supervisor has created the process, where groups are of version 2."""
        return self._keeper.program

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ended)

    @property
    def ended(self) -> bool:
        return self._ended.done()

    def when_ended(self, do: Callable[[object], None]) -> None:
        """Calls it, with something of no interest, when the program has ended; once or twice. The first time without
        a turn of the loop between."""
        self._ended.add_done_callback(do)
        self._keeper.listeners.append(do)

    def forget(self, do: Callable[[object], None]) -> None:
        self._ended.remove_done_callback(do)
        self._keeper.listeners.remove(do)

    @property
    def failure(self) -> LaunchFailed | None:
        """Why it was never started, if that is how it ended."""
        if not self._ended.done() or self._ended.cancelled():
            return None
        problem = self._ended.exception()
        return problem if isinstance(problem, LaunchFailed) else None

    async def kill(self) -> Exit:
        """SIGKILL to the whole tree, however it hides."""
        self._tell(wire.KILL_TAG)
        return await self.wait()

    def confirmed(self) -> None:
        """Something else showed that it was started: nothing more comes through the socket of its orders."""
        self._keeper.orders.close()

    def signal(self, number: int) -> None:
        """Sends a signal to the program itself, not to its descendants. Does nothing once it has ended."""
        self._tell(wire.SIGNAL.pack(wire.SIGNAL_TAG, number))

    def _tell(self, message: bytes) -> None:
        if not self._ended.done():
            self._keeper.tell(message)


def send_order(
    orders: socket.socket,
    spec: LaunchSpec,
    plan: Callable[[bool], StartPlan],
    descriptors: tuple[int, ...],
) -> StartPlan:
    """Sends the plan and its descriptors. A long plan goes as a memory file, which shifts the others by one."""
    made: list[int] = []
    try:
        for _, content in spec.data_fds:
            made.append(_memory_file(content))
        start = plan(False)
        order = start.encoded
        if len(order) > wire.INLINE_ORDER_BYTES:
            start = plan(True)
            order = plan_from_memory_file(platform.machine(), len(start.encoded), BUFFER_BYTES)
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
    """A sealed file in memory, to be read from its beginning."""
    descriptor = os.memfd_create("palyra", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


async def closed_by_exec(loop: asyncio.AbstractEventLoop, keeper: KeeperEnd) -> None:
    """Waits until exec, or a failed step, closed the socket of the orders."""
    closed: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        if keeper.hear_start() and not closed.done():
            closed.set_result(None)

    keeper.confirming = True
    orders = keeper.orders.fileno()
    loop.add_reader(orders, read)
    try:
        await closed
    finally:
        loop.remove_reader(orders)
        keeper.orders.close()


def applied_by(spec: LaunchSpec, abi: int) -> Applied:
    """Every step of the plan had to succeed, or the program would not run."""
    return Applied(
        no_new_privs=spec.no_new_privs,
        capabilities_dropped=spec.drop_capabilities,
        seccomp=spec.seccomp is not None,
        landlock_abi=abi,
        rlimits=len(spec.rlimits),
        cgroups=len(spec.cgroup.directories),
    )


def exit_of(message: bytes) -> Exit:
    _, status, *used, orphans, survivors = wire.DONE.unpack(message)
    usage: dict[str, float] = {
        "user_seconds": used[0] + used[1] / 1_000_000,
        "system_seconds": used[2] + used[3] / 1_000_000,
        **{name: used[place] for name, place in wire.RUSAGE_COUNTERS.items()},
    }
    died = os.WIFSIGNALED(status)
    return Exit(
        exit_code=None if died else os.waitstatus_to_exitcode(status),
        signal=os.WTERMSIG(status) if died else None,
        rusage=usage,
        orphans_killed=orphans,
        survivors=survivors,
    )
