"""A tab fed with events as Chromium sends them, without one."""

import asyncio
from typing import Any

import pytest

from palyra.browser.domain.action import LoadState
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.page_errors import DocumentGone, PageTimeout, TabCrashed
from palyra.browser.engine.cdp_connection import TargetGone
from palyra.browser.tabs.tab import TabPage, shows_forbidden


class Silent:
    """A browser that answers what a test said it would, and nothing else."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.contexts = 0
        self.answering = True

    async def send(
        self, method: str, params: dict[str, Any] | None = None, session_id: str | None = None, timeout: float = 1.0
    ) -> dict[str, Any]:
        self.asked.append(method)
        if not self.answering:
            await asyncio.Event().wait()
        self.contexts += 1
        return {"executionContextId": self.contexts}

    def ask(self, *words: Any) -> "asyncio.Future[dict[str, Any]]":
        return asyncio.ensure_future(self.send(*words))


class Watcher:
    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []

    def committed(self, tab: TabPage, url: str, loader_id: str) -> None:
        self.shown.append((url, loader_id))


class TabHarness:
    def __init__(self) -> None:
        self.browser, self.watcher = Silent(), Watcher()
        self.tab = TabPage(self.browser, "t1", "M", "S", self.watcher.committed, binding="tell")  # type: ignore[arg-type]

    def say(self, method: str, session: str = "S", **params: Any) -> None:
        self.tab.on_event(CdpEvent(method, params, session))

    def show(self, loader: str, url: str = "http://a.test/", **more: Any) -> None:
        self.say("Page.frameStartedNavigating", frameId="M", loaderId=loader, url=url, navigationType="x")
        self.say("Page.frameNavigated", frame={"id": "M", "loaderId": loader, "url": url, **more}, type="Navigation")


async def test_a_world_belongs_to_one_document() -> None:
    harness = TabHarness()
    harness.show("L1")
    (main,) = harness.tab.frames()
    first = await harness.tab.world(main)
    assert await harness.tab.world(main) == first
    assert harness.browser.asked == ["Page.createIsolatedWorld"]
    harness.say("Runtime.executionContextDestroyed", executionContextId=first)
    assert await harness.tab.world(main) != first
    harness.show("L2")
    with pytest.raises(DocumentGone):
        await harness.tab.world(main)
    harness.say("Page.frameAttached", frameId="C", parentFrameId="M")
    harness.say("Page.frameNavigated", "S2", frame={"id": "C", "loaderId": "L3", "url": "http://b.test/"})
    child = harness.tab.frames()[1]
    await harness.tab.world(child)
    harness.tab.session_gone("S2")
    with pytest.raises(DocumentGone):
        await harness.tab.world(child)


def created(context: int, frame: str = "M", name: str = "palyra") -> dict[str, Any]:
    return {"context": {"id": context, "name": name, "auxData": {"frameId": frame}}}


async def test_a_world_that_came_with_its_document_is_not_asked_for() -> None:
    harness = TabHarness()
    harness.show("L1")
    harness.say("Runtime.executionContextCreated", **created(7, name=""))
    harness.say("Runtime.executionContextCreated", **created(8))
    (main,) = harness.tab.frames()
    assert await harness.tab.world(main) == 8
    assert harness.browser.asked == []
    harness.say("Runtime.executionContextsCleared")
    await harness.tab.world(main)
    assert harness.browser.asked == ["Page.createIsolatedWorld"]


async def test_a_title_is_told_by_the_document_that_is_shown_and_by_no_other() -> None:
    harness = TabHarness()
    harness.show("L1")
    harness.say("Runtime.executionContextCreated", **created(8))
    harness.say("Runtime.executionContextCreated", **created(9, frame="C"))
    for name, context, session in (("other", 8, "S"), ("tell", 9, "S"), ("tell", 8, "S2")):
        harness.say("Runtime.bindingCalled", session, name=name, executionContextId=context, payload="Wrong")
    assert (harness.tab.title, harness.tab.title_reported) == ("", False)
    harness.say("Runtime.bindingCalled", name="tell", executionContextId=8, payload="Right")
    assert (harness.tab.title, harness.tab.title_reported) == ("Right", True)
    harness.show("L2")
    harness.say("Runtime.executionContextCreated", **created(10))
    harness.say("Runtime.bindingCalled", name="tell", executionContextId=8, payload="Late")
    assert (harness.tab.title, harness.tab.title_reported) == ("", False)


async def test_what_has_answered_is_not_asked_again() -> None:
    harness = TabHarness()
    harness.show("L1")
    harness.say("Page.frameStoppedLoading", frameId="M")
    await harness.tab.settle(60, answered=True)
    assert harness.browser.asked == []


async def test_a_document_that_goes_away_while_its_world_is_made_has_none() -> None:
    harness = TabHarness()
    harness.show("L1")
    (main,) = harness.tab.frames()
    send = harness.browser.send

    async def moves_on(*words: Any, **options: Any) -> dict[str, Any]:
        harness.show("L2")
        return await send(*words, **options)

    harness.browser.send = moves_on  # type: ignore[method-assign]
    with pytest.raises(DocumentGone):
        await harness.tab.world(main)


async def test_a_navigation_that_input_began_is_waited_for() -> None:
    harness = TabHarness()
    harness.show("L1")
    harness.say("Page.frameStoppedLoading", frameId="M")
    await harness.tab.settle(60)
    harness.say("Page.frameRequestedNavigation", frameId="M", disposition="currentTab", url="http://a.test/2")
    settling = asyncio.ensure_future(harness.tab.settle(60))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not settling.done()
    harness.show("L2", "http://a.test/2")
    harness.say("Page.lifecycleEvent", frameId="M", loaderId="L2", name="DOMContentLoaded")
    await settling
    assert harness.tab.load.has_reached(LoadState.CONTENT) and harness.watcher.shown[-1] == ("http://a.test/2", "L2")


async def test_what_was_asked_for_and_never_starts_is_not_waited_for() -> None:
    """A link to another program, or to another tab."""
    harness = TabHarness()
    harness.show("L1")
    harness.say("Page.frameStoppedLoading", frameId="M")
    harness.say("Page.frameRequestedNavigation", frameId="M", disposition="newTab", url="http://a.test/2")
    assert not harness.tab.load.moving
    harness.say("Page.frameRequestedNavigation", frameId="M", disposition="currentTab", url="mailto:a@b.test")
    await harness.tab.settle(60)
    assert not harness.tab.load.moving


async def test_a_dialog_ends_every_wait_and_an_answer_to_leaving_is_heard() -> None:
    harness = TabHarness()
    harness.show("L1")
    waiting = asyncio.ensure_future(harness.tab.until(lambda: False, 60))
    opened = asyncio.ensure_future(harness.tab.dialog_opened())
    await asyncio.sleep(0)
    harness.say("Page.javascriptDialogOpening", type="beforeunload", message="leave?", frameId="M")
    await asyncio.gather(waiting, opened)
    dialog = harness.tab.dialog()
    assert dialog is not None and dialog.kind == "beforeunload"
    harness.say("Page.frameStartedNavigating", frameId="M", loaderId="L2", url="http://b.test/", navigationType="x")
    harness.say("Page.javascriptDialogClosed", result=False)
    assert harness.tab.dialog() is None and not harness.tab.load.moving


async def test_whoever_waits_for_a_tab_that_is_gone_is_told() -> None:
    harness = TabHarness()
    waiting = asyncio.ensure_future(harness.tab.until(lambda: False, 60))
    await asyncio.sleep(0)
    harness.say("Inspector.targetCrashed")
    with pytest.raises(TabCrashed):
        await waiting
    harness.show("L1")
    assert harness.tab.failed() is None
    waiting = asyncio.ensure_future(harness.tab.until(lambda: False, 60))
    await asyncio.sleep(0)
    harness.tab.fail(TargetGone("closed"))
    with pytest.raises(TargetGone):
        await waiting
    with pytest.raises(TargetGone):
        await harness.tab.until(lambda: False, 60)


async def test_a_page_that_does_not_answer_is_not_waited_for_longer_than_said() -> None:
    harness = TabHarness()
    harness.browser.answering = False
    with pytest.raises(PageTimeout):
        await harness.tab.ask("Runtime.evaluate", {}, 0.01)


async def test_a_failed_page_shows_where_it_wanted_to_go() -> None:
    harness = TabHarness()
    harness.show("L1", "chrome-error://chromewebdata/", unreachableUrl="http://a.test/x")
    assert harness.tab.view(active=True).url == "http://a.test/x"


@pytest.mark.parametrize(
    ("url", "forbidden"),
    [
        ("http://a.test/", False),
        ("about:blank", False),
        ("chrome-error://chromewebdata/", False),
        ("blob:http://a.test/1", True),
        ("data:text/html,x", True),
        ("file:///x", True),
        ("chrome://version/", True),
    ],
)
def test_what_a_tab_may_not_show(url: str, forbidden: bool) -> None:
    assert shows_forbidden(url) is forbidden
