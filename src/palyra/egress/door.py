"""A door: the sockets through which one grant's traffic goes out, and the account of it."""

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from palyra.egress.dns_door import UdpDnsDoor, serve_dns_tcp
from palyra.egress.events import Connected, CredentialUsed, EgressEvent, Face, Refused
from palyra.egress.faces import serve_proxy, serve_transparent
from palyra.egress.grant import EgressGrant
from palyra.egress.meter import ByteBudget
from palyra.egress.proxy_limits import (
    ACCEPT_PAUSE_SECONDS,
    ACCEPTS_PER_TURN,
    DEFER_ACCEPT_SECONDS,
    LOOPBACK_CONGESTION,
    MAX_REFUSALS_KEPT,
    MAX_REFUSALS_TOLD,
)
from palyra.egress.refusal import EgressRefused, HostNotAllowed, Refusal, TooManyTunnels
from palyra.egress.relay import RelayEngine
from palyra.egress.synthetic_dns import DnsAnswer, answer
from palyra.egress.synthetic_names import SyntheticNames
from palyra.egress.tunnel import Serve, Tunnel

if TYPE_CHECKING:
    from palyra.egress.proxy import EgressProxy

log = logging.getLogger(__name__)
_CONGESTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """A bound socket (listening, unless it is ``dns_udp``) and what is spoken on it. The door owns it from then on."""

    kind: Literal["proxy", "transparent", "dns_udp", "dns_tcp"]
    socket: socket.socket


class EgressUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one grant. ``refusals`` are the first; ``refused`` counts all, ``violations`` the grave ones."""

    bytes_up: int
    bytes_down: int
    connections: int
    refusals: tuple[Refusal, ...]
    credential_uses: int
    refused: int
    violations: int


class Door:
    def __init__(
        self,
        proxy: "EgressProxy",
        engine: RelayEngine,
        grant: EgressGrant,
        names: SyntheticNames | None,
        budget: ByteBudget | None = None,
    ) -> None:
        self.grant = grant
        self.budget = budget or ByteBudget(grant.max_bytes)
        self.engine = engine
        self.dialler = proxy.dialler
        self.limits = proxy.limits
        self.termination = proxy.termination
        self.tunnels: set[Tunnel] = set()
        self._proxy = proxy
        self._names = names
        self._listening: list[socket.socket] = []
        self._udp: list[UdpDnsDoor] = []
        self._closed = False
        self._connections = 0
        self._credential_uses = 0
        self._refused = 0
        self._violations = 0
        self._refusals: list[Refusal] = []
        self._names_told: set[str] = set()
        self._codes_told: set[str] = set()

    def listen(self, listeners: Sequence[Listener]) -> None:
        for listener in listeners:
            if listener.kind == "dns_udp":
                self._udp.append(UdpDnsDoor(listener.socket, self.engine.loop, self._answer_dns))
                continue
            serve: Serve = serve_proxy
            face: Face = "connect"
            if listener.kind == "transparent":
                serve, face = partial(serve_transparent, name_at=self._name_at), "transparent"
            elif listener.kind == "dns_tcp":
                serve, face = partial(serve_dns_tcp, answer=self._answer_dns), "dns"
            listener.socket.setblocking(False)
            _prepare(listener)
            self._listening.append(listener.socket)
            self._watch(listener.socket, serve, face)

    def usage(self) -> EgressUsage:
        return EgressUsage(
            bytes_up=self.budget.up,
            bytes_down=self.budget.down,
            connections=self._connections,
            refusals=tuple(self._refusals),
            credential_uses=self._credential_uses,
            refused=self._refused,
            violations=self._violations,
        )

    def close(self) -> EgressUsage:
        """Closes the listeners at once and cuts the tunnels in the loop's next turn. The account is final."""
        if not self._closed:
            self._closed = True
            for sock in self._listening:
                self.engine.loop.remove_reader(sock.fileno())
                sock.close()
            for door in self._udp:
                door.close()
            for tunnel in tuple(self.tunnels):
                tunnel.stop()
            self.budget.limit = self.budget.spent
            self._proxy.door_closed(self)
        return self.usage()

    async def emptied(self) -> None:
        """After ``close``: waits until every tunnel has said how it ended."""
        while tasks := [tunnel.task for tunnel in self.tunnels if tunnel.task is not None]:
            await asyncio.wait(tasks)

    def regrant(self, grant: EgressGrant | None) -> int:
        """Puts another grant in force and cuts the tunnels that it does not allow; says how many."""
        self.grant = msgspec.structs.replace(self.grant, rules=()) if grant is None else grant
        self.budget.limit = self.grant.max_bytes
        return sum(tunnel.reconsider(self._proxy.service) for tunnel in tuple(self.tunnels))

    # What its tunnels tell it.

    def report(self, event: EgressEvent) -> None:
        if isinstance(event, Connected):
            self._connections += 1
        elif isinstance(event, CredentialUsed):
            self._credential_uses += 1
        self._proxy.observer.happened(self.grant, event)

    def refused(self, error: EgressRefused, face: Face) -> None:
        self._refused += 1
        self._violations += error.violation
        if len(self._refusals) < MAX_REFUSALS_KEPT:
            self._refusals.append(error.refusal())
        # The first of its kind is always told, however many others came before it to hide it.
        if self._refused <= MAX_REFUSALS_TOLD or error.code not in self._codes_told:
            self._codes_told.add(error.code)
            self._proxy.observer.happened(self.grant, Refused.of(error, face))

    def left(self, tunnel: Tunnel) -> None:
        self.tunnels.discard(tunnel)
        self._proxy.one_left()

    # Accepting.

    def _watch(self, sock: socket.socket, serve: Serve, face: Face) -> None:
        if not self._closed:
            self.engine.loop.add_reader(sock.fileno(), self._accept, sock, serve, face)

    def _accept(self, listening: socket.socket, serve: Serve, face: Face) -> None:
        family = listening.family
        for _ in range(ACCEPTS_PER_TURN):
            try:
                # socket.accept reads the family and the type anew for every connection.
                descriptor, _ = listening._accept()  # type: ignore[attr-defined]
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    log.warning("a listener of the egress proxy failed: %s", error)
                self._rest(listening, serve, face)
                return
            self._admit(socket.socket(family, socket.SOCK_STREAM, 0, descriptor), serve, face)

    def _rest(self, listening: socket.socket, serve: Serve, face: Face) -> None:
        """No descriptor is left: makes one free and looks again in a moment, instead of spinning."""
        loop = self.engine.loop
        loop.remove_reader(listening.fileno())
        self._proxy.make_room()
        loop.call_later(ACCEPT_PAUSE_SECONDS, self._watch, listening, serve, face)

    def _admit(self, sock: socket.socket, serve: Serve, face: Face) -> None:
        if len(self.tunnels) >= self.grant.max_tunnels:
            sock.close()
            self.refused(TooManyTunnels(f"the call has its {self.grant.max_tunnels} connections already"), face)
            return
        if not self._proxy.room_for_one():
            sock.close()
            self.refused(TooManyTunnels("the proxy is full, and no tunnel is silent"), face)
            return
        tunnel = Tunnel(self, sock, face)
        self.tunnels.add(tunnel)
        tunnel.start(serve)

    # Names.

    def _name_at(self, address: str) -> str | None:
        return None if self._names is None else self._names.name_at(address)

    def _allows_name(self, name: str) -> bool:
        return any(rule.names(name) for rule in self.grant.rules)

    def _answer_dns(self, question: bytes) -> DnsAnswer:
        assert self._names is not None
        answered = answer(question, self._names, self._allows_name)
        name = answered.refused_name
        # Programs ask for one name several times, for each kind of address; it is one refusal.
        if name is not None and name not in self._names_told and len(self._names_told) < MAX_REFUSALS_TOLD:
            self._names_told.add(name)
            why = "is one name too many for this call" if answered.is_full else "is not among the allowed hosts"
            self.refused(HostNotAllowed(f"{name} {why}", host=name), "dns")
        return answered


def _prepare(listener: Listener) -> None:
    """What is set here those who are accepted inherit."""
    sock = listener.socket
    with suppress(OSError):
        # A relay must not wait for more before it sends.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if listener.kind == "proxy":
            # Here the client always speaks first: one that does not costs us nothing for so long.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS)
        if _CONGESTION is not None and ipaddress.ip_address(sock.getsockname()[0]).is_loopback:
            sock.setsockopt(socket.IPPROTO_TCP, _CONGESTION, LOOPBACK_CONGESTION)
