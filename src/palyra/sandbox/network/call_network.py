"""The network of one call: sockets opened in its waiting sandbox, served while its program runs, and closed.

A helper process opens the sockets (``socket_opener_main``). The daemon gives an implementation of ``NetworkListener``
that serves them. This module closes them however the call ends.
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
from typing import Final, Protocol

from palyra.errors import Unavailable
from palyra.sandbox import limits
from palyra.sandbox.domain.network import (
    ListenerKind,
    ListenerPlan,
    ListenerSeen,
    NetworkPlan,
    NetworkSeen,
    NetworkUsage,
    complete_line,
    plan_network,
)
from palyra.sandbox.domain.profile import Layer, Receipt, SandboxProfile
from palyra.sandbox.network import socket_opener_main as helper
from palyra.sandbox.verify.readback import NotBuilt, Readback

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
    """The sandbox's sockets could not be opened, so its program must not start. ``stage`` and ``errno`` tell why."""

    code = "sandbox.sockets_not_opened"
    hint = "try again; `palyra doctor` checks whether sandboxes can be entered on this machine"


class OpenedSocket:
    """One socket in the sandbox's network, and its plan.

    On a transparent one the own address of an accepted connection (getsockname) is the one that the program dialled.
    """

    def __init__(self, plan: ListenerPlan, opened: socket.socket) -> None:
        self.plan = plan
        self.socket = opened

    @property
    def kind(self) -> ListenerKind:
        return self.plan.kind

    def seen(self) -> ListenerSeen:
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
            namespace=read_namespace(opened),
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
        """Ask through one of the sockets, which answers for its own network."""
        request = _INTERFACE_REQUEST.pack(b"lo", 0)
        answer = fcntl.ioctl(self._opened[0].socket.fileno(), _SIOCGIFFLAGS, request)
        return bool(_INTERFACE_REQUEST.unpack(answer)[1] & _IFF_UP)

    def close(self) -> None:
        for each in self._opened:
            each.socket.close()


def look_at_network(sockets: OpenedSockets, waiting: Readback) -> NetworkSeen:
    try:
        return NetworkSeen(listeners=sockets.seen(), loopback_up=sockets.loopback_up(), routes=waiting.routes())
    except OSError as error:
        raise NotBuilt(f"the sandbox's network could not be looked at: {error.strerror}") from error


def read_namespace(opened: socket.socket) -> int:
    """Return the number of a socket's network namespace. The kernel answers only an administrator of it."""
    found = fcntl.ioctl(opened.fileno(), _SIOCGSKNS)
    try:
        return os.fstat(found).st_ino
    finally:
        os.close(found)


class NamespaceSockets:
    """One per event loop. The first order starts the helper process, and the next one after it was killed."""

    def __init__(self, *, ready: int = limits.READY_SOCKET_HELPERS, python: str = sys.executable) -> None:
        self._ready = ready
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(limits.MAX_SOCKET_ORDERS)
        self._closed = False

    async def start(self) -> None:
        """Wait until the helper is started. Its start goes on if the caller is cancelled."""
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
        """Give up a helper, once. Its processes end when they see the end of the orders."""
        if orders is self._orders:
            process, self._process = self._process, None
            self._orders = None
            orders.close()
            if process is not None:
                await asyncio.to_thread(_wait_for_end, process)

    async def open(self, plan: NetworkPlan, network: int, owner: int) -> OpenedSockets:
        """Open the plan's sockets in a network; ``owner`` is its user namespace. The caller closes both descriptors."""
        async with self._turns:
            return await self._opened(plan, network, owner)

    async def _opened(self, plan: NetworkPlan, network: int, owner: int) -> OpenedSockets:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            ours.setblocking(False)
            with theirs:
                await self._order(encode_order(plan), (network, owner, theirs.fileno()))
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


