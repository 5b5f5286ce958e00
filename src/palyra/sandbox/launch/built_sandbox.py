"""A sandbox that was built and read back, with a process inside that waits to become the program.

The process is ``native_start.s`` under the sandbox's own filter and limits. It takes one order, a list of system calls
that ends with exec: words, environment, directory and standard streams come as data and descriptors, never through a
shell. It serves one program. Closing the daemon's end of its socket, also by dying, ends it.

Where no such process can wait (another processor, a kernel that executes no memory files), ``gated_sandbox`` serves.
"""

import asyncio
import contextlib
import os
import platform
import re
import socket
import struct
import threading
from functools import cache, lru_cache
from typing import Final

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Facts
from palyra.sandbox.domain.launch_spec import LaunchSpec, SupervisorLost
from palyra.sandbox.domain.network import plan_network
from palyra.sandbox.domain.plan import IMAGE_FD, ORDERS_FD, WAITS_INSIDE, BubblewrapPlan, plan_isolated
from palyra.sandbox.domain.profile import LAYERS_OF_RUNNER, Receipt, SandboxProfile, refuse_unmet
from palyra.sandbox.launch.launcher import Child, Launcher, failed_handover, send_order
from palyra.sandbox.launch.start_plan import PRESENT, StartPlan, plan_announcement, plan_hiding, plan_start
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor.native_code import (
    SECOND_MESSAGE_ADDRESS,
    THIRD_MESSAGE_ADDRESS,
    image,
    write_image,
)
from palyra.sandbox.launch.supervisor_pool import PACKET_BYTES, failure_of, is_silent
from palyra.sandbox.layers.bubblewrap import to_launch_spec
from palyra.sandbox.layers.cgroup import Group
from palyra.sandbox.network.call_network import NamespaceSockets, OpenedSockets, look_at_network
from palyra.sandbox.verify.evidence import environment_line, filter_line, receipt_lines
from palyra.sandbox.verify.readback import NotBuilt, Readback, read_all
from palyra.workspace.root import hold

_MACHINE: Final = platform.machine()
_CREDENTIALS: Final = struct.Struct("iII")
# The descriptors that the process inside holds open while it waits.
_HELD: Final = frozenset({"0", "1", "2", str(ORDERS_FD)})
_PARENT: Final = re.compile(rb"^PPid:\t(\d+)$", re.MULTILINE)
_MAX_STDERR_BYTES: Final = 4096
_READ_BYTES: Final = 65_536


@cache
def _image() -> int:
    """Return one file for all sandboxes of this process. It can be read and executed, and never written."""
    made = write_image(image(ORDERS_FD, readable=True))
    if made is None:
        raise NotBuilt("the process that waits inside cannot be made on this machine")
    return made


@cache
def _announcement() -> bytes:
    return plan_announcement(_MACHINE, orders=ORDERS_FD, message=SECOND_MESSAGE_ADDRESS, closed=(IMAGE_FD,))


@lru_cache(maxsize=64)
def _plan_sandbox(profile: SandboxProfile, facts: Facts, memory_is_counted: bool) -> BubblewrapPlan:
    return plan_isolated(profile, WAITS_INSIDE, facts, memory_is_counted=memory_is_counted)


