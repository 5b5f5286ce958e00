"""The guard of browser sessions: a listener of the egress proxy for each, with one judge and one resolver."""

import re
import socket
from collections.abc import Callable
from typing import Final

from palyra.egress.domain.events import EgressEvent, Resolver
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.header_rules import Headers
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import OddTarget, render
from palyra.egress.domain.request_rules import require_request
from palyra.egress.domain.target import Target
from palyra.egress.limits import ProxyLimits
from palyra.egress.proxy.dial import Upstream
from palyra.egress.proxy.resolver import OwnAddresses, SystemResolver
from palyra.egress.proxy.server import CallListener, EgressProxy, ListeningSocket
from palyra.egress.settings import EgressSettings

# A WebSocket begins as a request, at the same host and port.
_AS_REQUEST: Final = {"ws": "http", "wss": "https"}
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)(.?)", re.DOTALL)
_ENDS_AN_AUTHORITY: Final = ("", "/", "?", "#")


class SessionRequestJudge:
    """The guard's own judge of scheme, host and port. The guard looks names up and judges the addresses.

    It ends no TLS: what the browser sends inside is judged where the browser holds it.
    """

    def __init__(self, service: EgressProxyPolicyService, grant: EgressGrant) -> None:
        self._service = service
        self._grant = grant

    async def judge_document(self, url: str) -> None:
        self._service.judge_target(self._grant, target_of(url))

    def judge_request(self, url: str) -> None:
        self._service.judge_target(self._grant, target_of(url))

    def judge_content(self, url: str, method: str, headers: Headers) -> None:
        if self._grant.request_rules:
            target = target_of(url)
            # Without a path Chromium asks for the root.
            rest = _PARTS.sub(r"\3", url, count=1).partition("#")[0]
            path = rest if rest.startswith("/") else f"/{rest}"
            require_request(self._grant.request_rules, target, method, path, headers)


def target_of(url: str) -> Target:
    """Parse the target of an address. The rest of the address may be as long as pages make it."""
    found = _PARTS.match(url)
    if found is None or found.group(3) not in _ENDS_AN_AUTHORITY:
        raise OddTarget(f"{render(url)!r} is no address of the web")
    scheme = found.group(1).lower()
    return Target.from_url(f"{_AS_REQUEST.get(scheme, scheme)}://{found.group(2)}/")


_KIND: Final = "proxy"
Happened = Callable[[EgressEvent], None]


class ChromiumSessionProxy:
    """``resolver`` replaces the system's resolver. ``close`` closes either."""

    def __init__(self, settings: EgressSettings, resolver: Resolver | None = None) -> None:
        self.request_rules = settings.request_rules
        self._resolver = resolver or SystemResolver(settings.static_hosts)
        self._service = EgressProxyPolicyService(OwnAddresses())
        self._reporters: dict[str, Happened] = {}
        self._proxy = EgressProxy(
            self._service,
            self._resolver,
            self,
            limits=ProxyLimits(idle_seconds=settings.idle_seconds),
            upstream=Upstream.parse(settings.upstream) if settings.upstream else None,
        )

    def judge(self, grant: EgressGrant) -> SessionRequestJudge:
        return SessionRequestJudge(self._service, grant)

    def serve(self, listener: socket.socket, grant: EgressGrant, happened: Happened) -> "SessionListener":
        self._reporters[grant.grant_id] = happened
        try:
            opened = self._proxy.open_listener(grant, [ListeningSocket(kind=_KIND, socket=listener)])
        except BaseException:
            self.forget(grant)
            raise
        return SessionListener(self, opened)

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        """Report an event to the grant's observer."""
        report = self._reporters.get(grant.grant_id)
        if report is not None:
            report(event)

    def forget(self, grant: EgressGrant) -> None:
        self._reporters.pop(grant.grant_id, None)

    def close(self) -> None:
        self._proxy.close()
        close = getattr(self._resolver, "close", None)
        if close is not None:
            close()


class SessionListener:
    def __init__(self, owner: ChromiumSessionProxy, listener: CallListener) -> None:
        self._owner = owner
        self._listener = listener

    def moved(self) -> int:
        usage = self._listener.usage()
        return usage.bytes_up + usage.bytes_down

    async def close(self) -> None:
        self._listener.close()
        await self._listener.wait_until_empty()
        self._owner.forget(self._listener.grant)
