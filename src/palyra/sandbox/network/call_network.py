"""The life of one call's door: opened while the sandbox waits, served while its program runs, closed however it ends.

Who serves it is not known here. The daemon gives an implementation of ``NetworkListener``, which gets the sockets that
listen in the sandbox's network; this module sees to it that none of them outlives the call.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from palyra.errors import Unavailable
from palyra.sandbox import limits
from palyra.sandbox.domain.network import (
    ListenerKind,
    ListenerPlan,
    ListenerSeen,
    NetworkPlan,
    NetworkSeen,
    NetworkUsage,
    plan_network,
    used_line,
)
from palyra.sandbox.domain.profile import Layer, Receipt, SandboxProfile
from palyra.sandbox.network import socket_opener_main as helper
from palyra.sandbox.verify.readback import NotBuilt, Readback

# Has sockets opened in the network of a sandbox that waits. The daemon's side of ``namespace_socket_main``.


_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[3])
# Appended, so that nothing installed beside Palyra can take the place of a standard module.
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from palyra.sandbox.network.socket_opener_main import main; main(sys.argv[1:])"
)
_STAGES: Final = {
    helper.BAD_ORDER: "the order was not understood",
    helper.ENTER_USER: "the user namespace that owns its network could not be entered",
    helper.ENTER_NETWORK: "its network could not be entered",
    helper.OWN_NETWORK: "it has the host's own network",
    helper.BIND: "a port could not be opened",
}
_STOP_SECONDS: Final = 5.0
# From linux/sockios.h: the network that a socket is in, as a descriptor.
_SIOCGSKNS: Final = 0x894C
_SIOCGIFFLAGS: Final = 0x8913
_IFF_UP: Final = 0x1
_INTERFACE_REQUEST: Final = struct.Struct("16sH22x")


class SocketsNotOpened(Unavailable):
    """The sandbox's sockets could not be had, so its program must not start. ``stage`` and ``errno`` say why."""

    code = "sandbox.sockets_not_opened"
    hint = "try again; `palyra doctor` checks whether sandboxes can be entered on this machine"


class OpenedSocket:
    """One socket in the sandbox's network, and what it is for. For the transparent ones an accepted connection's own
    address (getsockname) is the one that the program asked for."""

    def __init__(self, plan: ListenerPlan, opened: socket.socket) -> None:
        self.plan = plan
        self.socket = opened

    @property
    def kind(self) -> ListenerKind:
        return self.plan.kind

    def seen(self) -> ListenerSeen:
        """What the kernel says of it."""
        opened = self.socket
        address, port = opened.getsockname()
        shared = opened.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) or opened.getsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEPORT
        )
        return ListenerSeen(
            plan=self.plan,
            address=address,
            port=port,
            listening=bool(opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)),
            shared=bool(shared),
            namespace=namespace_of(opened),
        )


class OpenedSockets:
    """The sockets of one sandbox, non-blocking. Any copy that stays open keeps the sandbox's network alive."""

    def __init__(self, opened: tuple[OpenedSocket, ...]) -> None:
        self._opened = opened

    def __iter__(self) -> Iterator[OpenedSocket]:
        return iter(self._opened)

    def of(self, kind: ListenerKind) -> tuple[socket.socket, ...]:
        return tuple(each.socket for each in self._opened if each.kind is kind)

    def seen(self) -> tuple[ListenerSeen, ...]:
        return tuple(each.seen() for each in self._opened)

    def loopback_up(self) -> bool:
        """Asked through one of the sockets: it answers for the network that it is in."""
        asked = _INTERFACE_REQUEST.pack(b"lo", 0)
        answer = fcntl.ioctl(self._opened[0].socket.fileno(), _SIOCGIFFLAGS, asked)
        return bool(_INTERFACE_REQUEST.unpack(answer)[1] & _IFF_UP)

    def close(self) -> None:
        for each in self._opened:
            each.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def look_at_network(sockets: OpenedSockets, waiting: Readback) -> NetworkSeen:
    """What is in the network of a sandbox that is complete and waits."""
    try:
        return NetworkSeen(listeners=sockets.seen(), loopback_up=sockets.loopback_up(), routes=waiting.routes())
    except OSError as error:
        raise NotBuilt(f"the sandbox's network could not be looked at: {error.strerror}") from error


