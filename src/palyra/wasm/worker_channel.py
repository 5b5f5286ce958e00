"""A worker's end of its socket: whole frames in and out, blocking."""

import array
import mmap
import os
import select
import socket

from palyra.wasm.wire import PACKET_BYTES, Assembler, FromWorker, ToWorker, packets, read_to_worker

_MAX_DESCRIPTORS = 2
_ANCILLARY_BYTES = socket.CMSG_LEN(_MAX_DESCRIPTORS * array.array("i").itemsize)


class DaemonGone(Exception):
    """There is nobody left to work for."""


class WorkerChannel:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        # A time-out of the socket itself would need a system call that a confined worker does not have.
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._assembler = Assembler()
        # Descriptors that came with the frame last received.
        self.descriptors: list[int] = []

    def send(self, frame: FromWorker) -> None:
        try:
            for packet in packets(frame):
                self._socket.send(packet)
        except OSError as problem:
            raise DaemonGone from problem

    def receive(self, timeout: float | None = None) -> ToWorker | None:
        """The next frame, or None when there was none in time."""
        try:
            while True:
                if timeout is not None and not self._poll.poll(timeout * 1_000):
                    return None
                packet, beside, _, _ = self._socket.recvmsg(PACKET_BYTES, _ANCILLARY_BYTES)
                if not packet:
                    raise DaemonGone
                for _, _, data in beside:
                    self.descriptors += array.array("i", data)
                whole = self._assembler.take(packet)
                if whole is not None:
                    return read_to_worker(whole)
        except OSError as problem:
            raise DaemonGone from problem

    def take_file(self, size: int) -> bytes:
        """The content of the memory file that came first. It is closed."""
        descriptor = self.descriptors.pop(0)
        try:
            with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as content:
                return content[:size]
        finally:
            os.close(descriptor)

    def fill_file(self, content: bytes, room: int) -> None:
        """Writes into the memory file that came next."""
        descriptor = self.descriptors.pop(0)
        try:
            with mmap.mmap(descriptor, room) as target:
                target[: len(content)] = content
        finally:
            os.close(descriptor)
