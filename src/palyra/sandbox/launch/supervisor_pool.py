"""The zygote process, and supervisors that it makes before they are needed.

The pool does not depend on programs. It lends supervisors, requests more, and reports supervisors that were killed.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palyra.sandbox.domain.launch_spec import (
    NO_CGROUP,
    BadLaunch,
    CgroupEntry,
    LauncherGone,
    LaunchFailed,
    LaunchStage,
)
from palyra.sandbox.launch.plan_segment import Step
from palyra.sandbox.launch.start_plan import StartPlan
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.layers.cgroup import CgroupPool

# How many supervisors wait. Each is two processes of about 1 MiB of their own.
READY_SUPERVISORS: Final = 1
# The delay after a launch: making the next supervisor would compete with the program that starts. With 5 ms a cold
# start of Tier C took 9.7 ms, with 12 ms it takes 7.6; bubblewrap by hand takes 6.8.
REFILL_SECONDS: Final = 0.012
# Making a supervisor takes a millisecond or two; a machine that cannot do it in this time is in trouble.
SUPERVISOR_SECONDS: Final = 30.0
# The zygote waits for the trees of its supervisors to end; this covers a slow disk.
STOP_SECONDS: Final = 10.0
PACKET_BYTES: Final = 1024

_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[3])
# Appended, so that nothing installed beside Palyra can take the place of a standard module.
_ZYGOTE: Final = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from palyra.sandbox.launch.supervisor.supervisor_main import main; main(sys.argv[1:])"
)


class SupervisorLink:
    """The daemon's two sockets to a supervisor and to the process that waits for its order."""

    def __init__(self, pid: int, control: socket.socket, orders: socket.socket) -> None:
        self.pid = pid
        self.program = 0
        self.control = control
        self.orders = orders
        self.plan: StartPlan | None = None
        self.native = False
        self.cgroup = NO_CGROUP
        self.failure: LaunchFailed | None = None

    def learn_program(self, hello: bytes) -> None:
        """Take the number of a process that was created after the first greeting."""
        _, _, _, self.program = wire.HELLO.unpack(hello)

    def greet(self) -> bool:
        """Take the greeting. Return False if the supervisor ended instead, or is of another release."""
        try:
            tag, version, native, self.program = wire.HELLO.unpack(self.control.recv(PACKET_BYTES))
        except (OSError, struct.error):
            return False
        self.native = bool(native)
        return bool(tag == wire.HELLO_TAG and version == wire.VERSION)

    def waits(self) -> bool:
        """Return whether an unused supervisor is alive: it sends nothing until its program has ended."""
        return is_silent(self.control)

    def send(self, message: bytes) -> None:
        """Send a message. A supervisor that has ended needs none."""
        with contextlib.suppress(OSError):
            self.control.send(message, socket.MSG_NOSIGNAL)

    def enter(self, cgroup: CgroupEntry) -> None:
        """Name the control groups that end with the program, and have it created in the one of version 2."""
        self.cgroup = cgroup
        if cgroup.directories:
            self.send(wire.GROUPS_TAG + b"\0".join(os.fsencode(path) for path in cgroup.directories))
        if not self.program:
            self.send(wire.START_TAG + os.fsencode(cgroup.v2 or ""))
        elif cgroup.v2 is not None:
            raise BadLaunch("this launcher was given no version 2 control groups to start programs in")

    def close(self) -> None:
        self.orders.close()
        self.control.close()

    async def wait_for_exec(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until exec, or a failed step, has closed the socket of the orders."""
        closed: asyncio.Future[None] = loop.create_future()

        def read() -> None:
            if self.read_failure() and not closed.done():
                closed.set_result(None)

        orders = self.orders.fileno()
        loop.add_reader(orders, read)
        try:
            await closed
        finally:
            loop.remove_reader(orders)
            self.orders.close()

    def read_failure(self) -> bool:
        """Read what arrived instead of a successful exec. Return True at the end of the socket."""
        try:
            while message := receive(self.orders):
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


def is_silent(connection: socket.socket) -> bool:
    """Return whether the other end is open and has sent nothing."""
    try:
        connection.recv(PACKET_BYTES, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def receive(connection: socket.socket) -> bytes:
    """Take one message.

    A peer that ended without reading our last message makes the kernel report that once, before the message that the
    peer sent earlier.
    """
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


class SupervisorPool:
    """Call ``on_swept`` with a supervisor whose descendants are gone, and ``on_gone`` when the zygote ends."""

    def __init__(
        self,
        *,
        python: str,
        on_swept: Callable[[int], None],
        on_gone: Callable[[], None],
        cgroups: CgroupPool | None = None,
    ) -> None:
        self._python = python
        self._on_swept = on_swept
        self._on_gone = on_gone
        self._cgroups = cgroups
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.ready: deque[SupervisorLink] = deque()
        self._waiting: deque[asyncio.Future[SupervisorLink]] = deque()
        self._requested = 0
        self._greeting: dict[int, SupervisorLink] = {}
        self._refilling: asyncio.TimerHandle | None = None
        # Whether supervisors have the native executor waiting, once one has reported it.
        self._native = False
        self._greeted = asyncio.Event()
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
        """Count the zygote, and for each unused supervisor itself and the process that waits under it."""
        return 1 + 2 * (len(self.ready) + len(self._greeting) + self._requested)

    async def runs_native(self) -> bool:
        if not (self.alive and self._native):
            await self.start()
            await self._greeted.wait()
        return self._native

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
                # A thread cannot be stopped; the process that it started ends without its socket.
                ours.close()
                await asyncio.wait([starting])
                if starting.exception() is None:
                    await asyncio.to_thread(_wait_for_end, starting.result())
                raise
            finally:
                theirs.close()
            ours.setblocking(False)
            self._control = ours
            asyncio.get_running_loop().add_reader(ours.fileno(), self._on_message)
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
        # This also ends a zygote that is starting now.
        async with self._starting:
            zygote = self._forget_zygote()
            if zygote is not None:
                await asyncio.to_thread(_wait_for_end, zygote)
            while self._ending:
                await asyncio.wait(self._ending)

    async def take(self) -> SupervisorLink:
        """Return a ready supervisor, or the next one that becomes ready."""
        if self._control is None:
            await self.start()
        while self.ready:
            supervisor = self.ready.popleft()
            if supervisor.waits():
                return supervisor
            supervisor.close()
        waiting: asyncio.Future[SupervisorLink] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._refill()
        try:
            async with asyncio.timeout(SUPERVISOR_SECONDS):
                return await waiting
        except TimeoutError as late:
            raise LauncherGone(f"no supervisor was ready within {SUPERVISOR_SECONDS:.0f} s") from late
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self.ready.appendleft(waiting.result())
            raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def refill_soon(self) -> None:
        """Make the next supervisor a moment later: that costs as much as the launch it replaces."""
        if self._refilling is None and not self._closed:
            self._refilling = asyncio.get_running_loop().call_later(REFILL_SECONDS, self._refill)

    def _refill(self) -> None:
        """Request as many supervisors as are missing."""
        if self._refilling is not None:
            self._refilling.cancel()
            self._refilling = None
        if self._control is None or self._closed:
            return
        coming = self._requested + len(self._greeting)
        missing = READY_SUPERVISORS + len(self._waiting) - len(self.ready) - coming
        if missing > 0:
            with contextlib.suppress(OSError):
                self._control.send(wire.WANT.pack(wire.WANT_TAG, missing), socket.MSG_NOSIGNAL)
                self._requested += missing

    def _on_message(self) -> None:
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
                self._add(pid, descriptors[0], descriptors[1])
            elif tag == wire.MADE_TAG:
                # This process may not open more descriptors. The supervisor ends because its sockets are gone.
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
                    # It closed its socket by ending, so the wait is short.
                    ending = asyncio.ensure_future(asyncio.to_thread(_wait_for_end, zygote))
                    self._ending.add(ending)
                    ending.add_done_callback(self._ending.discard)

    def _add(self, pid: int, control: int, orders: int) -> None:
        supervisor = SupervisorLink(pid, socket.socket(fileno=control), socket.socket(fileno=orders))
        supervisor.control.setblocking(False)
        supervisor.orders.setblocking(False)
        self._requested = max(self._requested - 1, 0)
        self._greeting[pid] = supervisor
        asyncio.get_running_loop().add_reader(control, self._on_greeting, supervisor)

    def _on_greeting(self, supervisor: SupervisorLink) -> None:
        asyncio.get_running_loop().remove_reader(supervisor.control.fileno())
        del self._greeting[supervisor.pid]
        if not supervisor.greet():
            supervisor.close()
            self._refill()
            return
        self._native = supervisor.native
        self._greeted.set()
        if (waiting := self._next_waiting()) is not None:
            waiting.set_result(supervisor)
        else:
            self.ready.append(supervisor)

    def _next_waiting(self) -> "asyncio.Future[SupervisorLink] | None":
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None

    def _refuse_one(self, number: int) -> None:
        self._requested = max(self._requested - 1, 0)
        if (waiting := self._next_waiting()) is not None:
            waiting.set_exception(
                LaunchFailed(
                    f"no process could be made: {os.strerror(number)}", stage=LaunchStage.RECEIVE.value, errno=number
                )
            )

    def _forget_zygote(self) -> "subprocess.Popen[bytes] | None":
        """Forget a zygote that has ended or will end. Supervisors notice that themselves and end their trees."""
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control.fileno())
            control.close()
        for supervisor in self._greeting.values():
            asyncio.get_running_loop().remove_reader(supervisor.control.fileno())
        for supervisor in (*self.ready, *self._greeting.values()):
            supervisor.close()
        self.ready.clear()
        self._greeting.clear()
        self._requested = 0
        if self._refilling is not None:
            self._refilling.cancel()
            self._refilling = None
        self._on_gone()
        # Wake the tasks that wait for the first greeting.
        self._native = False
        self._greeted.set()
        self._greeted = asyncio.Event()
        while (waiting := self._next_waiting()) is not None:
            waiting.set_exception(LauncherGone("the launcher process ended"))
        zygote, self._zygote = self._zygote, None
        return zygote


def _wait_for_end(zygote: "subprocess.Popen[bytes]") -> None:
    try:
        zygote.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        zygote.kill()
        zygote.wait()
