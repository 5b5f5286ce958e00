"""A sandbox that was built, looked at, and holds a process that waits for the program it is to become.

The process inside is ``native_start.s`` under the sandbox's own filter and limits. It takes one order, a list of system
calls that ends with exec: words, environment, directory and standard streams come as data and descriptors, never
through a shell. It serves one program. Closing the daemon's end of its socket, by dying too, ends it.
"""

import asyncio
import contextlib
import os
import platform
import re
import socket
import struct
from functools import cache
from typing import Final

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Facts
from palyra.sandbox.domain.launch_spec import LaunchFailed, LaunchSpec, LaunchStage
from palyra.sandbox.domain.network import plan_network
from palyra.sandbox.domain.plan import IMAGE_FD, ORDERS_FD, BubblewrapPlan
from palyra.sandbox.domain.profile import Receipt, refuse_unmet
from palyra.sandbox.launch.child import PACKET_BYTES, Child, failure_of, send_order
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.launch.start_plan import PRESENT, StartPlan, plan_announcement, plan_hiding, plan_start
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor.native_code import (
    SECOND_MESSAGE_ADDRESS,
    THIRD_MESSAGE_ADDRESS,
    image,
    write_image,
)
from palyra.sandbox.layers.bubblewrap import to_launch_spec
from palyra.sandbox.layers.cgroup import Group
from palyra.sandbox.network.call_network import NamespaceSockets, OpenedSockets, look_at_network
from palyra.sandbox.verify.evidence import environment_line, filter_line, receipt_lines
from palyra.sandbox.verify.readback import NotBuilt, Waiting
from palyra.workspace.openat2 import hold

_MACHINE: Final = platform.machine()
_CREDENTIALS: Final = struct.Struct("iII")
# What the process inside holds open while it waits.
_HELD: Final = frozenset({"0", "1", "2", str(ORDERS_FD)})
# Namespaces whose end takes the kernel long.
_HEAVY: Final = ("net", "ipc")
_PARENT: Final = re.compile(rb"^PPid:\t(\d+)$", re.MULTILINE)
_MAX_SAID_BYTES: Final = 4096
_READ_BYTES: Final = 65_536


@cache
def _image() -> int:
    """One file for every sandbox of this process. It can be read and executed, and written by nobody."""
    made = write_image(image(ORDERS_FD, readable=True))
    if made is None:
        raise NotBuilt("the process that waits inside cannot be made on this machine")
    return made


@cache
def _announcement() -> bytes:
    return plan_announcement(_MACHINE, orders=ORDERS_FD, message=SECOND_MESSAGE_ADDRESS, closed=(IMAGE_FD,))


@cache
def _hiding() -> bytes:
    return plan_hiding(_MACHINE, orders=ORDERS_FD, message=THIRD_MESSAGE_ADDRESS)


