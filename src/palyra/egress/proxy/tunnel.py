"""Tunnel: one accepted connection from its first byte to its end, judged, dialled, relayed, counted and recorded."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from palyra.egress.domain.events import Closed, Connected, EgressEvent, Face
from palyra.egress.domain.grant import ByteBudget, EgressGrant, Meter
from palyra.egress.domain.judge import EgressProxyPolicyService, Pin
from palyra.egress.domain.refusal import (
    EgressRefused,
    HandshakeTimeout,
    IdleTimeout,
    MalformedTraffic,
    PolicyChanged,
    Unreachable,
)
from palyra.egress.domain.target import Target
from palyra.egress.limits import FAREWELL_BYTES, FAREWELL_SECONDS, ProxyLimits
from palyra.egress.protocols.tunnel_opening import TLS_PORT, Opening, TunnelOpening
from palyra.egress.proxy.dial import Dialler
from palyra.egress.proxy.relay import Relay, RelayEngine
from palyra.egress.proxy.socket_stream import SocketStream
from palyra.errors import PalyraError

log = logging.getLogger(__name__)


class TerminationPort(Protocol):
    """Reader of a client's traffic inside its tunnel, to add credentials to it."""

    def wants(self, grant: EgressGrant, target: Target) -> bool:
        """Return whether it reads this target's traffic. The scheme is ``tcp`` until the first bytes have come."""
        ...

    async def serve(self, tunnel: "Tunnel", opening: Opening, *, one_request: bool) -> None:
        """Serve the client to the end.

        ``tunnel.client`` has every byte, the opening (TLS or HTTP) included; the server name is checked already.
        ``tunnel.connect()`` returns the metered stream to the judged address, ``tunnel.grant`` the present grant, and
        ``tunnel.report()`` takes events. With ``one_request`` the next request may be for another target: answer one
        and return. A raised refusal ends the tunnel with RST unless ``tunnel.farewell()`` was called.
        """
        ...


class TunnelOwner(Protocol):
    """Interface of the listener that accepted a tunnel."""

    grant: EgressGrant
    budget: ByteBudget
    dialler: Dialler
    engine: RelayEngine
    limits: ProxyLimits
    termination: TerminationPort | None

    def report(self, event: EgressEvent) -> None: ...

    def refused(self, error: EgressRefused, face: Face) -> None: ...

    def left(self, tunnel: "Tunnel") -> None: ...


Serve = Callable[["Tunnel"], Coroutine[Any, Any, None]]


