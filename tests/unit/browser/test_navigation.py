"""Navigation against a site that is slow, broken or elsewhere, in a real Chromium."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.eventually import eventually
from fakes.page_harness import OTHER, SECRET, PageHarness, page_harness
from palyra.browser.domain.action import LoadState, Navigate, Reload, ResetState
from palyra.browser.domain.page_errors import NavigationFailed, NavigationTimeout

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Long enough for a loaded machine to begin, short enough to wait for.
SHORT_MS = 3_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageHarness]:
    async with page_harness(tmp_path_factory.mktemp("navigation")) as harness:
        await harness.open()
        yield harness


@pytest_asyncio.fixture(loop_scope="module")
async def harness(browser: PageHarness) -> AsyncIterator[PageHarness]:
    await browser.pages.perform(ResetState())
    browser.site.held.clear()
    yield browser
    for event in browser.site.held.values():
        event.set()


async def test_a_site_that_does_not_answer_is_given_up(harness: PageHarness) -> None:
    await harness.go()
    harness.site.held["/never"] = asyncio.Event()
    with pytest.raises(NavigationTimeout) as late:
        await harness.pages.perform(Navigate(url=harness.site.url("/never"), timeout_ms=SHORT_MS))
    assert late.value.details["committed"] is False
    # The tab is where it was and goes on working.
    seen = await harness.run("document.title")
    assert (seen.value_json, seen.loading) == ('"Shop"', False)


async def test_a_page_whose_parts_do_not_come_is_there_all_the_same(harness: PageHarness) -> None:
    harness.site.pages["/slow"] = "<title>Slow</title><img src=/never><p>text</p>"
    harness.site.held["/never"] = asyncio.Event()
    for state in (LoadState.COMMITTED, LoadState.CONTENT):
        outcome = await harness.go("/slow", wait=state)
        assert (outcome.url, outcome.loading) == (harness.site.url("/slow"), True)
    with pytest.raises(NavigationTimeout) as late:
        await harness.pages.perform(Navigate(url=harness.site.url("/slow"), timeout_ms=SHORT_MS))
    assert late.value.details["committed"] is True
    assert (await harness.run("document.title")).value_json == '"Slow"'
    harness.site.held.pop("/never").set()
    assert not (await harness.pages.perform(Reload())).loading


async def test_redirects_within_what_is_allowed_are_followed(harness: PageHarness) -> None:
    harness.site.pages["/moved"] = (302, {"Location": f"http://{OTHER}:PORT/"}, "")
    before = len(harness.judge.documents)
    outcome = await harness.go("/moved")
    assert (outcome.url, outcome.status) == (harness.site.url("/", OTHER), 200)
    # Each step was judged: the address before Chromium heard of it, then each request.
    judged = [harness.site.url("/moved"), harness.site.url("/moved"), harness.site.url("/", OTHER)]
    assert harness.judge.documents[before:] == judged


async def test_an_answer_without_a_document_leaves_the_page_where_it_is(harness: PageHarness) -> None:
    harness.site.pages["/nothing"] = (204, {}, "")
    await harness.go()
    outcome = await harness.go("/nothing")
    assert (outcome.url, outcome.loading) == (harness.site.url("/"), False)


async def test_a_failure_is_told_without_secrets_and_the_tab_shows_where_it_wanted_to_go(harness: PageHarness) -> None:
    with pytest.raises(NavigationFailed) as failed:
        await harness.pages.perform(Navigate(url=f"http://shop.test:1/{SECRET}"))
    assert SECRET not in failed.value.message
    outcome = await harness.run("1")
    assert outcome.url == "http://shop.test:1/[redacted]"


async def test_a_page_that_goes_on_by_itself_is_followed(harness: PageHarness) -> None:
    harness.site.pages["/chain"] = "<script>location.replace('/end')</script>"
    harness.site.pages["/end"] = "<title>End</title>"
    await harness.go("/chain", wait=LoadState.IDLE)
    await eventually(lambda: harness.pages.active_tab().url == harness.site.url("/end"))
