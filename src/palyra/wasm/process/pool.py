"""The daemon's end of each worker's socket, and the pool of workers, on the daemon's loop.

A worker may have been taken over by its guest. Its frames are read strictly, it can queue no more than a few of them,
and the kernel drops descriptors that it might send along.
"""

import asyncio
import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Iterator
from typing import Final

from palyra.wasm.domain.frames import (
    PACKET_BYTES,
    VERSION,
    Assembler,
    BadFrame,
    FromGuestProcess,
    Ready,
    ToGuestProcess,
    packets,
    read_from_guest_process,
)
from palyra.wasm.domain.limits import PoolSettings
from palyra.wasm.domain.outcome import Quota
from palyra.wasm.process.fork_server import WORKER, Process, WorkerSource, WorkersUnavailable

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
        self._frames: deque[FromGuestProcess] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self.broken: str | None = None
        # Digests of modules that this worker has loaded, oldest use first.
        self.loaded: dict[bytes, None] = {}
        self.idle_since = 0.0
        # Readable when the worker sent a frame that is not read yet, or ended.
        self._unread = select.poll()
        self._unread.register(connection, select.POLLIN)
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
                    self._frames.append(read_from_guest_process(whole))
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

    async def receive(self) -> FromGuestProcess:
        while not self._frames:
            if self.broken is not None:
                raise LinkBroken(self.broken)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._frames.popleft()

    async def send(self, frame: ToGuestProcess, descriptors: tuple[int, ...] = ()) -> None:
        for packet in packets(frame):
            while not self._try_send(packet, descriptors):
                await self._until_writable()
            descriptors = ()

    def _try_send(self, packet: bytes, descriptors: tuple[int, ...]) -> bool:
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
        """Tell whether the worker is connected and silent, as it has to be before it gets work."""
        return self.broken is None and not self._frames and not self._unread.poll(0)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the worker: at once if it runs a guest, by itself if it waits."""
        self._process.kill()
        self._break("closed")
        self._process.close()
        self._socket.close()


_READY_SECONDS: Final = 60.0
# After trouble with starting workers, before the next try.
_RETRY_SECONDS: Final = 1.0


class WorkerPool:
    """Keeps a few workers ready, and more when guests wait for the outside, up to the number of instances allowed.

    A place is a right to have a guest running. Calls wait for one in order; one that waits too long gets
    ``wasm.quota``. A guest that waits for the outside keeps its worker but lets another compute.
    """

    def __init__(self, source: WorkerSource, settings: PoolSettings, max_instances: int) -> None:
        self._source = source
        self._settings = settings
        self._max_instances = max(1, max_instances)
        self._computing_most = settings.computing or 2 * (os.cpu_count() or 1)
        self._idle: list[WorkerLink] = []
        self._busy = 0
        self._parked = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._attention = asyncio.Event()
        self._upkeep: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        # The name of the engine that workers run, once one has said it.
        self.engine = ""

    @property
    def busy(self) -> int:
        """Places in use: guests that run or wait for the outside."""
        return self._busy

    @property
    def started(self) -> bool:
        return self._upkeep is not None

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def start(self) -> None:
        """Return when the first worker is ready."""
        if self._upkeep is not None:
            return
        async with self._starting:
            if self._upkeep is None:
                self._idle.append(await self._make())
                self._upkeep = asyncio.create_task(self._keep(), name="palyra-wasm-pool")

    async def close(self) -> None:
        """End the idle workers. A call that uses or makes a worker ends it itself."""
        self._closed = True
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
            self._upkeep = None
        while self._idle:
            self._idle.pop().close()

    async def _make(self) -> WorkerLink:
        link = await self._greet()
        if self._closed:
            link.close()
            raise WorkersUnavailable("the runtime was closed")
        return link

    async def _greet(self) -> WorkerLink:
        connection, process = await self._source.make(WORKER)
        link = WorkerLink(connection, process)
        try:
            async with asyncio.timeout(_READY_SECONDS):
                hello = await link.receive()
            if not isinstance(hello, Ready) or hello.version != VERSION:
                raise LinkBroken("it did not greet")
            if self.engine and hello.engine != self.engine:
                raise LinkBroken("it has another engine")
        except (LinkBroken, TimeoutError) as problem:
            link.close()
            raise WorkersUnavailable(f"a worker process did not get ready: {problem}") from problem
        except BaseException:
            link.close()
            raise
        self.engine = hello.engine
        return link

    async def _keep(self) -> None:
        """Keep the wanted number ready, and end spare workers that were idle for a while."""
        while True:
            pause = self._settings.idle_seconds
            self._attention.clear()
            now = asyncio.get_running_loop().time()
            spare = [link for link in self._idle if link.broken is not None]
            old = [link for link in self._idle if now - link.idle_since > self._settings.idle_seconds]
            spare += old[: max(0, len(self._idle) - self._settings.ready)]
            for link in dict.fromkeys(spare):
                self._idle.remove(link)
                link.close()
            while len(self._idle) + self._busy < self._settings.ready:
                try:
                    self._idle.append(await self._make())
                except WorkersUnavailable:
                    pause = _RETRY_SECONDS
                    break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._attention.wait()

    def _has_place(self) -> bool:
        return self._busy < self._max_instances and self._busy - self._parked < self._computing_most

    def _admit(self) -> None:
        while self._waiting and self._has_place():
            waiting = self._waiting.popleft()
            if not waiting.done():
                self._busy += 1
                waiting.set_result(None)

    async def _wait_for_place(self, wait_seconds: float) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(wait_seconds):
                await waiting
        except BaseException as problem:
            if waiting.done() and not waiting.cancelled():
                self._give_back()
            if isinstance(problem, TimeoutError):
                raise Quota(f"no place for a guest within {wait_seconds:g} seconds", running=self._busy) from None
            raise

    def _give_back(self) -> None:
        self._busy -= 1
        self._admit()

    async def take(self, digest: bytes, wait_seconds: float) -> WorkerLink:
        """Return a worker for one guest, if possible one that has the module loaded.

        The caller gives it to ``release`` or ``discard``.
        """
        if not self._waiting and self._has_place():
            self._busy += 1
        else:
            await self._wait_for_place(wait_seconds)
        try:
            return self._pick(digest) or await self._make()
        except BaseException:
            self._give_back()
            raise

    def _pick(self, digest: bytes) -> WorkerLink | None:
        while self._idle:
            found = next((link for link in reversed(self._idle) if digest in link.loaded), self._idle[-1])
            self._idle.remove(found)
            if found.waits():
                return found
            found.close()
        return None

    def release(self, link: WorkerLink) -> None:
        """Take back a healthy worker for the next guest."""
        if self._closed:
            self.discard(link)
            return
        link.idle_since = asyncio.get_running_loop().time()
        self._idle.append(link)
        self._give_back()

    def discard(self, link: WorkerLink) -> None:
        """End the worker, whatever it does. Another is started when one is needed."""
        link.close()
        self._give_back()
        self._attention.set()

    @contextlib.contextmanager
    def park(self) -> Iterator[None]:
        """Let another guest compute while one waits for the outside."""
        self._parked += 1
        self._admit()
        try:
            yield
        finally:
            self._parked -= 1
