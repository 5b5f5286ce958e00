"""A whole browser daemon in the test's own loop: real Chromium, real guard, real socket, and palyrad's client of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from fakes.egress_harness import FixedResolver
from fakes.web_application import OTHER, SHOP, WebApplication, web_application
from palyra.browser.domain.session_api import Caller, SessionAsk, SessionView
from palyra.browser.service.access import SOCKET_FOLDER
from palyra.browser.service.client import BrowserClient
from palyra.browser.settings import BrowserSettings
from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.daemon.browserd import BrowserdServices
from palyra.daemon.settings import Settings
from palyra.egress.settings import EgressSettings

ANNA, BEN = Caller(principal="agent:anna", run_id="R1", call_id="C1"), Caller(principal="user:ben")
OPERATOR = Caller(operator="user:operator")
# A loaded machine is slow; no test is about these limits unless it sets them.
GENEROUS = {"max_navigation_timeout_ms": 60_000, "max_action_timeout_ms": 60_000, "max_actions_per_window": 1_000}


class SteeredClock(SystemClock):
    """The system's, and as much later as a test says."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead * 1_000)


class BrowserdHarness:
    def __init__(
        self, parts: BrowserdServices, client: BrowserClient, site: WebApplication, clock: SteeredClock
    ) -> None:
        self.parts = parts
        self.client = client
        self.site = site
        self.clock = clock

    def url(self, path: str = "/", host: str = SHOP) -> str:
        return f"http://{host}:{self.site.port}{path}"

    def ask(self, **more: Any) -> SessionAsk:
        """May reach the shop and its neighbour, which are on this machine."""
        hosts = tuple(f"{name}:{self.site.port}" for name in (SHOP, OTHER))
        return SessionAsk(**{"hosts": hosts, "private_targets": hosts, "allow_evaluate": True, **more})

    def until(self, seconds: float) -> asyncio.Timeout:
        """A bound for what happens in a moment, on a machine that may be very busy."""
        return asyncio.timeout(seconds)

    async def turn(self) -> None:
        await asyncio.sleep(0.02)

    async def open(self, caller: Caller = ANNA, **more: Any) -> SessionView:
        return await self.client.create_session(caller, self.ask(**more))


def settings(egress: EgressSettings | None = None, **browser: Any) -> Settings:
    given = {"ready": 1, "session_budget": GENEROUS, **browser}
    return Settings(browser=msgspec.convert(given, BrowserSettings), egress=egress or EgressSettings())


@contextlib.asynccontextmanager
async def browserd(
    folder: Path, *, egress: Callable[[int], EgressSettings] = lambda _port: EgressSettings(), **browser: Any
) -> AsyncIterator[BrowserdHarness]:
    """``browser`` are settings of the section of that name, ``egress`` makes those of the other for the site's port."""
    clock = SteeredClock()
    state = StateDir.open(folder / "state")
    resolver = FixedResolver(dict.fromkeys((SHOP, OTHER, "evil.test"), ("127.0.0.1",)))
    with web_application() as site:
        parts = BrowserdServices(
            settings(egress(site.port), **browser), state, clock=clock, resolver=resolver, environ={}
        )
        async with parts.running(), BrowserClient.at(state.path(SOCKET_FOLDER)) as client:
            yield BrowserdHarness(parts, client, site, clock)
