"""The guard of browser sessions: a door of the egress proxy for each, behind one judge and one resolver."""

import socket
from typing import Final

from palyra.browser.session_judge import SessionRequestJudge
from palyra.browser.session_ports import Happened
from palyra.config.settings import EgressSettings
from palyra.egress.door import Door, Listener
from palyra.egress.events import EgressEvent
from palyra.egress.grant import EgressGrant
from palyra.egress.judge import EgressProxyPolicyService
from palyra.egress.own_addresses import OwnAddresses
from palyra.egress.ports import Resolver
from palyra.egress.proxy import EgressProxy, ProxyStats
from palyra.egress.proxy_limits import ProxyLimits
from palyra.egress.resolver import SystemResolver
from palyra.egress.upstream import Upstream

_KIND: Final = "proxy"


class ChromiumSessionProxy:
    """``resolver`` is the system's unless another is given, which this then closes too."""

    def __init__(self, settings: EgressSettings, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or SystemResolver(settings.static_hosts)
        self._service = EgressProxyPolicyService(OwnAddresses())
        self._hearing: dict[str, Happened] = {}
        self._proxy = EgressProxy(
            self._service,
            self._resolver,
            self,
            limits=ProxyLimits(idle_seconds=settings.idle_seconds),
            upstream=Upstream.parse(settings.upstream) if settings.upstream else None,
        )

    def judge(self, grant: EgressGrant) -> SessionRequestJudge:
        return SessionRequestJudge(self._service, grant)

    def serve(self, listener: socket.socket, grant: EgressGrant, happened: Happened) -> "SessionDoor":
        self._hearing[grant.grant_id] = happened
        try:
            door = self._proxy.open_door(grant, [Listener(kind=_KIND, socket=listener)])
        except BaseException:
            self.forget(grant)
            raise
        return SessionDoor(self, door)

    def happened(self, grant: EgressGrant, event: EgressEvent) -> None:
        """As the observer of the proxy."""
        hear = self._hearing.get(grant.grant_id)
        if hear is not None:
            hear(event)

    def forget(self, grant: EgressGrant) -> None:
        self._hearing.pop(grant.grant_id, None)

    def stats(self) -> ProxyStats:
        return self._proxy.stats()

    def close(self) -> None:
        self._proxy.close()
        close = getattr(self._resolver, "close", None)
        if close is not None:
            close()


class SessionDoor:
    def __init__(self, owner: ChromiumSessionProxy, door: Door) -> None:
        self._owner = owner
        self._door = door

    def moved(self) -> int:
        usage = self._door.usage()
        return usage.bytes_up + usage.bytes_down

    async def close(self) -> None:
        self._door.close()
        await self._door.emptied()
        self._owner.forget(self._door.grant)
