"""The egress proxy: a door for each grant, and the bounds over all of them.

It lives on one event loop and is used from that loop's thread. It needs no transports of the loop, only readiness.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from palyra.egress.dial import Dialler
from palyra.egress.door import Door, EgressUsage, Listener
from palyra.egress.grant import EgressGrant
from palyra.egress.judge import EgressProxyPolicyService
from palyra.egress.meter import ByteBudget
from palyra.egress.ports import EgressObserver, Resolver
from palyra.egress.proxy_limits import ProxyLimits
from palyra.egress.refusal import TooManyTunnels
from palyra.egress.relay import RelayEngine
from palyra.egress.synthetic_names import SyntheticNames
from palyra.egress.tunnel import TerminationPort
from palyra.egress.upstream import Upstream

__all__ = ["Door", "EgressProxy", "EgressUsage", "Listener", "ProxyStats"]


class ProxyStats(msgspec.Struct, frozen=True, kw_only=True):
    """The proxy's state for those who watch it. Counts and bytes are since it began."""

    doors: int
    tunnels: int
    connections: int
    refused: int
    violations: int
    bytes_up: int
    bytes_down: int


class EgressProxy:
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
        self._doors: set[Door] = set()
        self._tunnels = 0
        self._past: list[int] = [0, 0, 0, 0, 0]

    def open_door(
        self,
        grant: EgressGrant,
        listeners: Sequence[Listener],
        names: SyntheticNames | None = None,
        budget: ByteBudget | None = None,
    ) -> Door:
        """Serves these sockets for this grant until the door is closed. Call it on the loop's thread.

        ``budget`` counts instead of one made from the grant, where others share it.
        """
        loop = asyncio.get_running_loop()
        if self._engine is None:
            self._engine = RelayEngine(loop)
        door = Door(self, self._engine, grant, names, budget)
        self._doors.add(door)
        try:
            door.listen(listeners)
        except BaseException:
            door.close()
            raise
        if self._sweeper is None:
            self._sweeper = loop.call_later(self.limits.sweep_seconds, self._sweep)
        return door

    def reconsider(self, change: Callable[[EgressGrant], EgressGrant | None]) -> int:
        """Gives every door its grant under the new policy (None: no grant any more) and cuts what it does not allow.

        Says how many tunnels were cut; they are reset in the loop's next turn.
        """
        return sum(door.regrant(change(door.grant)) for door in tuple(self._doors))

    def stats(self) -> ProxyStats:
        connections, refused, violations, up, down = map(
            sum, zip(self._past, *map(_counts, (door.usage() for door in self._doors)), strict=True)
        )
        return ProxyStats(
            doors=len(self._doors),
            tunnels=self._tunnels,
            connections=connections,
            refused=refused,
            violations=violations,
            bytes_up=up,
            bytes_down=down,
        )

    def close(self) -> None:
        for door in tuple(self._doors):
            door.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    # What doors do with it.

    def room_for_one(self) -> bool:
        """Takes a place among all tunnels, if need be that of the one that was silent longest."""
        if self._tunnels >= self.limits.max_tunnels and not self.make_room():
            return False
        self._tunnels += 1
        return True

    def make_room(self) -> bool:
        """Cuts the tunnel that was silent longest, unless all are busy."""
        everyone = (tunnel for door in self._doors for tunnel in door.tunnels if not tunnel.is_cut)
        quietest = min(everyone, key=lambda tunnel: tunnel.quiet_since, default=None)
        if quietest is None:
            return False
        if asyncio.get_running_loop().time() - quietest.quiet_since < self.limits.spare_after_seconds:
            return False
        quietest.cut(TooManyTunnels("the proxy is full, and this tunnel was silent longest", **quietest.where()))
        return True

    def one_left(self) -> None:
        self._tunnels -= 1

    def door_closed(self, door: Door) -> None:
        self._doors.discard(door)
        self._past = [sum(pair) for pair in zip(self._past, _counts(door.usage()), strict=True)]

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for door in tuple(self._doors):
            for tunnel in tuple(door.tunnels):
                tunnel.sweep(now)
        self._sweeper = loop.call_later(self.limits.sweep_seconds, self._sweep) if self._doors else None


def _counts(usage: EgressUsage) -> tuple[int, ...]:
    return usage.connections, usage.refused, usage.violations, usage.bytes_up, usage.bytes_down
