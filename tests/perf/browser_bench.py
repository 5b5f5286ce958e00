"""Browser sessions against Playwright and bare CDP: the same Chromium program, the same pages, in one run.

Ours go through the whole page layer: budget, order, guard of input, settling and outcome. Playwright drives its own
process of the same program through its own driver. Bare CDP is our pipe with nothing around it.
"""

import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks import bars
from fakes.browser_engine import Guarded, launching
from fakes.egress_harness import server
from fakes.page_harness import GENEROUS, SHOP, ListedJudge, WebSite
from palyra.browser.domain.action import Click, ElementTarget, Evaluate, Navigate, ObserveAsk, Type
from palyra.browser.domain.budget import SessionBudget, SessionMeter
from palyra.browser.domain.page_tree import RefCounter
from palyra.browser.engine.browser_folders import UploadFolder
from palyra.browser.engine.chromium import ChromiumLauncher, ChromiumProcess, find_layout
from palyra.browser.engine.prewarm import ProcessPool
from palyra.browser.page.in_page_script import PageScript, PageView
from palyra.browser.page.page import ElementActor
from palyra.browser.tabs.session_tabs import ChromiumPages
from palyra.clock import SystemClock

EVALUATIONS, TRIPLES, LOOKS, STARTS = 200, 40, 15, 5
SESSIONS, EACH_TRIPLES, ROUNDS = 8, 12, 7
# For the memory of one: what all of them share is counted in parts.
IDLE_SESSIONS = 16
FORM = "<title>Form</title><button id=a>First</button> <input id=i> <button id=b>Second</button>"
# 2,000 elements: 400 rows of five.
TABLE = "<title>Table</title><main><h1>Orders</h1><table>{}</table></main>".format(
    "".join(f"<tr><td>Order {n}<td>{n * 7} EUR<td><a href=/{n}>Open {n}</a></tr>" for n in range(400))
)
Work = Callable[[], Awaitable[Any]]


class Session:
    """One of ours: a process, its guard, and its tabs."""

    def __init__(self, process: ChromiumProcess, pages: ChromiumPages, base: str) -> None:
        self.process = process
        self.pages = pages
        self._base = base

    async def go(self, path: str) -> None:
        await self.pages.perform(Navigate(url=f"{self._base}{path}"))

    async def triple(self) -> None:
        await self.pages.perform(Click(target=ElementTarget(css="#a")))
        await self.pages.perform(Type(target=ElementTarget(css="#i"), text="shoes"))
        await self.pages.perform(Click(target=ElementTarget(css="#b")))

    async def evaluate(self) -> None:
        await self.pages.perform(Evaluate(expression="1 + 1"))

    async def look(self) -> None:
        seen = await self.pages.observe(ObserveAsk())
        assert len(seen.text.encode()) <= 16 * 1024


@contextlib.asynccontextmanager
async def session(process: ChromiumProcess, port: int) -> AsyncIterator[Session]:
    guarded = Guarded({SHOP: ("127.0.0.1",)}, f"{SHOP}:{port}")
    guarded.serve(process)
    clock = SystemClock()
    many = {"max_actions_per_session": 10**6, "max_actions_per_window": 10**6, **GENEROUS}
    counter, script, uploads = RefCounter(), PageScript(), UploadFolder(process.files)

    def actor_of(page: PageView) -> ElementActor:
        return ElementActor(page, counter, script, uploads, str)

    pages = await ChromiumPages.open(
        process.cdp,
        judge=ListedJudge(SHOP),
        redact=str,
        meter=SessionMeter(SessionBudget(**many), clock.monotonic()),
        clock=clock,
        actor_of=actor_of,
        script=script,
        allow_evaluate=True,
    )
    try:
        yield Session(process, pages, f"http://{SHOP}:{port}")
    finally:
        await pages.close()
        await guarded.close()
        await process.close(graceful=False)