def namespace_of(opened: socket.socket) -> int:
    """The number of the network namespace that a socket is in; needs power over that namespace."""
    found = fcntl.ioctl(opened.fileno(), _SIOCGSKNS)
    try:
        return os.fstat(found).st_ino
    finally:
        os.close(found)


class NamespaceSockets:
    """One per event loop. The helper process is started by the first order, and again when it was killed."""

    def __init__(self, *, ready: int = limits.READY_SOCKET_HELPERS, python: str = sys.executable) -> None:
        self._ready = ready
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(limits.MAX_SOCKET_ORDERS)
        self._closed = False

    @property
    def helper_pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Whoever waits for it may be cancelled; the start itself goes on, and serves the next."""
        if self._orders is None:
            await asyncio.shield(self.start_soon())

    def start_soon(self) -> "asyncio.Task[None]":
        if self._starting is None or (self._starting.done() and self._orders is None):
            self._starting = asyncio.create_task(self._start(), name="start of the sockets' helper")
            self._starting.add_done_callback(_look)
        return self._starting

    async def _start(self) -> None:
        if self._closed:
            raise SocketsNotOpened("the runner was closed")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = await asyncio.to_thread(self._start_helper, theirs.fileno())
            except OSError as problem:
                ours.close()
                raise SocketsNotOpened(f"the helper could not be started: {problem.strerror}") from problem
        ours.setblocking(False)
        self._orders = ours

    def _start_helper(self, orders: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [self._python, "-I", "-S", "-B", "-c", _PROGRAM, _PACKAGE_ROOT, str(orders), str(self._ready)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(orders,),
            env={},
            start_new_session=True,
        )

    async def close(self) -> None:
        self._closed = True
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._orders is not None:
            await self._forget(self._orders)

    async def _forget(self, orders: socket.socket) -> None:
        """Its processes end when they see the end of the orders. Of several who find it dead, one forgets it."""
        if orders is self._orders:
            process, self._process = self._process, None
            self._orders = None
            orders.close()
            if process is not None:
                await asyncio.to_thread(_wait_for_end, process)

    async def open(self, plan: NetworkPlan, network: int, owner: int) -> OpenedSockets:
        """The plan's sockets in the network that the descriptor names; ``owner`` is its user namespace's.

        The caller keeps and closes both descriptors.
        """
        async with self._turns:
            return await self._opened(plan, network, owner)

    async def _opened(self, plan: NetworkPlan, network: int, owner: int) -> OpenedSockets:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            ours.setblocking(False)
            with theirs:
                await self._order(order_of(plan), (network, owner, theirs.fileno()))
            await _readable(ours)
            return _received(plan, ours)

    async def _order(self, order: bytes, descriptors: tuple[int, ...]) -> None:
        for last in (False, True):
            await self.start()
            orders = self._orders
            if orders is None:
                raise SocketsNotOpened("the runner was closed")
            try:
                socket.send_fds(orders, [order], descriptors, socket.MSG_NOSIGNAL)
                return
            except OSError as problem:
                if last or problem.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                    raise SocketsNotOpened(f"the helper did not take the order: {problem.strerror}") from problem
                # It was killed since the last call.
                await self._forget(orders)


def order_of(plan: NetworkPlan) -> bytes:
    wanted = plan.listeners()
    return helper.ORDER.pack(helper.VERSION, len(wanted), limits.LISTENER_BACKLOG) + b"".join(
        helper.LISTENER.pack(helper.UDP if each.is_udp else helper.TCP, socket.inet_aton(each.address), each.port)
        for each in wanted
    )


async def _readable(ours: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def told() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(ours.fileno(), told)
    try:
        async with asyncio.timeout(limits.SOCKETS_OPEN_SECONDS):
            await readable
    except TimeoutError as late:
        raise SocketsNotOpened(f"no socket was opened within {limits.SOCKETS_OPEN_SECONDS:.0f} s") from late
    finally:
        loop.remove_reader(ours.fileno())


def _received(plan: NetworkPlan, ours: socket.socket) -> OpenedSockets:
    """Never awaits: a descriptor that was received is always in somebody's hands."""
    wanted = plan.listeners()
    try:
        answer, descriptors, _, _ = socket.recv_fds(ours, helper.ANSWER.size, len(wanted), socket.MSG_CMSG_CLOEXEC)
    except OSError as problem:
        raise SocketsNotOpened(f"the helper did not answer: {problem.strerror}") from problem
    opened = [socket.socket(fileno=each) for each in descriptors]
    try:
        if len(answer) != helper.ANSWER.size:
            raise SocketsNotOpened("the helper ended before it answered")
        _, stage, number = helper.ANSWER.unpack(answer)
        if stage != helper.OPENED:
            why = _STAGES.get(stage, "it could not be done") + (f": {os.strerror(number)}" if number else "")
            raise SocketsNotOpened(f"no socket could be opened in the sandbox: {why}", stage=stage, errno=number)
        if len(opened) != len(wanted):
            raise SocketsNotOpened(f"{len(opened)} sockets came back for {len(wanted)}")
        for each in opened:
            each.setblocking(False)
    except BaseException:
        for each in opened:
            each.close()
        raise
    return OpenedSockets(tuple(OpenedSocket(*pair) for pair in zip(wanted, opened, strict=True)))