class Tunnel:
    """One connection. A client protocol finds the target and calls ``admit``, ``connect`` and ``relay``."""

    __slots__ = (
        "_closed_at",
        "_cut",
        "_deadline",
        "_loop",
        "_owner",
        "_recorded",
        "_seen",
        "address",
        "client",
        "face",
        "meter",
        "pin",
        "quiet_since",
        "server",
        "target",
        "task",
    )

    def __init__(self, owner: TunnelOwner, sock: socket.socket, face: Face) -> None:
        self._owner = owner
        self._loop = owner.engine.loop
        self.task: asyncio.Task[None] | None = None
        self._cut: EgressRefused | None = None
        self._recorded: EgressRefused | None = None
        self._closed_at = (0, 0)
        self._seen = 0
        self.quiet_since = self._loop.time()
        self._deadline: float | None = None
        self.client = SocketStream(sock, self._loop, None, owner.engine.readiness)
        self.server: SocketStream | None = None
        self.meter = Meter(owner.budget)
        self.face: Face = face
        self.target: Target | None = None
        self.pin: Pin | None = None
        self.address = ""

    # Calls of the listener.

    def start(self, serve: Serve) -> None:
        self.expect_handshake()
        self.task = self._loop.create_task(serve(self))
        self.task.add_done_callback(self._on_end)

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def cut(self, error: EgressRefused) -> None:
        """End the tunnel now, with RST to both sides."""
        if self._cut is None and self.task is not None:
            self._cut = error
            self.task.cancel()

    @property
    def is_cut(self) -> bool:
        return self._cut is not None

    def sweep(self, now: float) -> None:
        moved = self.meter.up + self.meter.down
        if moved != self._seen:
            self._seen = moved
            self.quiet_since = now
        if self._deadline is not None:
            if now >= self._deadline:
                self.cut(HandshakeTimeout("the client took too long to say what it wants", **self.where()))
        elif now - self.quiet_since >= self._owner.limits.idle_seconds:
            self.cut(IdleTimeout(f"nothing moved for {self._owner.limits.idle_seconds:g} s", **self.where()))

    def reconsider(self, service: EgressProxyPolicyService) -> bool:
        """Judge the target again under the present grant. Return whether the tunnel was cut."""
        if self.target is None:
            return False
        try:
            service.judge_target(self.grant, self.target)
            if self.pin is not None and self.pin.addresses:
                service.judge_answers(self.grant, self.target, self.pin.addresses)
        except EgressRefused as refused:
            self.cut(PolicyChanged(f"no longer allowed: {refused.message}", **self.where()))
            return True
        return False

    # Calls of a client protocol and of a termination.

    @property
    def grant(self) -> EgressGrant:
        return self._owner.grant

    def where(self) -> dict[str, Any]:
        return {} if self.target is None else self.target.where

    def report(self, event: EgressEvent) -> None:
        self._owner.report(event)

    def expect_handshake(self) -> None:
        """Start the deadline within which the client must finish its handshake."""
        self._deadline = self._loop.time() + self._owner.limits.handshake_seconds

    def handshake_goes_on(self) -> None:
        """Start the deadline at the first byte of a handshake, not at each."""
        if self._deadline is None:
            self.expect_handshake()

    def handshake_done(self) -> None:
        self._deadline = None

    async def admit(self, target: Target) -> None:
        """Judge the target and pin its addresses. Drop any connection to another target first."""
        self.handshake_done()
        self.drop_connection()
        self.target = target
        self.pin = None
        self.pin = await self._owner.dialler.pin(self._owner.grant, target)

    async def connect(self) -> SocketStream:
        """Dial a pinned address, once; further calls return the same connection."""
        if self.server is None:
            assert self.pin is not None and self.target is not None
            self.server, self.address = await self._owner.dialler.dial(self.pin, self.meter)
            self._owner.report(Connected(target=self.target, address=self.address, face=self.face))
        return self.server

    def terminated(self) -> bool:
        termination = self._owner.termination
        return termination is not None and self.target is not None and termination.wants(self.grant, self.target)

    async def terminate(self, opening: Opening, *, one_request: bool = False) -> None:
        assert self._owner.termination is not None
        await self._owner.termination.serve(self, opening, one_request=one_request)

    async def read_opening(self) -> Opening:
        """Return the protocol of the client's first bytes, which stay unread."""
        assert self.target is not None
        self.expect_handshake()
        opening = TunnelOpening(self.target)
        while opening.kind is Opening.UNKNOWN:
            data = await self.client.read()
            if not data:
                opening.end()
                break
            opening.receive(data)
        self.client.unread(opening.held)
        self.handshake_done()
        return opening.kind

    async def relay(self) -> Opening:
        """Relay both ways at once, the client's first bytes through the gate.

        Return at the end, or as soon as the client turns out to speak HTTP: its bytes are then still unread.
        """
        assert self.target is not None and self.server is not None
        opening = TunnelOpening(self.target)
        if self.target.port == TLS_PORT:
            self.expect_handshake()

        def gate(data: bytes) -> bytes | None:
            if not data:
                return opening.held if opening.end() is Opening.OTHER else b""
            kind = opening.receive(data)
            if kind is Opening.UNKNOWN and self.meter.down:
                kind = opening.server_spoke()
            if kind is Opening.UNKNOWN:
                self.handshake_goes_on()
                return b""
            self.handshake_done()
            if kind is Opening.HTTP:
                if self.meter.down:
                    raise MalformedTraffic("HTTP to a server that spoke first", **self.where())
                return None
            return opening.held

        await Relay(self._owner.engine, self.client, self.server, self.meter).run(gate)
        if opening.kind is Opening.HTTP:
            self.client.unread(opening.held)
        return opening.kind

    async def relay_opaque(self) -> None:
        """Relay both ways without a gate, after an allowed protocol switch."""
        assert self.server is not None
        await Relay(self._owner.engine, self.client, self.server, self.meter).run()

    def record(self, refused: EgressRefused) -> None:
        """Report a refusal now; raising it later does not report it twice."""
        if refused is not self._recorded:
            self._recorded = refused
            self._owner.refused(refused, self.face)

    async def farewell(self, answer: bytes, because: EgressRefused | None = None) -> None:
        """Send the client the reason, and discard its own last bytes for a moment so that it can read it.

        ``because`` is recorded before that, and not again when it is raised afterwards.
        """
        if because is not None:
            self.record(because)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.client.write(answer)
                self.client.end_writing()
                thrown_away = 0
                while thrown_away < FAREWELL_BYTES and (data := await self.client.read()):
                    thrown_away += len(data)
        self.client.close()

    # Its end.

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        reason = self._outcome(task)
        if reason == "done":
            self.client.close()
        else:
            self.client.reset()
        self.drop_connection(reason)
        self.task = None
        self._owner.left(self)

    def _outcome(self, task: "asyncio.Task[None]") -> str:
        error = self._cut if task.cancelled() else task.exception()
        if error is None:
            return "stopped" if task.cancelled() else "done"
        if isinstance(error, EgressRefused):
            if error is not self._recorded:
                self._owner.refused(error, self.face)
            return error.code
        if not isinstance(error, OSError):
            log.error("a fault in the egress proxy", exc_info=error)
            # The call's record shows every connection that failed, even by a fault of ours.
            why = error.message if isinstance(error, PalyraError) else "a fault in the proxy, which is in its log"
            self._owner.refused(Unreachable(why, **self.where()), self.face)
        return "broken"

    def drop_connection(self, reason: str = "done") -> None:
        """Close a connection that can carry no more, so that ``connect`` makes another."""
        if self.server is None:
            return
        if reason == "done":
            self.server.close()
        else:
            self.server.reset()
        self.server = None
        assert self.target is not None
        before_up, before_down = self._closed_at
        self._closed_at = up, down = self.meter.up, self.meter.down
        self._owner.report(Closed(target=self.target, up=up - before_up, down=down - before_down, reason=reason))
