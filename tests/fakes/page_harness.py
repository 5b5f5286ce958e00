"""A session's tabs in a real Chromium behind its fences, a site for them, and a judge that a test tells what to do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fakes.browser_engine import Guarded, launching
from fakes.egress_harness import server
from palyra.browser.domain.action import (
    ActionOutcome,
    ChromiumObserveSnapshot,
    Click,
    ElementAction,
    ElementTarget,
    Evaluate,
    LoadState,
    Made,
    Navigate,
    ObserveAsk,
    Scroll,
)
from palyra.browser.domain.budget import SessionBudget, SessionMeter
from palyra.browser.engine.chromium import ChromiumProcess
from palyra.browser.page.in_page_script import PageScript, PageView
from palyra.browser.tabs.download_folder import DownloadSandboxSession
from palyra.browser.tabs.session_tabs import ChromiumPages
from palyra.clock import SystemClock
from palyra.errors import Denied

SHOP = "shop.test"
OTHER = "other.test"
# Resolves like the others; neither the judge nor the guard lets anybody go there.
EVIL = "evil.test"
# Names under it are allowed; a test says where they lead.
REBOUND = "rebind.test"
SECRET = "hunter2-of-the-vault"


class NotAllowed(Denied):
    code = "test.not_allowed"


class ListedJudge:
    """Lets a session go to the listed hosts, with ``*`` anywhere, and remembers what it was asked."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = set(hosts)
        self.documents: list[str] = []
        # Those of them that have had their answer.
        self.judged: list[str] = []
        self.requests: list[str] = []

    async def judge_document(self, url: str) -> None:
        self.documents.append(url)
        await asyncio.sleep(0)
        self.judged.append(url)
        self._judge(url)

    def judge_content(self, url: str, method: str, headers: tuple[tuple[str, str], ...]) -> None: ...

    def judge_request(self, url: str) -> None:
        self.requests.append(url)
        self._judge(url)

    def _judge(self, url: str) -> None:
        if "*" not in self.hosts and urlsplit(url).hostname not in self.hosts:
            raise NotAllowed(f"{urlsplit(url).hostname} is not on the list")


class PlainActor:
    """Clicks and scrolls by a script, and sees the text of the page: enough to try what stands around it."""

    def __init__(self, page: PageView) -> None:
        self.page = page

    async def perform(self, action: ElementAction, timeout: float) -> Made:
        if isinstance(action, Click):
            assert action.target.css is not None
            await self._run(f"document.querySelector({action.target.css!r}).click()")
        elif isinstance(action, Scroll):
            await self._run(f"scrollBy({action.dx}, {action.dy})")
        await self.page.settle(timeout)
        return Made()

    async def observe(self, ask: ObserveAsk, max_bytes: int, text_bytes: int) -> ChromiumObserveSnapshot:
        text = str(await self._run("document.body.innerText"))
        return ChromiumObserveSnapshot(tab=self.page.tab, url="", title="", form=ask.form, text=text[:max_bytes])

    async def _run(self, expression: str) -> Any:
        world = await self.page.world(self.page.frames()[0])
        params = {"expression": expression, "contextId": world, "returnByValue": True, "userGesture": True}
        asked = asyncio.ensure_future(self.page.cdp.send("Runtime.evaluate", params, self.page.session_id, 60.0))
        opened = asyncio.ensure_future(self.page.dialog_opened())
        await asyncio.wait((asked, opened), return_when=asyncio.FIRST_COMPLETED)
        answer = asked.result() if asked.done() else {}
        for task in (asked, opened):
            task.cancel()
        await asyncio.gather(asked, opened, return_exceptions=True)
        return answer.get("result", {}).get("value")


