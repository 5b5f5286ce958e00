"""Relay of bytes between two sockets in both directions until both have ended.

Each direction is a flow. It reads into one buffer that all flows of a loop share, so an idle tunnel holds no memory for
bytes. A flow that cannot write stops reading: no flow runs ahead of its slower side. The end of a stream is passed on
as a half-close; when both have ended the caller closes.

A gate may judge the first bytes of a client: bytes that it refuses never reach the server.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from palyra.egress.domain.grant import Meter
from palyra.egress.limits import HANDSHAKE_READ_BYTES, RELAY_READ_BYTES, ROUNDS_PER_TURN
from palyra.egress.proxy.socket_stream import SocketStream, readiness_of

# Gets the client's bytes; returns those that may pass now, or None to end the relay and leave them to the caller. It
# raises to refuse. At the client's end it gets b"" once; the bytes it then returns are sent before the end.
Gate = Callable[[bytes], bytes | None]


class RelayEngine:
    """Buffer and readiness that all relays of one loop share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.readiness = readiness_of(loop)
        self.buffer = bytearray(RELAY_READ_BYTES)
        self.view = memoryview(self.buffer)


class Relay:
    """One tunnel's traffic. ``run`` ends normally when both sides ended or the gate handed over."""

    __slots__ = ("_done", "_down", "_up", "engine", "meter")

    def __init__(self, engine: RelayEngine, client: SocketStream, server: SocketStream, meter: Meter) -> None:
        self.engine = engine
        self.meter = meter
        self._done: asyncio.Future[None] = engine.loop.create_future()
        self._up = _Flow(self, client, server, meter.count_up)
        self._down = _Flow(self, server, client, meter.count_down)

    async def run(self, gate: Gate | None = None) -> None:
        try:
            self._up.begin(gate)
            self._down.begin(None)
            await self._done
        finally:
            self._up.stop()
            self._down.stop()

    def flow_ended(self) -> bool:
        """Return whether this flow was the second to end: both sockets are then about to be closed."""
        if not (self._up.ended and self._down.ended):
            return False
        self.finish()
        return True

    def finish(self, error: Exception | None = None) -> None:
        self._up.stop()
        self._down.stop()
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)


class _Flow:
    """One direction. Every hint of readiness calls ``_pump``, which moves all it can."""

    __slots__ = (
        "_count",
        "_engine",
        "_gate",
        "_left",
        "_relay",
        "_source",
        "_stopped",
        "_target",
        "_unsent",
        "ended",
    )

    def __init__(self, relay: Relay, source: SocketStream, target: SocketStream, count: Callable[[int], None]) -> None:
        self._relay = relay
        self._engine = relay.engine
        self._left = relay.meter.left
        self._source = source
        self._target = target
        self._count = count
        self._gate: Gate | None = None
        self._unsent: memoryview | None = None
        self._stopped = False
        self.ended = False

    def begin(self, gate: Gate | None) -> None:
        self._gate = gate
        self._source.on_readable = self._pump
        kept = self._source.take_kept()
        try:
            if kept:
                self._admit(kept, counted=self._source.meter is not None)
        except Exception as error:
            self._relay.finish(error)
            return
        if not self._source.watch() or self._unsent is not None:
            self._pump()

    def stop(self) -> None:
        """Leave both sockets to the caller, to use or close."""
        if self._stopped:
            return
        self._stopped = True
        # Without this reference both are freed at once, not by the garbage collector later.
        del self._relay
        self._gate = None
        self._source.on_readable = None
        self._target.on_writable = None
        self._unsent = None

    def _pump(self) -> None:
        try:
            for _ in range(ROUNDS_PER_TURN):
                if self._stopped or self.ended:
                    return
                if self._unsent is not None and not self._flush(self._unsent):
                    return
                if not self._read():
                    return
            # Other flows get their turn. Bytes that have come already cause no new edge.
            self._engine.loop.call_soon(self._pump)
        except (BlockingIOError, InterruptedError):
            return
        except Exception as error:
            self._relay.finish(error)

    def _flush(self, unsent: memoryview) -> bool:
        """Send bytes that were read but not yet sent; False while the target takes no more."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            self._unsent = unsent[self._target.sock.send(unsent) :] or None
        if self._unsent is None:
            return True
        self._target.on_writable = self._pump
        self._target.watch_writing()
        return False

    def _read(self) -> bool:
        """Move one portion; False if a new edge will come before more bytes."""
        if self._gate is not None:
            asked = self._affordable(HANDSHAKE_READ_BYTES)
            data = self._source.sock.recv(asked)
            self._admit(data)
            return self._may_have_more(len(data) == asked)
        return self._copy()

    def _affordable(self, most: int) -> int:
        """Return how much may be read. Bytes beyond the budget end the relay; the end of the stream does not."""
        left = self._left()
        if left >= most:
            return most
        if left > 0:
            return left
        if self._source.sock.recv(1, socket.MSG_PEEK):
            raise self._relay.meter.exceeded()
        return 1

    def _admit(self, data: bytes, *, counted: bool = False) -> None:
        """Give the gate the new bytes and send those that may pass."""
        admitted: bytes | None = data
        if self._gate is not None:
            admitted = self._gate(data)
            if admitted is None:
                self._relay.finish()
                return
            if admitted:
                self._gate = None
        if admitted:
            if not counted:
                if not self._relay.meter.covers(len(admitted)):
                    raise self._relay.meter.exceeded()
                self._count(len(admitted))
            self._send(memoryview(admitted))
        elif not data:
            self._end()

    def _copy(self) -> bool:
        engine = self._engine
        asked = self._affordable(RELAY_READ_BYTES)
        got = self._source.sock.recv_into(engine.buffer, asked)
        if not got:
            self._end()
            return False
        self._count(got)
        self._send(engine.view[:got])
        return self._may_have_more(got == asked)

    def _may_have_more(self, was_full: bool) -> bool:
        """Return False after a short read, behind which nothing is left but perhaps the end of the stream."""
        return was_full or self._unsent is not None or self._source.ended

    def _send(self, data: memoryview) -> None:
        try:
            sent = self._target.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < len(data):
            # The shared buffer is another flow's in a moment.
            self._unsent = memoryview(bytes(data[sent:]))

    def _end(self) -> None:
        self.ended = True
        self._source.on_readable = None
        if not self._relay.flow_ended():
            self._target.end_writing()