def run() -> list[dict[str, Any]]:
    import uvloop

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[dict[str, Any]]:
    from playwright.async_api import async_playwright

    site = WebSite()
    site.pages = {"/form": FORM, "/table": TABLE}
    async with server(site.answer) as port, launching(folder / "notes") as launcher, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_layout().chromium)
        rows = await _one(launcher, browser, port)
        rows += await _many(launcher, browser, port)
        await browser.close()
        rows += await _starts(launcher, port)
    return rows


async def _one(launcher: ChromiumLauncher, browser: Any, port: int) -> list[dict[str, Any]]:
    page = await browser.new_page()
    base = f"http://127.0.0.1:{port}"
    async with session(await launcher.start(), port) as ours:
        cdp, bare = ours.process.cdp, ours.pages.active_tab().session_id
        await ours.go("/form")
        await page.goto(f"{base}/form")

        async def bare_evaluate() -> None:
            await cdp.send("Runtime.evaluate", {"expression": "1 + 1", "returnByValue": True}, bare)

        async def playwright_triple() -> None:
            await page.click("#a")
            await page.fill("#i", "shoes")
            await page.click("#b")

        evaluations = await _in_turn(EVALUATIONS, ours.evaluate, lambda: page.evaluate("1 + 1"), bare_evaluate)
        triples = await _in_turn(TRIPLES, ours.triple, playwright_triple, lambda: _bare_triple(cdp, bare))
        await ours.go("/table")
        await page.goto(f"{base}/table")

        async def bare_tree() -> None:
            await cdp.send("Accessibility.getFullAXTree", {}, bare, 60.0)

        body = page.locator("body")
        looks = await _in_turn(LOOKS, ours.look, body.aria_snapshot, bare_tree)
    await page.close()
    return [
        _row("evaluate", evaluations[0], "Playwright", evaluations[1], bars.BROWSER_EVALUATE),
        _row("evaluate", evaluations[0], "bare CDP", evaluations[2], None),
        _row("click, type, click", triples[0], "Playwright", triples[1], bars.BROWSER_ACTIONS),
        _row("click, type, click", triples[0], "bare CDP, nothing checked", triples[2], None),
        _row("snapshot of 2,000 nodes", looks[0], "Playwright's aria snapshot", looks[1], bars.BROWSER_SNAPSHOT),
        _row("snapshot of 2,000 nodes", looks[0], "CDP's getFullAXTree", looks[2], None),
    ]


async def _bare_triple(cdp: Any, session_id: str) -> None:
    where = "(s) => { const b = document.querySelector(s).getBoundingClientRect(); return [b.x + 5, b.y + 5] }"
    for selector in ("#a", "#i", "#b"):
        params = {"expression": f"({where})('{selector}')", "returnByValue": True}
        x, y = (await cdp.send("Runtime.evaluate", params, session_id))["result"]["value"]
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            await cdp.send("Input.dispatchMouseEvent", event, session_id)
        if selector == "#i":
            await cdp.send("Input.insertText", {"text": "shoes"}, session_id)


async def _many(launcher: ChromiumLauncher, browser: Any, port: int) -> list[dict[str, Any]]:
    """Eight at once, in rounds, each in turn, of which the middle one counts: a rate differs by a half from round to
    round. Ours have a process tree each, which keeps principals apart; so have Playwright's that the bar is about. Its
    contexts of one browser share their processes: that row is for information."""
    async with contextlib.AsyncExitStack() as stack:
        ours = []
        for _ in range(SESSIONS):
            ours.append(await stack.enter_async_context(session(await launcher.start(), port)))
        await asyncio.gather(*(each.go("/form") for each in ours))
        few = statistics.mean(_memory(each.process.pid) for each in ours)
        many = await _idle_memory(launcher, ours, port)
        contexts, apart = [], []
        for _ in range(SESSIONS):
            context = await browser.new_context()
            stack.push_async_callback(context.close)
            contexts.append(await context.new_page())
            own = await browser.browser_type.launch(executable_path=find_layout().chromium)
            stack.push_async_callback(own.close)
            apart.append(await own.new_page())
        for page in (*contexts, *apart):
            await page.goto(f"http://127.0.0.1:{port}/form")

        async def playwright_triples(page: Any) -> None:
            for _ in range(EACH_TRIPLES):
                await page.click("#a")
                await page.fill("#i", "shoes")
                await page.click("#b")

        async def our_triples(one: Session) -> None:
            for _ in range(EACH_TRIPLES):
                await one.triple()

        rates: list[list[float]] = [[], [], []]
        for _ in range(ROUNDS):
            rates[0].append(await _rate([lambda each=each: our_triples(each) for each in ours]))  # type: ignore[misc]
            for pages, found in ((apart, rates[1]), (contexts, rates[2])):
                found.append(await _rate([lambda each=each: playwright_triples(each) for each in pages]))  # type: ignore[misc]
        rate, alike, shared = map(statistics.median, rates)
    name = f"actions a second, {SESSIONS} sessions"
    return [
        _figure(name, rate, "actions/s", bars.BROWSER_EIGHT, "Playwright, a browser each", alike),
        _figure(name, rate, "actions/s", None, "Playwright, contexts of one browser", shared),
        _figure(f"memory of an idle session, {IDLE_SESSIONS} open (PSS)", many, "MB", bars.BROWSER_MEMORY),
        _figure(f"memory of an idle session, {SESSIONS} open (PSS)", few, "MB", None),
    ]


