"""The daemon's end of one worker's socket, on the daemon's loop. Frames in and out; decides nothing.

A worker may have been taken over by its guest. What it sends is read strictly, it can queue no more than a few frames,
and descriptors it might send along are dropped by the kernel.
"""

import asyncio
import select
import socket
from collections import deque
from typing import Final

from palyra.wasm.wire import PACKET_BYTES, Assembler, BadFrame, FromWorker, ToWorker, packets, read_from_worker
from palyra.wasm.worker_source import Process

# A worker speaks when spoken to, and asks one question at a time.
_MAX_WAITING: Final = 4
_MAX_PACKETS_AT_ONCE: Final = 64


class LinkBroken(Exception):
    """The worker is gone or does not keep the protocol."""


class WorkerLink:
    def __init__(self, connection: socket.socket, process: Process) -> None:
        self._socket = connection
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._assembler = Assembler()
        self._frames: deque[FromWorker] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self.broken: str | None = None
        # Digests of modules that this worker has loaded, oldest use first.
        self.loaded: dict[bytes, None] = {}
        self.idle_since = 0.0
        # Whatever comes from the worker, also its end, and is not read yet.
        self._said = select.poll()
        self._said.register(connection, select.POLLIN)
        self._loop.add_reader(connection.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            for _ in range(_MAX_PACKETS_AT_ONCE):
                packet = self._socket.recv(PACKET_BYTES)
                if not packet:
                    self._break("the worker ended")
                    return
                whole = self._assembler.take(packet)
                if whole is not None:
                    self._frames.append(read_from_worker(whole))
                    if len(self._frames) > _MAX_WAITING:
                        raise BadFrame("too many frames")
                    break
        except BlockingIOError:
            return
        except OSError:
            self._break("the worker ended")
            return
        except BadFrame as problem:
            self.kill()
            self._break(str(problem))
            return
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done() and (self._frames or self.broken is not None):
            self._waiter.set_result(None)

    def _break(self, why: str) -> None:
        if self.broken is None:
            self.broken = why
            self._loop.remove_reader(self._socket.fileno())
            if self._writable is not None and not self._writable.done():
                self._writable.set_result(None)
        self._wake()

    async def receive(self) -> FromWorker:
        while not self._frames:
            if self.broken is not None:
                raise LinkBroken(self.broken)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._frames.popleft()

    async def send(self, frame: ToWorker, descriptors: tuple[int, ...] = ()) -> None:
        for packet in packets(frame):
            while not self._sent(packet, descriptors):
                await self._until_writable()
            descriptors = ()

    def _sent(self, packet: bytes, descriptors: tuple[int, ...]) -> bool:
        if self.broken is not None:
            raise LinkBroken(self.broken)
        try:
            if descriptors:
                socket.send_fds(self._socket, [packet], descriptors)
            else:
                self._socket.send(packet)
        except BlockingIOError:
            return False
        except OSError as problem:
            self._break("the worker ended")
            raise LinkBroken("the worker ended") from problem
        return True

    async def _until_writable(self) -> None:
        self._writable = self._loop.create_future()
        self._loop.add_writer(self._socket.fileno(), self._became_writable)
        try:
            await self._writable
        finally:
            self._loop.remove_writer(self._socket.fileno())
            self._writable = None

    def _became_writable(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def waits(self) -> bool:
        """Whether the worker is there and silent, as it should be before it is given work."""
        return self.broken is None and not self._frames and not self._said.poll(0)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Ends the worker: at once if it runs a guest, by itself if it waits."""
        self._process.kill()
        self._break("closed")
        self._process.close()
        self._socket.close()