def encode_order(plan: NetworkPlan) -> bytes:
    wanted = plan.listeners()
    return helper.ORDER.pack(helper.VERSION, len(wanted), limits.LISTENER_BACKLOG) + b"".join(
        helper.LISTENER.pack(helper.UDP if each.is_udp else helper.TCP, socket.inet_aton(each.address), each.port)
        for each in wanted
    )


async def _readable(ours: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(ours.fileno(), on_readable)
    try:
        async with asyncio.timeout(limits.SOCKETS_OPEN_SECONDS):
            await readable
    except TimeoutError as late:
        raise SocketsNotOpened(f"no socket was opened within {limits.SOCKETS_OPEN_SECONDS:.0f} s") from late
    finally:
        loop.remove_reader(ours.fileno())


def _received(plan: NetworkPlan, ours: socket.socket) -> OpenedSockets:
    """Receive the answer. Without an await in between no received descriptor is lost."""
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
    """Retrieve the exception so asyncio does not log it: each order raises it again."""
    if not started.cancelled():
        started.exception()


def _wait_for_end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
        return
    process.kill()
    process.wait()


class ServedListener(Protocol):
    async def close(self) -> NetworkUsage:
        """Stop serving, cut open connections, close every accepted socket, and report the traffic."""


class NetworkListener(Protocol):
    """The egress listener of one call, with that call's authority."""

    async def serve(self, sockets: OpenedSockets) -> ServedListener:
        """Serve the sockets from now on. Once this returns the program starts; if it raises, it never does."""


class SandboxNetwork:
    """The network of one call. It may be closed at any time: before it was opened, after that failed, and twice."""

    def __init__(self, listener: NetworkListener | None, namespace_sockets: NamespaceSockets) -> None:
        self._listener = listener
        self._namespace_sockets = namespace_sockets
        self._sockets: OpenedSockets | None = None
        self._serving: asyncio.Task[ServedListener] | None = None

    @property
    def served(self) -> bool:
        return self._listener is not None

    def begin(self, profile: SandboxProfile) -> None:
        """Start the helper, which takes as long as the preparation of the sandbox."""
        if self.served and profile.reaches_hosts:
            self._namespace_sockets.start_soon()

    async def open(self, profile: SandboxProfile, waiting: Readback) -> None:
        """Open the sockets of a profile that allows hosts in the waiting sandbox, and serve them."""
        if self.served and profile.reaches_hosts:
            with waiting.network() as (network, owner):
                opened = await self._namespace_sockets.open(plan_network(profile), network, owner)
            await self.serve(opened)

    async def serve(self, sockets: OpenedSockets | None) -> None:
        """Serve sockets that listen in the sandbox already. They are closed with this network from now on."""
        self._sockets = sockets
        if self._listener is not None and sockets is not None:
            # A cancelled caller does not cancel the start: ``close`` then ends the started listener.
            self._serving = asyncio.create_task(self._listener.serve(sockets), name="start of a call's listener")
            await asyncio.shield(self._serving)

    def look(self, waiting: Readback) -> NetworkSeen | None:
        """Read the network of a complete sandbox, on a thread. None without sockets."""
        return None if self._sockets is None else look_at_network(self._sockets, waiting)

    async def close(self, receipt: Receipt) -> tuple[Receipt, NetworkUsage | None]:
        """Close the network, and return the completed receipt and the traffic. The caller shields this."""
        sockets, self._sockets = self._sockets, None
        serving, self._serving = self._serving, None
        usage: NetworkUsage | None = None
        try:
            if serving is not None:
                async with asyncio.timeout(limits.LISTENER_CLOSE_SECONDS):
                    handle = await serving
                    usage = await handle.close()
        except Exception:
            # Its sockets are closed here, and the receipt states that the listener did not close.
            usage = None
        finally:
            if sockets is not None:
                sockets.close()
        line = receipt.line(Layer.EGRESS)
        if serving is None or line is None:
            return receipt, usage
        return receipt.with_lines([complete_line(line, usage)]), usage