class _InsideReadback(Readback):
    """Reads /proc of the process that waits inside, and will be the program."""

    def __init__(self, pid: int) -> None:
        self._mounts = -1
        self._table = b""
        super().__init__({"child-pid": pid})

    def close(self) -> None:
        super().close()
        if self._mounts >= 0:
            os.close(self._mounts)
            self._mounts = -1

    def check(self, plan: BubblewrapPlan, sockets: OpenedSockets | None) -> Receipt:
        """Read every layer. The filter is in force already for the process that becomes the program."""
        try:
            opened = set(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError as error:
            raise NotBuilt(f"the sandbox could not be looked at: {error.strerror}") from error
        if opened != _HELD:
            raise NotBuilt(f"the process in the sandbox holds other descriptors than it was given: {sorted(opened)}")
        seen = self.evidence(plan, None if sockets is None else look_at_network(sockets, self))
        in_force = filter_line(plan, seen.status.get("Seccomp", "unknown"), waits_inside=True)
        return Receipt.of((*receipt_lines(plan, seen), self.limit_processes(plan), in_force))

    def unchanged(self) -> bool:
        """Return whether its table of mounts is, byte for byte, the one that was judged.

        A file that was replaced or moved on the host loses or moves the mount on it. A mounted file keeps its inode's
        number from being given to another.
        """
        try:
            os.lseek(self._mounts, 0, os.SEEK_SET)
            return read_all(self._mounts) == self._table
        except (OSError, ValueError):
            return False

    def _mount_table(self) -> bytes:
        """Keep the table open: a hidden process lets nobody open it again."""
        self._mounts = os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        self._table = read_all(self._mounts)
        return self._table

    def _builder(self, status: dict[str, str]) -> int:
        """Return the parent of the sandbox's first process, whose child this one is."""
        with hold(os.open(f"/proc/{int(status['PPid'])}/status", os.O_RDONLY | os.O_CLOEXEC)) as file:
            found = _PARENT.search(os.read(file, _READ_BYTES))
        if found is None:
            raise ValueError("the status of the sandbox's first process names no parent")
        return int(found[1])

    def _environment(self, status: dict[str, str]) -> bytes:
        """Read the environment of the sandbox's first process: the launcher's own would show there."""
        with hold(os.open(f"/proc/{int(status['PPid'])}/environ", os.O_RDONLY | os.O_CLOEXEC)) as file:
            return os.read(file, _READ_BYTES)


class PrewarmedSandbox:
    """Made by ``build``. ``start`` may be called once; ``end`` in every case, or ``close`` after the program."""

    def __init__(self, plan: BubblewrapPlan, group: Group, child: Child, orders: socket.socket) -> None:
        self.plan = plan
        self.group = group
        self.child = child
        self.receipt = Receipt()
        # For a profile that allows hosts: they listen in its network, and are served from its call on.
        self.sockets: OpenedSockets | None = None
        self._orders = orders
        self._inside: _InsideReadback | None = None
        self._closing = threading.Lock()

    @property
    def waits(self) -> bool:
        """Whether it is alive and silent, as expected."""
        return not self.child.ended and is_silent(self._orders)

    @property
    def inside_pid(self) -> int | None:
        """The process that waits, and is the program later."""
        return None if self._inside is None else self._inside.pid

    def serves(self, facts: Facts) -> bool:
        """Return whether a sandbox built now, from these new facts, would be the same."""
        same = facts == self.plan.facts
        return same and self.waits and self._inside is not None and self._inside.unchanged()

    async def complete(self, namespace_sockets: NamespaceSockets) -> None:
        """Wait until it is built, open its network's sockets, and refuse it unless every required layer holds."""
        inside = self._inside = _InsideReadback(await self._wait_for_announcement())
        if self.plan.profile.reaches_hosts:
            # Before it hides: afterwards no process of the same user may enter.
            with inside.network() as (network, owner):
                self.sockets = await namespace_sockets.open(plan_network(self.plan.profile), network, owner)
        self.receipt = inside.check(self.plan, self.sockets)
        refuse_unmet(self.receipt, self.plan.profile.required_layers - LAYERS_OF_RUNNER)

    async def _wait_for_announcement(self) -> int:
        """Return the number of the process inside, which the kernel attests, once it has announced itself."""
        try:
            async with asyncio.timeout(limits.READBACK_SECONDS):
                await _wait_readable(self._orders)
        except TimeoutError as error:
            raise NotBuilt(f"bubblewrap built no sandbox within {limits.READBACK_SECONDS:.0f} s") from error
        try:
            message, ancillary, _, _ = self._orders.recvmsg(PACKET_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            message, ancillary = b"", []
        if message != PRESENT or not ancillary:
            raise NotBuilt("bubblewrap ended before the sandbox was built")
        self._orders.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        pid, _, _ = _CREDENTIALS.unpack(ancillary[0][2][: _CREDENTIALS.size])
        return int(pid)

    def hide(self) -> None:
        """Hide one that will wait for some time: no process of the same user can read or trace it from now on."""
        order = plan_hiding(_MACHINE, orders=ORDERS_FD, message=THIRD_MESSAGE_ADDRESS)
        self._orders.send(order, socket.MSG_NOSIGNAL)

    async def start(self, program: LaunchSpec, streams: tuple[int, int, int]) -> Receipt:
        """Make it the program, and return the receipt once the program runs.

        Raises ``sandbox.launch_failed`` if the program cannot be executed.
        """

        def plan(in_memory_file: bool) -> StartPlan:
            return plan_start(
                program,
                machine=_MACHINE,
                landlock_abi=0,
                rlimits=(),
                orders=ORDERS_FD,
                in_memory_file=in_memory_file,
            )

        try:
            order = send_order(self._orders, program, plan, streams)
        except OSError as problem:
            raise failed_handover(problem) from problem
        # Exec closes the other end of the socket. A failure arrives before that.
        await _wait_readable(self._orders)
        try:
            answer = self._orders.recv(PACKET_BYTES)
        except OSError:
            answer = b""
        if answer:
            index, number = wire.FAILED.unpack(answer)
            raise failure_of(order.steps[index], number)
        return self.receipt.with_lines([environment_line(len(program.env), 0)])

    def close(self) -> None:
        """Close everything, in a thread: the kernel takes a while to take the mounts apart."""
        with self._closing:
            self._orders.close()
            if self.sockets is not None:
                self.sockets.close()
            if self._inside is not None:
                self._inside.close()

    async def end(self) -> None:
        """End it and everything in it."""
        with contextlib.suppress(SupervisorLost):
            await self.child.kill()
        await asyncio.to_thread(self.close)


async def build(
    launcher: Launcher, profile: SandboxProfile, facts: Facts, group: Group, namespace_sockets: NamespaceSockets
) -> PrewarmedSandbox:
    """Start bubblewrap and return when its sandbox is complete, was read back, and waits."""
    return await build_planned(launcher, _plan_sandbox(profile, facts, group.limits_memory), group, namespace_sockets)


async def build_planned(
    launcher: Launcher, plan: BubblewrapPlan, group: Group, namespace_sockets: NamespaceSockets
) -> PrewarmedSandbox:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    ours.send(_announcement(), socket.MSG_NOSIGNAL)
    # After sending: the kernel gives a socket that sends with this set a name of its own.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    with hold(reading) as stderr:
        try:
            with theirs, hold(writing), hold(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) as nothing:
                spec = to_launch_spec(plan, cgroup=group.entry)
                given = (theirs.fileno(), _image())
                child = await launcher.launch(spec, stdin=nothing, stdout=writing, stderr=writing, fds=given)
        except BaseException:
            ours.close()
            raise
        sandbox = PrewarmedSandbox(plan, group, child, ours)
        try:
            await sandbox.complete(namespace_sockets)
        except BaseException as error:
            await asyncio.shield(sandbox.end())
            if isinstance(error, NotBuilt):
                with contextlib.suppress(BlockingIOError):
                    error.details["said"] = os.read(stderr, _MAX_STDERR_BYTES).decode("utf-8", "replace").strip()
            raise
    return sandbox


async def _wait_readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection.fileno(), set_ready)
    try:
        await ready
    finally:
        loop.remove_reader(connection.fileno())
