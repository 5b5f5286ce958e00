"""Workers that a guest has taken over: they speak the daemon's protocol well, and say what the test wants them to."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from palyra.wasm.domain.frames import VERSION, Call, Done, Load, Loaded, Ready, packets
from palyra.wasm.engine.config import engine_name
from palyra.wasm.process.fork_server import WORKER, WorkerSource
from palyra.wasm.process.guest_process import DaemonGone, WorkerChannel

# What a worker does with a call: it gets its socket.
Lie = Callable[[socket.socket], object]


def ended(**said: Any) -> Done:
    """A call's ordinary end, but for what is said."""
    honest: dict[str, Any] = {
        "kind": "",
        "message": "",
        "output": b"{}",
        "logs": (),
        "spent": False,
        **dict.fromkeys(("fuel_used", "peak_memory_bytes", "duration_us", "host_calls", "logs_dropped"), 1),
    }
    return Done(**(honest | said))


def saying(*frames: Any) -> Lie:
    return lambda connection: [connection.send(packet) for frame in frames for packet in packets(frame)]


class LyingWorkers:
    """Every worker that is made while this is in place. ``lie`` is what the next calls get."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lie: Lie = saying(ended())
        self.killed = 0
        make = WorkerSource.make

        async def made(source: WorkerSource, kind: bytes) -> tuple[socket.socket, Any]:
            if kind != WORKER:
                return await make(source, kind)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
            return ours, self

        monkeypatch.setattr(WorkerSource, "make", made)

    def kill(self) -> None:
        self.killed += 1

    def close(self) -> None:
        """Its thread ends with its socket."""

    def _serve(self, connection: socket.socket) -> None:
        channel = WorkerChannel(connection)
        with connection, contextlib.suppress(DaemonGone, OSError):
            channel.send(Ready(version=VERSION, engine=engine_name()))
            while True:
                frame = channel.receive()
                if isinstance(frame, Load):
                    os.close(channel.descriptors.pop())
                    channel.send(Loaded(digest=frame.digest))
                elif isinstance(frame, Call):
                    self.lie(connection)
