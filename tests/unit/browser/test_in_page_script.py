"""Our script lives where the page cannot reach it, and comes before the page's own."""

import pytest

from fakes.page_view import ROOM, FixtureTab, actor_of, another_tab
from palyra.browser.domain.action import Click, ElementTarget, ObserveAsk
from palyra.browser.domain.page_errors import DocumentGone, PageScriptFailed, StaleRef
from palyra.browser.page.in_page_script import PageScript, PageWorlds

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.promise("P-browser-target")
async def test_a_page_that_breaks_everything_is_read_and_acted_on_all_the_same(tab: FixtureTab) -> None:
    await tab.show(
        "<form><input name=parentNode><input name=getAttribute><input name=nodeType><input name=children>"
        "<input name=isConnected><input name=checkVisibility><input name=getBoundingClientRect>"
        "<button type=button onclick=\"document.title = 'done'\">Go</button></form><img name=activeElement>"
        "<script>for (const key of ['querySelectorAll', 'closest', 'matches', 'getAttribute', 'checkVisibility'])"
        " Element.prototype[key] = () => { throw new Error(key) }; Array.prototype.map = Map; JSON.stringify = null;"
        "Object.defineProperty(Node.prototype, 'parentNode', {get() { return null }}); Promise = null;"
        "window.requestAnimationFrame = null; document.elementFromPoint = null;</script>"
    )
    actor = actor_of(tab)
    assert 'button "Go" [ref=e8]' in (await actor.observe(ObserveAsk(), ROOM, ROOM)).text
    await actor.perform(Click(target=ElementTarget(ref="e8")), 30)
    assert await tab.evaluate("document.title") == "done"


@pytest.mark.promise("P-browser-target")
async def test_the_page_sees_nothing_of_it(tab: FixtureTab) -> None:
    await tab.show("<button>Go</button>")
    before = await tab.evaluate("Object.getOwnPropertyNames(window).length")
    await actor_of(tab).perform(Click(target=ElementTarget(text="Go")), 30)
    assert await tab.evaluate("Object.getOwnPropertyNames(window).length") == before
    assert await tab.evaluate("document.documentElement.outerHTML") == (
        "<html><head></head><body><button>Go</button></body></html>"
    )


@pytest.mark.promise("P-browser-target")
async def test_it_hears_events_before_the_page_does_from_the_first_document_on(tab: FixtureTab) -> None:
    async with another_tab(tab.process) as fresh:
        actor = actor_of(fresh)
        for _ in range(2):
            # Chromium tells a new page where the mouse already is.
            away = {"type": "mouseMoved", "x": 700, "y": 500}
            await fresh.cdp.send("Input.dispatchMouseEvent", away, fresh.session_id)
            await fresh.show(
                "<script>var heard = 0; addEventListener('mousedown', () => { heard += 1 }, true);"
                "addEventListener('mousemove', (e) => { if (e.target === b) b.textContent = 'Delete' })</script>"
                "<button id=b>Keep</button>"
            )
            with pytest.raises(StaleRef):
                await actor.perform(Click(target=ElementTarget(role="button", name="Keep")), 30)
            assert await fresh.evaluate("heard") == 0


async def test_its_faults_and_a_document_that_is_gone(tab: FixtureTab) -> None:
    await tab.show("<p>x")
    worlds = PageWorlds(tab, PageScript(), lambda text: text.replace("nowhere", "*"))
    frame = tab.frames()[0]
    with pytest.raises(PageScriptFailed, match=r"failed in nowhere|failed in \*"):
        await worlds.call(frame, "nowhere")
    assert await worlds.call(frame, "originNow") == "http://shop.test"
    await tab.show("<p>y")
    with pytest.raises(DocumentGone):
        await worlds.call(frame, "originNow")


async def test_each_session_has_its_own_names() -> None:
    one, other = PageScript(), PageScript()
    assert one.source != other.source
    assert one.binding != other.binding
    # What every document gets is a small part of it.
    assert len(one.early) * 5 < len(one.source)
