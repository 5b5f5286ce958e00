"""Navigation against a site that is slow, broken or elsewhere, in a real Chromium."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_scene import OTHER, SECRET, PageScene, page_scene
from palyra.browser.domain.action import LoadState, Navigate, Reload, ResetState
from palyra.browser.domain.page_errors import NavigationFailed, NavigationTimeout

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Long enough for a loaded machine to begin, short enough to wait for.
SHORT_MS = 3_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageScene]:
    async with page_scene(tmp_path_factory.mktemp("navigation")) as scene:
        await scene.open()
        yield scene


@pytest_asyncio.fixture(loop_scope="module")
async def scene(browser: PageScene) -> AsyncIterator[PageScene]:
    await browser.pages.perform(ResetState())
    browser.site.held.clear()
    yield browser
    for event in browser.site.held.values():
        event.set()


async def test_a_site_that_does_not_answer_is_given_up(scene: PageScene) -> None:
    await scene.go()
    scene.site.held["/never"] = asyncio.Event()
    with pytest.raises(NavigationTimeout) as late:
        await scene.pages.perform(Navigate(url=scene.site.url("/never"), timeout_ms=SHORT_MS))
    assert late.value.details["committed"] is False
    # The tab is where it was and goes on working.
    seen = await scene.run("document.title")
    assert (seen.value_json, seen.loading) == ('"Shop"', False)


async def test_a_page_whose_parts_do_not_come_is_there_all_the_same(scene: PageScene) -> None:
    scene.site.pages["/slow"] = "<title>Slow</title><img src=/never><p>text</p>"
    scene.site.held["/never"] = asyncio.Event()
    for state in (LoadState.COMMITTED, LoadState.CONTENT):
        outcome = await scene.go("/slow", wait=state)
        assert (outcome.url, outcome.loading) == (scene.site.url("/slow"), True)
    with pytest.raises(NavigationTimeout) as late:
        await scene.pages.perform(Navigate(url=scene.site.url("/slow"), timeout_ms=SHORT_MS))
    assert late.value.details["committed"] is True
    assert (await scene.run("document.title")).value_json == '"Slow"'
    scene.site.held.pop("/never").set()
    assert not (await scene.pages.perform(Reload())).loading


async def test_redirects_within_what_is_allowed_are_followed(scene: PageScene) -> None:
    scene.site.pages["/moved"] = (302, {"Location": f"http://{OTHER}:PORT/"}, "")
    before = len(scene.judge.documents)
    outcome = await scene.go("/moved")
    assert (outcome.url, outcome.status) == (scene.site.url("/", OTHER), 200)
    # Each step was judged: the address before Chromium heard of it, then each request.
    judged = [scene.site.url("/moved"), scene.site.url("/moved"), scene.site.url("/", OTHER)]
    assert scene.judge.documents[before:] == judged


async def test_an_answer_without_a_document_leaves_the_page_where_it_is(scene: PageScene) -> None:
    scene.site.pages["/nothing"] = (204, {}, "")
    await scene.go()
    outcome = await scene.go("/nothing")
    assert (outcome.url, outcome.loading) == (scene.site.url("/"), False)


async def test_a_failure_is_told_without_secrets_and_the_tab_shows_where_it_wanted_to_go(scene: PageScene) -> None:
    with pytest.raises(NavigationFailed) as failed:
        await scene.pages.perform(Navigate(url=f"http://shop.test:1/{SECRET}"))
    assert SECRET not in failed.value.message
    outcome = await scene.run("1")
    assert outcome.url == "http://shop.test:1/[redacted]"


async def test_a_page_that_goes_on_by_itself_is_followed(scene: PageScene) -> None:
    scene.site.pages["/chain"] = "<script>location.replace('/end')</script>"
    scene.site.pages["/end"] = "<title>End</title>"
    await scene.go("/chain", wait=LoadState.IDLE)
    await eventually(lambda: scene.pages.active_tab().url == scene.site.url("/end"))
