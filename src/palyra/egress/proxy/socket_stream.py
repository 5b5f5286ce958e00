"""A connected, non-blocking socket that a coroutine reads and writes, with no buffer of its own while it waits.

It asks the kernel first and waits for an event only when the kernel has nothing: most reads of a handshake never wait.
It uses no transport of the loop, so half-closing works on every loop and ten thousand idle ones cost little.
"""

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from palyra.egress.domain.grant import Meter
from palyra.egress.limits import EVENTS_PER_TURN, HANDSHAKE_READ_BYTES

# The loop's own add_reader and remove_reader cost more than the traffic of a short connection. This epoll registers a
# socket once, edge-triggered, and calls its handler without a trip through the loop's queue.

_READING: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_BOTH: Final = _READING | select.EPOLLOUT
ENDED: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
READABLE: Final = select.EPOLLIN | ENDED
WRITABLE: Final = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR


class Readiness:
    """Epoll of one event loop, inside the loop's own. An event is a hint: its handler tries, and waits for the next."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        # The loop holds this object and not the other way round, so that both can go together.
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def watch(self, descriptor: int, handler: Callable[[int], None], *, writing: bool) -> None:
        """Call ``handler`` with the events, also those that are ready already."""
        known = descriptor in self._handlers
        self._handlers[descriptor] = handler
        change = self._epoll.modify if known else self._epoll.register
        change(descriptor, _BOTH if writing else _READING)

    def forget(self, descriptor: int) -> None:
        """Drop the handler before the socket is closed. A late event for its number is only a hint."""
        self._handlers.pop(descriptor, None)

    def _dispatch(self) -> None:
        handlers = self._handlers
        for descriptor, events in self._epoll.poll(0, EVENTS_PER_TURN):
            handler = handlers.get(descriptor)
            if handler is not None:
                handler(events)


_known: "WeakKeyDictionary[asyncio.AbstractEventLoop, Readiness]" = WeakKeyDictionary()


def readiness_of(loop: asyncio.AbstractEventLoop) -> Readiness:
    found = _known.get(loop)
    if found is None:
        found = _known[loop] = Readiness(loop)
    return found


_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class SocketStream:
    """Stream over a non-blocking socket. ``meter`` counts written bytes as up: it belongs on the server's side.

    A relay sets ``on_readable`` and ``on_writable`` and reads ``sock`` itself; ``ended`` then means that the peer's end
    of the stream stands behind the unread bytes.
    """

    __slots__ = (
        "_kept",
        "_loop",
        "_readiness",
        "_watched",
        "_watched_writing",
        "ended",
        "fd",
        "meter",
        "on_readable",
        "on_writable",
        "sock",
    )

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        meter: Meter | None = None,
        readiness: Readiness | None = None,
    ) -> None:
        if sock.gettimeout() != 0:
            sock.setblocking(False)
        self.sock = sock
        self.fd = sock.fileno()
        self.meter = meter
        self.ended = False
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self._loop = loop
        self._readiness = readiness or readiness_of(loop)
        self._watched = False
        self._watched_writing = False
        self._kept = b""

    def unread(self, data: bytes) -> None:
        """Put bytes back in front of the next ones. They have been counted already."""
        self._kept = data + self._kept

    def take_kept(self) -> bytes:
        """Take the bytes that were put back, for a relay that reads the socket itself."""
        kept, self._kept = self._kept, b""
        return kept

    async def read(self, most: int = HANDSHAKE_READ_BYTES) -> bytes:
        """Return some bytes; none at the peer's end of the stream."""
        if self._kept:
            data, self._kept = self._kept[:most], self._kept[most:]
            return data
        meter = self.meter
        while True:
            # With nothing left, read one byte: it distinguishes the end of the stream from a budget that is too small.
            count = most if meter is None else max(1, min(most, meter.left()))
            try:
                data = self.sock.recv(count)
            except (BlockingIOError, InterruptedError):
                await self._readable()
                continue
            if meter is not None and data:
                if meter.left() <= 0:
                    raise meter.exceeded()
                meter.count_down(len(data))
            return data

    async def write(self, data: bytes | memoryview) -> None:
        if self.meter is not None:
            self.meter.spend_up(len(data))
        try:
            sent = self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == len(data):
            return
        rest = memoryview(data)[sent:]
        while rest:
            await self.writable()
            with contextlib.suppress(BlockingIOError, InterruptedError):
                rest = rest[self.sock.send(rest) :]

    def end_writing(self) -> None:
        # A peer that is gone already has no use for our end of the stream.
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def has_ended(self) -> bool:
        """Return whether the peer ended or broke the stream, or sent bytes that answer no request."""
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        if self._watched:
            self._watched = False
            self._readiness.forget(self.fd)
        self.sock.close()

    def reset(self) -> None:
        """Close with RST: unsent bytes are dropped, and the peer cannot take the end for a complete answer."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.close()

    def watch(self) -> bool:
        """Start events for reading. True if that is new: an event then comes at once for bytes already there."""
        if self._watched:
            return False
        self._watched = True
        self._readiness.watch(self.fd, self._on_events, writing=False)
        return True

    def watch_writing(self) -> None:
        if not self._watched_writing:
            self._watched = self._watched_writing = True
            self._readiness.watch(self.fd, self._on_events, writing=True)

    async def writable(self) -> None:
        waiter = self._loop.create_future()
        self.on_writable = partial(_wake, waiter)
        self.watch_writing()
        try:
            await waiter
        finally:
            self.on_writable = None

    async def _readable(self) -> None:
        waiter = self._loop.create_future()
        self.on_readable = partial(_wake, waiter)
        self.watch()
        try:
            await waiter
        finally:
            self.on_readable = None

    def _on_events(self, events: int) -> None:
        if events & READABLE:
            if events & ENDED:
                self.ended = True
            if self.on_readable is not None:
                self.on_readable()
        if events & WRITABLE and self.on_writable is not None:
            self.on_writable()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
