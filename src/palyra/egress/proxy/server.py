"""Egress proxy: a listener for each grant's sockets, its usage, and the bounds over all of them."""

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import msgspec

from palyra.egress.domain.events import Connected, CredentialUsed, EgressEvent, EgressObserver, Face, Refused, Resolver
from palyra.egress.domain.grant import ByteBudget, EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import EgressRefused, HostNotAllowed, Refusal, TooManyTunnels
from palyra.egress.limits import (
    ACCEPT_PAUSE_SECONDS,
    ACCEPTS_PER_TURN,
    DEFER_ACCEPT_SECONDS,
    LOOPBACK_CONGESTION,
    MAX_REFUSALS_KEPT,
    MAX_REFUSALS_REPORTED,
    WANTED_DESCRIPTORS,
    ProxyLimits,
)
from palyra.egress.protocols.dns import DnsAnswer, SyntheticNames, answer
from palyra.egress.proxy.client_protocols import DnsListener, serve_dns_tcp, serve_proxy, serve_transparent
from palyra.egress.proxy.dial import Dialler, Upstream
from palyra.egress.proxy.relay import RelayEngine
from palyra.egress.proxy.tunnel import Serve, TerminationPort, Tunnel


def raise_descriptor_limit(wanted: int = WANTED_DESCRIPTORS) -> int:
    """Raise this process's limit of descriptors as far as allowed, and return the limit then in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    with suppress(ValueError, OSError):
        # Beyond the hard limit only a privileged process may go.
        ceiling = hard if hard == resource.RLIM_INFINITY else max(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, ceiling))
        return wanted
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


log = logging.getLogger(__name__)
_CONGESTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListeningSocket(msgspec.Struct, frozen=True, kw_only=True):
    """A bound socket (listening, unless it is ``dns_udp``) and its protocol. The call's listener owns it."""

    kind: Literal["proxy", "transparent", "dns_udp", "dns_tcp"]
    socket: socket.socket


class EgressUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one grant. ``refusals`` are the first; ``refused`` counts all, ``violations`` the grave ones."""

    bytes_up: int
    bytes_down: int
    connections: int
    refusals: tuple[Refusal, ...]
    credential_uses: int
    refused: int
    violations: int


class CallListener:
    def __init__(
        self,
        proxy: "EgressProxy",
        engine: RelayEngine,
        grant: EgressGrant,
        names: SyntheticNames | None,
    ) -> None:
        self.grant = grant
        self.budget = ByteBudget(grant.max_bytes)
        self.engine = engine
        self.dialler = proxy.dialler
        self.limits = proxy.limits
        self.termination = proxy.termination
        self.tunnels: set[Tunnel] = set()
        self._proxy = proxy
        self._names = names
        self._listening: list[socket.socket] = []
        self._dns: list[DnsListener] = []
        self._closed = False
        self._connections = 0
        self._credential_uses = 0
        self._refused = 0
        self._violations = 0
        self._refusals: list[Refusal] = []
        self._reported_names: set[str] = set()
        self._reported_codes: set[str] = set()

    def listen(self, sockets: Sequence[ListeningSocket]) -> None:
        for listener in sockets:
            if listener.kind == "dns_udp":
                self._dns.append(DnsListener(listener.socket, self.engine.loop, self._answer_dns))
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
        """Close the sockets at once and cut the tunnels in the loop's next turn. Return the final usage."""
        if not self._closed:
            self._closed = True
            for sock in self._listening:
                self.engine.loop.remove_reader(sock.fileno())
                sock.close()
            for dns in self._dns:
                dns.close()
            for tunnel in tuple(self.tunnels):
                tunnel.stop()
            self.budget.limit = self.budget.spent
            self._proxy.remove_listener(self)
        return self.usage()

    async def wait_until_empty(self) -> None:
        """Wait, after ``close``, until every tunnel has reported its end."""
        while tasks := [tunnel.task for tunnel in self.tunnels if tunnel.task is not None]:
            await asyncio.wait(tasks)

    def regrant(self, grant: EgressGrant | None) -> int:
        """Put another grant in force and cut the tunnels that it does not allow; return how many."""
        self.grant = msgspec.structs.replace(self.grant, rules=()) if grant is None else grant
        self.budget.limit = self.grant.max_bytes
        return sum(tunnel.reconsider(self._proxy.service) for tunnel in tuple(self.tunnels))

    def hand_over(self, grant: EgressGrant) -> None:
        """Serve the next call of the same program: its bytes and refusals are counted from zero."""
        self.budget.up = self.budget.down = 0
        self._refused = self._violations = 0
        self._refusals.clear()
        self._reported_names.clear()
        self._reported_codes.clear()
        self.regrant(grant)

    def end_call(self) -> "list[asyncio.Task[None]]":
        """Stop every tunnel and let no byte move until the next call. Return the tasks of the tunnels, which end."""
        tasks = [tunnel.task for tunnel in self.tunnels if tunnel.task is not None]
        for tunnel in tuple(self.tunnels):
            tunnel.stop()
        self.budget.limit = self.budget.spent
        return tasks

    # Calls of its tunnels.

    def report(self, event: EgressEvent) -> None:
        if isinstance(event, Connected):
            self._connections += 1
        elif isinstance(event, CredentialUsed):
            self._credential_uses += 1
        self._proxy.observer.observe(self.grant, event)

    def refused(self, error: EgressRefused, face: Face) -> None:
        self._refused += 1
        self._violations += error.violation
        if len(self._refusals) < MAX_REFUSALS_KEPT:
            self._refusals.append(error.refusal())
        # The first refusal of each code is always reported, however many others came before to hide it.
        if self._refused <= MAX_REFUSALS_REPORTED or error.code not in self._reported_codes:
            self._reported_codes.add(error.code)
            self._proxy.observer.observe(self.grant, Refused.of(error, face))

    def left(self, tunnel: Tunnel) -> None:
        self.tunnels.discard(tunnel)
        self._proxy.release_tunnel()

    # Accepting.

    def _watch(self, sock: socket.socket, serve: Serve, face: Face) -> None:
        if not self._closed:
            self.engine.loop.add_reader(sock.fileno(), self._accept, sock, serve, face)

    def _accept(self, listening: socket.socket, serve: Serve, face: Face) -> None:
        family = listening.family
        for _ in range(ACCEPTS_PER_TURN):
            try:
                # socket.accept reads the family and the type again for every connection.
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
        """Free a descriptor if none is left, and accept again in a moment instead of spinning."""
        loop = self.engine.loop
        loop.remove_reader(listening.fileno())
        self._proxy.make_room()
        loop.call_later(ACCEPT_PAUSE_SECONDS, self._watch, listening, serve, face)

    def _admit(self, sock: socket.socket, serve: Serve, face: Face) -> None:
        if len(self.tunnels) >= self.grant.max_tunnels:
            sock.close()
            self.refused(TooManyTunnels(f"the call has its {self.grant.max_tunnels} connections already"), face)
            return
        if not self._proxy.reserve_tunnel():
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
        if name is not None and name not in self._reported_names and len(self._reported_names) < MAX_REFUSALS_REPORTED:
            self._reported_names.add(name)
            why = "is one name too many for this call" if answered.is_full else "is not among the allowed hosts"
            self.refused(HostNotAllowed(f"{name} {why}", host=name), "dns")
        return answered


