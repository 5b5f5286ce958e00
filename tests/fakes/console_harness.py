"""A real daemon, a real Chromium, and an operator's pages in it. One harness serves a whole module of tests."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from fakes.daemon import PALYRA, Daemon, Place
from fakes.persistent_chromium import CHROMIUM
from fakes.started_warm import start_palyra

AXE = Path(sys.prefix) / "axe-core" / "node_modules" / "axe-core" / "axe.min.js"
_ARGUMENTS = [
    "--no-sandbox",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--disable-background-networking",
]
WIDE, PHONE = 1280, 390
# A loaded machine is slow, and no test is about how slow.
PATIENCE_MS = 45_000
# How often a page is walked through with the keyboard while news changes it.
WALKS = 5
_WATCH_FOCUS = """
globalThis.reached = new WeakSet();
document.addEventListener("focusin", (event) => reached.add(event.target));
globalThis.refreshed = 0;
document.addEventListener("palyra:refreshed", () => refreshed += 1);
globalThis.operable = (inside) => [...document.querySelector(inside).querySelectorAll(
  "a[href], button, input, select, textarea, summary, [tabindex='0'], .scroll, pre.code, canvas")]
  .filter((each) => each.checkVisibility() && !each.disabled && each.type !== "hidden");
document.activeElement.blur();
"""
# Where a walk along a whole page begins, and one past what every page has in common.
_WHOLE, _PAST_THE_MENU = "body", "main"
# What a browser says about an answer that a test asked to be refused.
_EXPECTED = "Failed to load resource"


class ConsoleHarness:
    def __init__(self, place: Place, daemon: Daemon, browser: Browser) -> None:
        self.place = place
        self.daemon = daemon
        self.browser = browser
        self.complaints: list[str] = []
        self._contexts: list[BrowserContext] = []
        self._calls: list[subprocess.Popen[str]] = []

    def page(self, path: str = "/", *, width: int = WIDE, dark: bool = False, token: str | None = None) -> Page:
        """A page of somebody who has just logged in, in a browser profile of its own."""
        page = self.stranger(width=width, dark=dark)
        page.goto(f"{self.daemon.url}/login")
        page.fill("#token", token or self.daemon.token)
        page.click("button.primary")
        page.wait_for_url(f"{self.daemon.url}/")
        self.open(page, path)
        return page

    def stranger(self, *, width: int = WIDE, dark: bool = False) -> Page:
        context = self.browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._note_complaint)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        return page

    def open(self, page: Page, path: str) -> None:
        """The page, once it listens to news: what happens from then on it shows by itself."""
        page.goto(f"{self.daemon.url}{path}")
        page.wait_for_selector("[data-lamp=on]", state="attached")

    def start_call(self, tool: str, arguments: dict[str, Any], *, principal: str = "agent:bot") -> "WaitingCall":
        """A call of an agent that waits for a person, as long as it takes."""
        process = start_palyra(
            [
                *PALYRA,
                "call",
                tool,
                "--principal",
                principal,
                "--wait",
                "120",
                "--json",
                "--input",
                json.dumps(arguments),
            ],
            env=self.place.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._calls.append(process)
        return WaitingCall(process)

    def palyra(self, *arguments: str) -> Any:
        return self.place.palyra(*arguments, "--json").document

    def close_pages(self) -> None:
        while self._contexts:
            self._contexts.pop().close()

    def close(self) -> None:
        self.close_pages()
        for process in self._calls:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _note_complaint(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and _EXPECTED not in message.text:
            self.complaints.append(f"{message.location.get('url', '')}: {message.text}")


class WaitingCall:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def document(self) -> Any:
        stdout, _ = self._process.communicate(timeout=60)
        return json.loads(stdout)


@contextmanager
def console_harness(root: Path, settings: str = "", *, browser: bool = False) -> Iterator[ConsoleHarness]:
    """``browser``: with a browser daemon of its own, whose browsers agents use."""
    place = Place(root, settings)
    with place.daemon(browser=browser) as daemon, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=_ARGUMENTS)
        harness = ConsoleHarness(place, daemon, browser)
        try:
            yield harness
        finally:
            harness.close()
            browser.close()


def violations_of(page: Page, *, menu: bool = True) -> list[str]:
    """What axe-core finds against WCAG A and AA. The content policy of the page keeps it out, so it comes by CDP."""
    page.evaluate(f"globalThis.axe || (() => {{ {_axe()} }})()")
    found: list[dict[str, Any]] = page.evaluate(
        "async (part) => (await axe.run(part ?? document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'], "
        "resultTypes: ['violations']})).violations",
        None if menu else {"exclude": [["header.side"]]},
    )
    return [
        f"{each['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
        for each in found
        for node in each["nodes"]
    ]


@cache
def _axe() -> str:
    return AXE.read_text(encoding="utf-8")


def unreached_by_keyboard(page: Page, *, menu: bool = True) -> list[str]:
    """What can be used with a pointer and is not come to with the tabulator. A page that was told news on the way has
    other elements in the place of those that were come to: it is walked again."""
    where = _WHOLE if menu else _PAST_THE_MENU
    for _ in range(WALKS):
        page.evaluate(_WATCH_FOCUS)
        if not menu:
            page.focus(where)
        for _ in range(int(page.evaluate("(where) => operable(where).length", where)) + 2):
            page.keyboard.press("Tab")
        left: list[str] = page.evaluate(
            "(where) => operable(where).filter((one) => !reached.has(one)).map((one) => one.outerHTML.slice(0, 120))",
            where,
        )
        if not left or page.evaluate("refreshed") == 0:
            break
    return left


def overflow_of(page: Page) -> int:
    """Pixels by which a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
