"""Tabs that crash, hang, close themselves or lose their browser, in a real Chromium."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_scene import PageScene, page_scene
from palyra.browser.domain.action import CloseTab, Evaluate, Navigate, OpenTab, ResetState, SwitchTab
from palyra.browser.domain.budget import BudgetSpent
from palyra.browser.domain.page_errors import PageTimeout, TabCrashed
from palyra.browser.engine.chromium import NetworkServiceDied
from palyra.browser.engine.isolation_layers import NETWORK_SERVICE
from palyra.browser.engine.process_inspection import descendants, look_at_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT_MS = 1_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageScene]:
    async with page_scene(tmp_path_factory.mktemp("targets")) as scene:
        await scene.open(max_tabs_per_session=3)
        yield scene


@pytest_asyncio.fixture(loop_scope="module")
async def scene(browser: PageScene) -> PageScene:
    await browser.pages.perform(ResetState())
    return browser


async def test_a_crash_is_told_and_the_tab_can_be_used_again(scene: PageScene) -> None:
    await scene.go()
    tab = scene.pages.active_tab()
    # Only we can send a tab there; no caller may.
    crash = asyncio.ensure_future(scene.process.cdp.send("Page.navigate", {"url": "chrome://crash"}, tab.session_id))
    await eventually(lambda: tab.crashed)
    crash.cancel()
    await asyncio.gather(crash, return_exceptions=True)
    with pytest.raises(TabCrashed):
        await scene.run("1")
    assert (await scene.go()).title == "Shop"
    assert (await scene.run("1 + 1")).value_json == "2"


async def test_a_page_that_hangs_stops_nobody_else(scene: PageScene) -> None:
    await scene.go()
    other = (await scene.pages.perform(OpenTab(url=scene.site.url("/", "other.test")))).tab
    hung = scene.pages.tabs()[0].tab
    await scene.pages.perform(SwitchTab(tab=hung))
    await scene.run("setTimeout(() => { while (true) {} }, 0); 1")
    with pytest.raises(PageTimeout):
        await scene.pages.perform(Evaluate(expression="1", timeout_ms=SHORT_MS))
    assert (await scene.run("document.title", other)).value_json == '"Shop"'
    outcome = await scene.pages.perform(CloseTab(tab=hung))
    assert outcome.tab == other


async def test_a_page_that_closes_itself_leaves_a_blank_tab(scene: PageScene) -> None:
    await scene.go()
    opened = await scene.run("open('/'); 1")
    (popup,) = opened.new_tabs
    outcome = await scene.run("setTimeout(() => close(), 0); new Promise(() => 0)", popup.tab)
    assert (outcome.tab, len(scene.pages.tabs()), scene.meter.tabs) == (opened.tab, 1, 1)
    # The last one goes as well: a session always has a tab.
    await scene.process.cdp.send("Target.closeTarget", {"targetId": scene.pages.active_tab().target_id})
    await eventually(lambda: [tab.url for tab in scene.pages.tabs()] == ["about:blank"])
    await eventually(lambda: scene.pages.active_tab().ready.is_set())
    assert (await scene.go()).title == "Shop"


async def test_there_are_only_so_many_tabs(scene: PageScene) -> None:
    for _ in range(2):
        await scene.pages.perform(OpenTab())
    with pytest.raises(BudgetSpent):
        await scene.pages.perform(OpenTab())
    await scene.pages.perform(CloseTab())
    await scene.pages.perform(OpenTab())


async def test_workers_are_let_run(scene: PageScene) -> None:
    scene.site.pages["/inner.js"] = "postMessage('inner')"
    scene.site.pages["/outer.js"] = "new Worker('/inner.js').onmessage = (event) => postMessage(event.data + ' outer')"
    await scene.go()
    said = await scene.run("new Promise((done) => { new Worker('/outer.js').onmessage = (event) => done(event.data) })")
    assert said.value_json == '"inner outer"'


async def test_a_dead_network_service_ends_every_wait_with_its_code(tmp_path: Path) -> None:
    async with page_scene(tmp_path) as scene:
        await scene.open()
        await scene.go()
        scene.site.held["/never"] = asyncio.Event()
        waiting = asyncio.ensure_future(scene.pages.perform(Navigate(url=scene.site.url("/never"))))
        await eventually(lambda: "shop.test/never" in scene.site.asked)
        seen = (look_at_process(pid) for pid in descendants(scene.process.pid))
        (service,) = (each.pid for each in seen if each is not None and each.kind == NETWORK_SERVICE)
        os.kill(service, signal.SIGKILL)
        with pytest.raises(NetworkServiceDied):
            await waiting
        with pytest.raises(NetworkServiceDied):
            await scene.run("1")
        scene.site.held["/never"].set()
