"""Where frames are, and that a point of one is only acted at where the frame is really hit."""

import pytest

from fakes.page_view import HOME, FixtureTab, actor_of
from palyra.browser.domain.action import Click, ElementTarget, ObserveAsk
from palyra.browser.domain.page_errors import ElementCovered, StaleRef

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUTTON = "<button onclick=this.textContent='Hit'>Inner</button>"


async def seen(tab: FixtureTab) -> str:
    return (await actor_of(tab).observe(ObserveAsk(), 9999, 9999)).text


async def test_frames_in_frames_of_other_sites_that_are_scaled_and_moved(tab: FixtureTab) -> None:
    middle = (
        "<div style=height:40px></div><iframe src=http://c.test/ style='margin-left:30px;border:5px solid'></iframe>"
    )
    await tab.show(
        "<style>iframe {transform: scale(.7) translate(80px, 60px); width: 500px; height: 300px}</style>"
        "<iframe src=http://b.test/></iframe>",
        **{"http://b.test/": middle, "http://c.test/": BUTTON},
    )
    assert len({each.session_id for each in tab.frames()}) == 3
    await actor_of(tab).perform(Click(target=ElementTarget(text="Inner")), 30)
    assert '    - button "Hit"' in await seen(tab)


async def test_a_frame_behind_something(tab: FixtureTab) -> None:
    await tab.show(
        "<iframe src=http://b.test/></iframe>"
        "<div role=dialog aria-label=Consent style='position:fixed;inset:0'>x</div>",
        **{"http://b.test/": BUTTON},
    )
    with pytest.raises(ElementCovered, match=r"Inner'\) is covered by e\d+ \(dialog 'Consent'\)"):
        await actor_of(tab).perform(Click(target=ElementTarget(text="Inner")), 1.0)


async def test_a_frame_that_went_away(tab: FixtureTab) -> None:
    await tab.show("<iframe src=http://b.test/></iframe>", **{"http://b.test/": BUTTON})
    actor = actor_of(tab)
    await actor.observe(ObserveAsk(), 9999, 9999)
    await tab.evaluate("document.querySelector('iframe').remove()")
    with pytest.raises(StaleRef, match="gone with its frame"):
        await actor.perform(Click(target=ElementTarget(ref="e2")), 30)
    assert tab.frames()[0].url == HOME
