"""The console on the daemon's own listener: imported when somebody first opens a page, so that nothing else waits."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from palyra.daemon.gateway_wiring import Gateway
    from palyra.server.http.openapi import DescribedRoute

# The first word of every path that belongs to the console; all others are the API's.
CONSOLE_PATHS = frozenset(
    (
        *("", "access", "approvals", "browser", "calls", "console", "devices", "doctor", "egress", "journal", "login"),
        *("policy", "runs", "skills", "static", "vault"),
    )
)


API_PATHS = frozenset(("", "v1", "mcp", "healthz", "readyz", "metrics", "openapi.json"))


def _is_from_a_person(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


class Front:
    """Sends each request to the API or to the console, by the first word of its path."""

    def __init__(self, api: ASGIApp, gateway: "Gateway") -> None:
        self._api = api
        self._gateway = gateway
        gateway.service.described_elsewhere = _described
        self._console: ASGIApp | None = None
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/") and self._is_console(scope):
            app = self._console or await self._open()
        else:
            app = self._api
        await app(scope, receive, send)

    @staticmethod
    def _is_console(scope: Scope) -> bool:
        """``//v1/tokens`` is no second spelling of anything. A person who mistyped an address is told so on a page."""
        path: str = scope["path"]
        word = path.split("/", 2)[1]
        if word in CONSOLE_PATHS:
            return path == "/" or path[1:2] != "/"
        return word not in API_PATHS and scope["method"] == "GET" and _is_from_a_person(scope)

    async def _open(self) -> ASGIApp:
        async with self._opening:
            if self._console is None:
                self._console = await asyncio.to_thread(make_console, self._gateway)
            return self._console


def _described() -> "Iterable[DescribedRoute]":
    from palyra.server.console.app import described_routes

    return described_routes()


def make_console(gateway: "Gateway") -> ASGIApp:
    from palyra.server.console.app import create_console_app
    from palyra.server.console.services import (
        CandidateDesk,
        Console,
        ConsoleParts,
        JournalDesk,
        MachineDesk,
        PolicyDesk,
    )

    parts = ConsoleParts(
        policy=PolicyDesk(gateway.policy),
        journal=JournalDesk(gateway.store, gateway.state),
        machine=MachineDesk(gateway.state, gateway.policy.folder, gateway.settings),
        candidates=CandidateDesk(gateway.state, gateway.settings.skills),
        egress_rules=tuple(gateway.settings.egress.allowed_hosts),
    )
    return create_console_app(Console(gateway.service, parts))