async def _idle_memory(launcher: ChromiumLauncher, ours: list[Session], port: int) -> float:
    async with contextlib.AsyncExitStack() as stack:
        every = list(ours)
        while len(every) < IDLE_SESSIONS:
            every.append(await stack.enter_async_context(session(await launcher.start(), port)))
            await every[-1].go("/form")
        return statistics.mean(_memory(each.process.pid) for each in every)


async def _starts(launcher: ChromiumLauncher, port: int) -> list[dict[str, Any]]:
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(STARTS):
        since = time.perf_counter()
        async with session(await launcher.start(), port) as one:
            await one.go("/form")
            cold.append(time.perf_counter() - since)
        pool = ProcessPool(launcher.start, ready=1)
        try:
            pool.fill()
            while pool.ready < 1:
                await asyncio.sleep(0.01)
            since = time.perf_counter()
            async with session(await pool.take(), port) as one:
                await one.go("/form")
                warm.append(time.perf_counter() - since)
        finally:
            await pool.close()
    return [_row("warm session to a loaded page", warm, "a cold one", cold, bars.BROWSER_WARM)]


async def _in_turn(samples: int, *works: Work) -> list[list[float]]:
    """Each in turn, so that a loaded machine is as slow for one as for another."""
    taken: list[list[float]] = [[] for _ in works]
    for at in range(samples + 3):
        for work, times in zip(works, taken, strict=True):
            since = time.perf_counter()
            await work()
            if at >= 3:
                times.append(time.perf_counter() - since)
    return taken


async def _rate(works: list[Work]) -> float:
    since = time.perf_counter()
    await asyncio.gather(*(work() for work in works))
    return len(works) * EACH_TRIPLES * 3 / (time.perf_counter() - since)


def _memory(first: int) -> float:
    """Of a process and all that came of it, in MB; what is shared is counted in parts."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    tree = {first}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    total = 0
    for pid in tree:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def _figure(
    name: str, ours: float, unit: str, bar: Any, peer: str = "-", theirs: float | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "ours_p50": ours,
        "ours_p99": None,
        "peer": peer,
        "peer_p50": theirs,
        "peer_p99": None,
        "ratio": ours / theirs if theirs else None,
        "samples": SESSIONS,
        "bar": bar,
        "unit": unit,
    }


def _row(name: str, ours: list[float], peer_name: str, peer: list[float], bar: Any) -> dict[str, Any]:
    def at(values: list[float], share: float) -> float:
        return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000

    return {
        "name": name,
        "ours_p50": at(ours, 0.5),
        "ours_p99": at(ours, 0.99),
        "peer": peer_name,
        "peer_p50": at(peer, 0.5),
        "peer_p99": at(peer, 0.99),
        "ratio": at(ours, 0.5) / at(peer, 0.5),
        "samples": len(ours),
        "bar": bar,
        "unit": "ms",
    }