def _prepare(listener: ListeningSocket) -> None:
    """Set options that accepted sockets inherit."""
    sock = listener.socket
    with suppress(OSError):
        # A relay must not wait for more before it sends.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if listener.kind == "proxy":
            # The client always sends first: a silent one stays in the kernel and costs the proxy nothing.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS)
        if _CONGESTION is not None and ipaddress.ip_address(sock.getsockname()[0]).is_loopback:
            sock.setsockopt(socket.IPPROTO_TCP, _CONGESTION, LOOPBACK_CONGESTION)


class EgressProxy:
    """A listener for each grant, and the bounds over all of them. Use it from its event loop's thread only."""

    def __init__(
        self,
        service: EgressProxyPolicyService,
        resolver: Resolver,
        observer: EgressObserver,
        *,
        limits: ProxyLimits | None = None,
        upstream: Upstream | None = None,
        termination: TerminationPort | None = None,
    ) -> None:
        self.service = service
        self.observer = observer
        self.limits = limits or ProxyLimits()
        self.termination = termination
        self.dialler = Dialler(service, resolver, connect_seconds=self.limits.connect_seconds, upstream=upstream)
        self._engine: RelayEngine | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.listeners: set[CallListener] = set()
        self.tunnels = 0

    def open_listener(
        self,
        grant: EgressGrant,
        sockets: Sequence[ListeningSocket],
        names: SyntheticNames | None = None,
    ) -> CallListener:
        """Serve these sockets for this grant until the listener is closed."""
        loop = asyncio.get_running_loop()
        if self._engine is None:
            self._engine = RelayEngine(loop)
        listener = CallListener(self, self._engine, grant, names)
        self.listeners.add(listener)
        try:
            listener.listen(sockets)
        except BaseException:
            listener.close()
            raise
        if self._sweeper is None:
            self._sweeper = loop.call_later(self.limits.sweep_seconds, self._sweep)
        return listener

    def reconsider(self, change: Callable[[EgressGrant], EgressGrant | None]) -> int:
        """Give every listener its grant under the new policy (None: no grant), and cut what it forbids.

        Return how many tunnels were cut; they are reset in the loop's next turn.
        """
        return sum(listener.regrant(change(listener.grant)) for listener in tuple(self.listeners))

    def close(self) -> None:
        for listener in tuple(self.listeners):
            listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    # Calls of its listeners.

    def reserve_tunnel(self) -> bool:
        """Take a place among all tunnels, if need be that of the one that was silent longest."""
        if self.tunnels >= self.limits.max_tunnels and not self.make_room():
            return False
        self.tunnels += 1
        return True

    def make_room(self) -> bool:
        """Cut the tunnel that was silent longest, unless all are busy."""
        everyone = (tunnel for listener in self.listeners for tunnel in listener.tunnels if not tunnel.is_cut)
        quietest = min(everyone, key=lambda tunnel: tunnel.quiet_since, default=None)
        if quietest is None:
            return False
        if asyncio.get_running_loop().time() - quietest.quiet_since < self.limits.spare_after_seconds:
            return False
        quietest.cut(TooManyTunnels("the proxy is full, and this tunnel was silent longest", **quietest.where()))
        return True

    def release_tunnel(self) -> None:
        self.tunnels -= 1

    def remove_listener(self, listener: CallListener) -> None:
        self.listeners.discard(listener)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for listener in tuple(self.listeners):
            for tunnel in tuple(listener.tunnels):
                tunnel.sweep(now)
        self._sweeper = loop.call_later(self.limits.sweep_seconds, self._sweep) if self.listeners else None
