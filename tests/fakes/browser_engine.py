"""Real browsers for tests: the engine joined to the sandbox's sockets and to a real egress door."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fakes.egress_harness import FixedResolver, Recorder, make_grant
from fakes.eventually import eventually
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.engine.chromium import ChromiumLauncher, ChromiumProcess, ChromiumSettings
from palyra.browser.engine.process_tree import ProcessNotes
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.proxy.server import CallListener, EgressProxy, ListeningSocket
from palyra.sandbox.domain.network import ListenerKind, NetworkPlan
from palyra.sandbox.network.call_network import NamespaceSockets


class NamespaceGuard:
    def __init__(self) -> None:
        self._sockets = NamespaceSockets()

    async def open(self, network: int, owner: int, port: int) -> socket.socket:
        opened = await self._sockets.open(NetworkPlan(ports=(), proxy_port=port), network, owner)
        (listener,) = opened.of(ListenerKind.PROXY)
        for each in opened:
            if each.kind is not ListenerKind.PROXY:
                each.socket.close()
        return listener

    async def close(self) -> None:
        await self._sockets.close()


@contextlib.asynccontextmanager
async def launching(folder: Path, settings: ChromiumSettings | None = None) -> AsyncIterator[ChromiumLauncher]:
    guard = NamespaceGuard()
    try:
        yield ChromiumLauncher(guard, ProcessNotes(folder), settings)
    finally:
        await guard.close()


class Guarded:
    """The egress door of one browser, and what it was asked for."""

    def __init__(self, names: dict[str, tuple[str, ...]], *rules: str) -> None:
        self.recorder = Recorder()
        self.resolver = FixedResolver(names)
        self.proxy = EgressProxy(EgressProxyPolicyService(frozenset), self.resolver, self.recorder)
        self.grant = make_grant(*rules)

    def serve(self, process: ChromiumProcess) -> CallListener:
        return self.proxy.open_listener(self.grant, [ListeningSocket(kind="proxy", socket=process.take_guard())])

    def reached(self) -> set[str]:
        return {event.target.host for event in self.recorder.connected()}

    async def close(self) -> None:
        self.proxy.close()
        # The tunnels end in the loop's next turns.
        await eventually(lambda: not self.proxy.tunnels, every=0)


async def attach(process: ChromiumProcess) -> str:
    """A session on the page that is there from the start, with its events on."""
    attached = await process.cdp.send("Target.attachToTarget", {"targetId": process.first_target, "flatten": True})
    session = str(attached["sessionId"])
    await process.cdp.send("Page.enable", {}, session)
    return session


async def load(process: ChromiumProcess, session: str, url: str) -> dict[str, Any]:
    """Chromium's answer to the navigation, after the page's load event where it has one."""
    loaded = asyncio.Event()

    def on_event(event: CdpEvent) -> None:
        if event.method == "Page.loadEventFired":
            loaded.set()

    stop = process.cdp.subscribe(session, on_event)
    try:
        answer = await process.cdp.send("Page.navigate", {"url": url}, session, 60.0)
        if "errorText" not in answer:
            async with asyncio.timeout(60):
                await loaded.wait()
        return answer
    finally:
        stop()


async def evaluate(process: ChromiumProcess, session: str, expression: str) -> Any:
    params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
    answer = await process.cdp.send("Runtime.evaluate", params, session, 60.0)
    assert "exceptionDetails" not in answer, answer
    return answer["result"].get("value")