def _look(started: "asyncio.Task[None]") -> None:
    """What went wrong is told to whoever wants sockets."""
    if not started.cancelled():
        started.exception()


def _wait_for_end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
        return
    process.kill()
    process.wait()


# The life of one call's network.


class ServedListener(Protocol):
    async def close(self) -> NetworkUsage:
        """Stops serving, cuts what is still connected, closes every accepted socket, and says what went through."""


class NetworkListener(Protocol):
    """Made for one call: it knows whose call it is and what that call may reach."""

    async def serve(self, sockets: OpenedSockets) -> ServedListener:
        """Serves the sockets from now on. Once this returns the program starts; if it raises, it never does."""


class SandboxNetwork:
    """The door of one call. Closing is always right: before it was opened, after it failed to, and twice."""

    def __init__(self, listener: NetworkListener | None, namespace_sockets: NamespaceSockets) -> None:
        self._listener = listener
        self._namespace_sockets = namespace_sockets
        self._sockets: OpenedSockets | None = None
        self._serving: asyncio.Task[ServedListener] | None = None

    @property
    def served(self) -> bool:
        return self._listener is not None

    def begin(self, profile: SandboxProfile) -> None:
        """Has the helper started while the sandbox is prepared, if there is none yet: it takes as long as that."""
        if self.served and profile.reaches_hosts:
            self._namespace_sockets.start_soon()

    async def open(self, profile: SandboxProfile, waiting: Readback) -> None:
        """Where the profile allows hosts: opens its sockets in the waiting sandbox and has them served."""
        plan = plan_network(profile)
        if plan is not None and self.served:
            with waiting.network() as (network, owner):
                opened = await self._namespace_sockets.open(plan, network, owner)
            await self.serve(opened)

    async def serve(self, sockets: OpenedSockets | None) -> None:
        """Has sockets served that listen in the sandbox already. They are closed with the door from now on."""
        self._sockets = sockets
        if self._listener is not None and sockets is not None:
            # Not cancelled half way, whoever waits for it: what has been opened is then there to be closed.
            self._serving = asyncio.create_task(self._listener.serve(sockets), name="a door is opened")
            await asyncio.shield(self._serving)

    def look(self, waiting: Readback) -> NetworkSeen | None:
        """What is there, once the sandbox is complete; for a thread. None where there is no door."""
        return None if self._sockets is None else look_at_network(self._sockets, waiting)

    async def close(self, receipt: Receipt) -> tuple[Receipt, NetworkUsage | None]:
        """The receipt with what went through, and that as a value. To be shielded by who may be cancelled."""
        sockets, self._sockets = self._sockets, None
        serving, self._serving = self._serving, None
        usage: NetworkUsage | None = None
        try:
            if serving is not None:
                async with asyncio.timeout(limits.LISTENER_CLOSE_SECONDS):
                    handle = await serving
                    usage = await handle.close()
        except Exception:
            # Whatever it was: its sockets are closed here, and the receipt says that it did not end as it should.
            usage = None
        finally:
            if sockets is not None:
                sockets.close()
        line = receipt.line(Layer.EGRESS)
        if serving is None or line is None:
            return receipt, usage
        return receipt.with_lines([used_line(line, usage)]), usage