class WebSite:
    """An HTTP server on loopback for every name. ``pages``: path to a body, or to status, headers and body."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, Any] = {"/": "<title>Shop</title><h1>open</h1>"}
        self.asked: list[str] = []
        self.heads: list[str] = []
        # Paths that are not answered before the event.
        self.held: dict[str, asyncio.Event] = {}
        # Paths whose answer tells no length, and does not end.
        self.unsized: set[str] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                text = head.decode("latin-1")
                path = text.split(" ", 2)[1]
                host = next(line[6:] for line in text.split("\r\n") if line.lower().startswith("host: "))
                self.asked.append(f"{host.split(':')[0]}{path}")
                self.heads.append(text)
                if path.split("?")[0] in self.held:
                    await self.held[path.split("?")[0]].wait()
                writer.write(self._reply(path))
                await writer.drain()

    def _reply(self, path: str) -> bytes:
        page = self.pages.get(path.split("?")[0], (404, {}, "<title>Missing</title>"))
        status, headers, body = (200, {}, page) if isinstance(page, str | bytes) else page
        raw = body.replace("PORT", str(self.port)).encode() if isinstance(body, str) else body
        kind = "text/javascript" if path.split("?")[0].endswith(".js") else "text/html"
        named = {"Content-Type": kind, "Content-Length": str(len(raw)), "Cache-Control": "no-store"} | {
            name: value.replace("PORT", str(self.port)) for name, value in headers.items()
        }
        if path.split("?")[0] in self.unsized:
            del named["Content-Length"]
        lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in named.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw

    def url(self, path: str = "/", host: str = SHOP) -> str:
        return f"http://{host}:{self.port}{path}"


class PageHarness:
    """One browser and one session in it. ``again`` gives the session a new life in another set of objects."""

    def __init__(self, process: ChromiumProcess, guarded: Guarded, site: WebSite, judge: ListedJudge) -> None:
        self.process = process
        self.guarded = guarded
        self.site = site
        self.judge = judge
        self.pages: ChromiumPages
        self.meter: SessionMeter
        # How much had been refused when the test began.
        self.mark = 0

    async def open(
        self, allow_evaluate: bool = True, downloads: DownloadSandboxSession | None = None, **budget: int
    ) -> ChromiumPages:
        """Actions enough for any test, unless that says otherwise."""
        clock = SystemClock()
        limits = {"max_actions_per_session": 10_000, "max_actions_per_window": 10_000, **GENEROUS, **budget}
        self.meter = SessionMeter(SessionBudget(**limits), clock.monotonic())
        self.pages = await ChromiumPages.open(
            self.process.cdp,
            judge=self.judge,
            redact=lambda text: text.replace(SECRET, "[redacted]"),
            meter=self.meter,
            clock=clock,
            actor_of=PlainActor,
            script=PageScript(),
            downloads=downloads,
            allow_evaluate=allow_evaluate,
        )
        return self.pages

    async def go(self, path: str = "/", host: str = SHOP, wait: LoadState = LoadState.LOADED) -> ActionOutcome:
        return await self.pages.perform(Navigate(url=self.site.url(path, host), wait=wait))

    async def run(self, expression: str, tab: str = "") -> ActionOutcome:
        return await self.pages.perform(Evaluate(expression=expression, tab=tab))

    async def click(self, css: str) -> ActionOutcome:
        return await self.pages.perform(Click(target=ElementTarget(css=css)))


# A loaded machine is slow; no test is about these limits unless it sets them.
GENEROUS = {"max_navigation_timeout_ms": 60_000, "max_action_timeout_ms": 60_000}


@contextlib.asynccontextmanager
async def page_harness(folder: Path) -> AsyncIterator[PageHarness]:
    """Without a session: a test opens one."""
    site = WebSite()
    async with server(site.answer) as port, launching(folder / "notes") as launcher:
        site.port = port
        process = await launcher.start()
        names = (SHOP, OTHER, EVIL, "localhost")
        rules = [f"{name}:{port}" for name in (SHOP, OTHER, f"*.{REBOUND}", "localhost")]
        guarded = Guarded(dict.fromkeys(names, ("127.0.0.1",)), *rules)
        guarded.serve(process)
        harness = PageHarness(process, guarded, site, ListedJudge(SHOP, OTHER, "localhost"))
        try:
            yield harness
        finally:
            if hasattr(harness, "pages"):
                await harness.pages.close()
            await guarded.close()
            await process.close(graceful=False)