class Inside(Waiting):
    """What /proc says of the process that waits inside, and will be the program."""

    def __init__(self, pid: int) -> None:
        self._mounts = -1
        self._builders = -1
        self._namespaces: list[int] = []
        self._table = b""
        super().__init__({"child-pid": pid})

    def let_go(self) -> None:
        for descriptor in (self._mounts, self._builders, *self._namespaces):
            if descriptor >= 0:
                os.close(descriptor)
        self._mounts = self._builders = -1
        self._namespaces.clear()

    def hold(self) -> None:
        """Its network and its queues, which the kernel takes apart as soon as the last process has left them: work for
        several processors' turns, and its end is still to be told by then. So they are left to ``let_go``."""
        for name in _HEAVY:
            self._namespaces.append(os.open(f"ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc))

    def look(self, plan: BubblewrapPlan, sockets: OpenedSockets | None) -> Receipt:
        """Everything, the filter too: it is in force for the process that becomes the program."""
        try:
            self.hold()
            opened = set(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError as error:
            raise NotBuilt(f"the sandbox could not be looked at: {error.strerror}") from error
        if opened != _HELD:
            raise NotBuilt(f"the process in the sandbox holds other descriptors than it was given: {sorted(opened)}")
        seen = self.evidence(plan, None if sockets is None else look_at_network(sockets, self))
        in_force = filter_line(plan, seen.status.get("Seccomp", "unknown"), waits_inside=True)
        return Receipt.of((*receipt_lines(plan, seen), self.limit_processes(plan), in_force))

    def unchanged(self) -> bool:
        """Whether its table of mounts is, byte for byte, the one that was judged.

        A file that was replaced or moved on the host loses or moves the mount that lay on it, and one that is mounted
        keeps its inode's number from being given to another.
        """
        try:
            os.lseek(self._mounts, 0, os.SEEK_SET)
            return self._table_now() == self._table
        except OSError:
            return False

    def _mount_table(self) -> bytes:
        self._mounts = os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        self._table = self._table_now()
        return self._table

    def _table_now(self) -> bytes:
        return _content(self._mounts)

    def _builder_table(self, proc: int) -> bytes:
        """Kept open: the last to let go of those mounts waits for the kernel, and that shall not be bubblewrap."""
        self._builders = os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
        return _content(self._builders)

    def _builder(self, status: dict[str, str]) -> int:
        """The parent of the sandbox's first process, whose child this one is."""
        with hold(os.open(f"/proc/{int(status['PPid'])}/status", os.O_RDONLY | os.O_CLOEXEC)) as file:
            found = _PARENT.search(os.read(file, _READ_BYTES))
        if found is None:
            raise ValueError("the status of the sandbox's first process names no parent")
        return int(found[1])

    def _environment(self, status: dict[str, str]) -> bytes:
        """The launcher's own would show in the sandbox's first process; the program's comes with its words."""
        with hold(os.open(f"/proc/{int(status['PPid'])}/environ", os.O_RDONLY | os.O_CLOEXEC)) as file:
            return os.read(file, _READ_BYTES)


def _content(table: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(table, _READ_BYTES):
        parts.append(part)
    return b"".join(parts)


class ProgramOrder:
    """What a process that waits is to be told. Made while its sandbox is built, if it is; short, as nearly all are."""

    def __init__(self, program: LaunchSpec) -> None:
        self.program = program
        self._short = self._plan(in_memory_file=False)

    def planned(self, in_memory_file: bool) -> StartPlan:
        return self._plan(in_memory_file=True) if in_memory_file else self._short

    def _plan(self, *, in_memory_file: bool) -> StartPlan:
        return plan_start(
            self.program,
            machine=_MACHINE,
            landlock_abi=0,
            rlimits=(),
            orders=ORDERS_FD,
            in_memory_file=in_memory_file,
        )


class WaitingSandbox:
    """Made by ``build``. ``start`` may be called once; ``end`` in every case."""

    def __init__(self, plan: BubblewrapPlan, group: Group, child: Child, orders: socket.socket) -> None:
        self.plan = plan
        self.group = group
        self.child = child
        self.receipt = Receipt()
        # Where the profile allows hosts: they listen in its network, and nobody serves them before its call.
        self.sockets: OpenedSockets | None = None
        self._orders = orders
        self._inside: Inside | None = None
        self._order: StartPlan | None = None

    @property
    def waits(self) -> bool:
        """Whether it is still there and says nothing, as it should."""
        if self.child.ended:
            return False
        try:
            self._orders.recv(PACKET_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @property
    def inside_pid(self) -> int | None:
        """The process that waits, and is the program later."""
        return None if self._inside is None else self._inside.pid

    def serves(self, facts: Facts) -> bool:
        """Whether a sandbox that is built now, from these facts, would be no other. The facts are new."""
        same = facts == self.plan.facts
        return same and self.waits and self._inside is not None and self._inside.unchanged()

    async def open_sockets(self, pid: int, namespace_sockets: NamespaceSockets) -> None:
        """Opens those that its profile's door needs. Before it hides: afterwards nobody of the same user may enter."""
        self._inside = Inside(pid)
        door = plan_network(self.plan.profile)
        if door is not None:
            with self._inside.network() as (network, owner):
                self.sockets = await namespace_sockets.open(door, network, owner)

    def look(self) -> None:
        """Reads what was built and refuses unless every required layer held."""
        assert self._inside is not None
        self.receipt = self._inside.look(self.plan, self.sockets)
        seen = {line.layer for line in self.receipt.lines}
        refuse_unmet(self.receipt, self.plan.profile.required_layers & seen)

    def hide(self) -> None:
        """For one that will wait for some time: nobody of the same user reads or traces it from now on."""
        self._orders.send(_hiding(), socket.MSG_NOSIGNAL)

    async def present(self) -> int:
        """Waits until the process inside says that it is there. Returns its number, which the kernel vouches for."""
        try:
            async with asyncio.timeout(limits.READBACK_SECONDS):
                await _readable(self._orders)
        except TimeoutError as error:
            raise NotBuilt(f"bubblewrap built no sandbox within {limits.READBACK_SECONDS:.0f} s") from error
        try:
            said, ancillary, _, _ = self._orders.recvmsg(PACKET_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            said, ancillary = b"", []
        if said != PRESENT or not ancillary:
            raise NotBuilt("bubblewrap ended before the sandbox was built")
        self._orders.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        self.child.confirmed()
        pid, _, _ = _CREDENTIALS.unpack(ancillary[0][2][: _CREDENTIALS.size])
        return int(pid)

    def start(self, order: "ProgramOrder", streams: tuple[int, int, int]) -> Receipt:
        """Tells it which program to become, and returns the receipt. Whether it could is told by ``started``."""
        try:
            self._order = send_order(self._orders, order.program, order.planned, streams)
        except OSError as problem:
            raise LaunchFailed(
                f"the program could not be handed over: {problem.strerror}",
                stage=LaunchStage.RECEIVE.value,
                errno=problem.errno or 0,
            ) from problem
        return self.receipt.with_lines([environment_line(len(order.program.env), 0)])

    async def started(self) -> None:
        """Returns once the program itself runs; raises ``sandbox.launch_failed`` where it could not be executed."""
        await _readable(self._orders)
        self.refuse_failed()

    def refuse_failed(self) -> None:
        """The same, for when it has ended."""
        try:
            answer = self._orders.recv(PACKET_BYTES)
        except OSError:
            return
        if answer and self._order is not None:
            index, number = wire.FAILED.unpack(answer)
            raise failure_of(self._order.steps[index], number)

    def close_sockets(self) -> None:
        """Those that its door served. All else that is held of it reaches nobody any more, and to give it up takes the
        kernel a while."""
        if self.sockets is not None:
            self.sockets.close()

    def let_go(self) -> None:
        """Closes everything. For a thread, if the program has run."""
        self._orders.close()
        self.close_sockets()
        if self._inside is not None:
            self._inside.close()
            self._inside.let_go()

    async def end(self) -> None:
        """Ends it and everything in it."""
        with contextlib.suppress(Exception):
            await self.child.kill()
        self.let_go()


class BegunSandbox:
    """One that bubblewrap is about to build, or builds. Made by ``begin``; ``built`` or ``end`` must follow, once."""

    def __init__(self, sandbox: WaitingSandbox, said: int) -> None:
        self._sandbox = sandbox
        self._said = said

    async def built(self, namespace_sockets: NamespaceSockets) -> WaitingSandbox:
        """Returns when the sandbox is complete, was looked at, and waits."""
        sandbox = self._sandbox
        with hold(self._said) as said:
            try:
                await sandbox.open_sockets(await sandbox.present(), namespace_sockets)
                sandbox.look()
            except BaseException as error:
                await asyncio.shield(sandbox.end())
                if isinstance(error, NotBuilt):
                    if sandbox.child.failure is not None:
                        raise sandbox.child.failure from error
                    with contextlib.suppress(BlockingIOError):
                        error.details["said"] = os.read(said, _MAX_SAID_BYTES).decode("utf-8", "replace").strip()
                raise
        return sandbox

    async def end(self) -> None:
        with hold(self._said):
            await self._sandbox.end()


async def begin(launcher: Launcher, plan: BubblewrapPlan, group: Group) -> BegunSandbox:
    """Starts bubblewrap. With a keeper ready it has been told when this returns, and nothing was waited for."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    ours.send(_announcement(), socket.MSG_NOSIGNAL)
    # After sending: the kernel gives a socket that sends with this set a name of its own.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    said, saying = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        with theirs, hold(saying), hold(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) as nothing:
            spec = to_launch_spec(plan, cgroup=group.entry)
            given = (theirs.fileno(), _image())
            child = await launcher.launch(spec, stdin=nothing, stdout=saying, stderr=saying, fds=given, confirm=False)
    except BaseException:
        ours.close()
        os.close(said)
        raise
    return BegunSandbox(WaitingSandbox(plan, group, child, ours), said)


async def build(
    launcher: Launcher, plan: BubblewrapPlan, group: Group, namespace_sockets: NamespaceSockets
) -> WaitingSandbox:
    """Starts bubblewrap and returns when its sandbox is complete, was looked at, and waits."""
    return await (await begin(launcher, plan, group)).built(namespace_sockets)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def heard() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection.fileno(), heard)
    try:
        await ready
    finally:
        loop.remove_reader(connection.fileno())
