"""Tabs that crash, hang, close themselves or lose their browser, in a real Chromium."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_harness import PageHarness, page_harness
from palyra.browser.domain.action import CloseTab, Evaluate, Navigate, OpenTab, ResetState, SwitchTab
from palyra.browser.domain.budget import BudgetSpent
from palyra.browser.domain.page_errors import PageTimeout, TabCrashed
from palyra.browser.engine.chromium import NetworkServiceDied
from palyra.browser.engine.isolation_layers import NETWORK_SERVICE
from palyra.browser.engine.process_inspection import descendants, inspect_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT_MS = 1_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageHarness]:
    async with page_harness(tmp_path_factory.mktemp("targets")) as harness:
        await harness.open(max_tabs_per_session=3)
        yield harness


@pytest_asyncio.fixture(loop_scope="module")
async def harness(browser: PageHarness) -> PageHarness:
    await browser.pages.perform(ResetState())
    return browser


async def test_a_crash_is_told_and_the_tab_can_be_used_again(harness: PageHarness) -> None:
    await harness.go()
    tab = harness.pages.active_tab()
    # Only we can send a tab there; no caller may.
    crash = asyncio.ensure_future(harness.process.cdp.send("Page.navigate", {"url": "chrome://crash"}, tab.session_id))
    await eventually(lambda: tab.crashed)
    crash.cancel()
    await asyncio.gather(crash, return_exceptions=True)
    with pytest.raises(TabCrashed):
        await harness.run("1")
    assert (await harness.go()).title == "Shop"
    assert (await harness.run("1 + 1")).value_json == "2"


async def test_a_page_that_hangs_stops_nobody_else(harness: PageHarness) -> None:
    await harness.go()
    other = (await harness.pages.perform(OpenTab(url=harness.site.url("/", "other.test")))).tab
    hung = harness.pages.tabs()[0].tab
    await harness.pages.perform(SwitchTab(tab=hung))
    await harness.run("setTimeout(() => { while (true) {} }, 0); 1")
    with pytest.raises(PageTimeout):
        await harness.pages.perform(Evaluate(expression="1", timeout_ms=SHORT_MS))
    assert (await harness.run("document.title", other)).value_json == '"Shop"'
    outcome = await harness.pages.perform(CloseTab(tab=hung))
    assert outcome.tab == other


async def test_a_page_that_closes_itself_leaves_a_blank_tab(harness: PageHarness) -> None:
    await harness.go()
    opened = await harness.run("open('/'); 1")
    (popup,) = opened.new_tabs
    outcome = await harness.run("setTimeout(() => close(), 0); new Promise(() => 0)", popup.tab)
    assert (outcome.tab, len(harness.pages.tabs())) == (opened.tab, 1)
    # The last one goes as well: a session always has a tab.
    await harness.process.cdp.send("Target.closeTarget", {"targetId": harness.pages.active_tab().target_id})
    await eventually(lambda: [tab.url for tab in harness.pages.tabs()] == ["about:blank"])
    await eventually(lambda: harness.pages.active_tab().ready.is_set())
    assert (await harness.go()).title == "Shop"


async def test_there_are_only_so_many_tabs(harness: PageHarness) -> None:
    for _ in range(2):
        await harness.pages.perform(OpenTab())
    with pytest.raises(BudgetSpent):
        await harness.pages.perform(OpenTab())
    await harness.pages.perform(CloseTab())
    await harness.pages.perform(OpenTab())


async def test_workers_are_let_run(harness: PageHarness) -> None:
    harness.site.pages["/inner.js"] = "postMessage('inner')"
    harness.site.pages["/outer.js"] = (
        "new Worker('/inner.js').onmessage = (event) => postMessage(event.data + ' outer')"
    )
    await harness.go()
    said = await harness.run(
        "new Promise((done) => { new Worker('/outer.js').onmessage = (event) => done(event.data) })"
    )
    assert said.value_json == '"inner outer"'


async def test_a_dead_network_service_ends_every_wait_with_its_code(tmp_path: Path) -> None:
    async with page_harness(tmp_path) as harness:
        await harness.open()
        await harness.go()
        harness.site.held["/never"] = asyncio.Event()
        waiting = asyncio.ensure_future(harness.pages.perform(Navigate(url=harness.site.url("/never"))))
        await eventually(lambda: "shop.test/never" in harness.site.asked)
        seen = (inspect_process(pid) for pid in descendants(harness.process.pid))
        (service,) = (each.pid for each in seen if each is not None and each.kind == NETWORK_SERVICE)
        os.kill(service, signal.SIGKILL)
        with pytest.raises(NetworkServiceDied):
            await waiting
        with pytest.raises(NetworkServiceDied):
            await harness.run("1")
        harness.site.held["/never"].set()
