"""Clicks, hovering, dragging and scrolling as a page sees them."""

import pytest

from fakes.page_view import FixtureTab, actor_of
from palyra.browser.domain.action import Click, DoubleClick, Drag, ElementTarget, Hover, MouseButton, Scroll
from palyra.browser.domain.page_errors import BadKey, StaleRef
from palyra.errors import PalyraError

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = 30.0


def css(selector: str) -> ElementTarget:
    return ElementTarget(css=selector)


SAID = "<script>var said = []; const say = (event, more = '') => said.push(event.type + more)</script>"


async def test_a_click_is_made_of_real_events(tab: FixtureTab) -> None:
    types = "['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click', 'dblclick', 'contextmenu', 'auxclick']"
    await tab.show(
        f"{SAID}<button>Go</button><script>for (const type of {types}) document.querySelector('button')"
        ".addEventListener(type, (e) => say(e, e.isTrusted ? '' : '!'))</script>"
    )
    actor = actor_of(tab)
    await actor.perform(Click(target=css("button")), ENOUGH)
    assert await tab.evaluate("said.splice(0)") == ["pointerdown", "mousedown", "pointerup", "mouseup", "click"]
    await actor.perform(DoubleClick(target=css("button")), ENOUGH)
    assert (await tab.evaluate("said.splice(0)"))[-2:] == ["click", "dblclick"]
    await actor.perform(Click(target=css("button"), button=MouseButton.RIGHT), ENOUGH)
    assert "contextmenu" in await tab.evaluate("said.splice(0)")
    await actor.perform(Click(target=css("button"), button=MouseButton.MIDDLE), ENOUGH)
    assert "auxclick" in await tab.evaluate("said.splice(0)")


async def test_modifiers_of_a_click(tab: FixtureTab) -> None:
    await tab.show('<button onclick="this.textContent = [event.shiftKey, event.ctrlKey, event.altKey]">Go</button>')
    await actor_of(tab).perform(Click(target=css("button"), modifiers=("Shift", "Control")), ENOUGH)
    assert await tab.evaluate("document.querySelector('button').textContent") == "true,true,false"
    with pytest.raises(BadKey):
        await actor_of(tab).perform(Click(target=css("button"), modifiers=("Hyper",)), ENOUGH)


async def test_a_label_and_its_hidden_box_are_one(tab: FixtureTab) -> None:
    await tab.show(
        "<style>input {opacity: 0; position: absolute}</style>"
        "<label style=position:relative><input type=checkbox>"
        "<span style='position:absolute;background:red;inset:0'>x</span>Agree to all of it</label>"
    )
    actor = actor_of(tab)
    await actor.perform(Click(target=css("input")), ENOUGH)
    assert await tab.evaluate("document.querySelector('input').checked") is True
    await actor.perform(Click(target=css("label")), ENOUGH)
    assert await tab.evaluate("document.querySelector('input').checked") is False


async def test_far_down_in_nested_frames_and_boxes(tab: FixtureTab) -> None:
    inner = "<div style=height:3000px></div><button onclick=\"parent.postMessage('hit', '*')\">Deep</button>"
    await tab.show(
        f"{SAID}<script>onmessage = (event) => say({{type: event.data}})</script><div style=height:2500px></div>"
        "<iframe src=http://pay.test/ style='border:9px solid;padding:7px;width:300px;height:200px'></iframe>",
        **{"http://pay.test/": inner},
    )
    await actor_of(tab).perform(Click(target=ElementTarget(text="Deep")), ENOUGH)
    hit = "new Promise((done) => said.length ? done(said) : addEventListener('message', () => done(said)))"
    assert await tab.evaluate(hit) == ["hit"]


async def test_hovering_opens_what_opens_then(tab: FixtureTab) -> None:
    await tab.show("<style>p {display: none} div:hover p {display: block}</style><div id=menu>Menu<p>Item</p></div>")
    await actor_of(tab).perform(Hover(target=css("#menu")), ENOUGH)
    assert await tab.evaluate("getComputedStyle(document.querySelector('p')).display") == "block"


NATIVE_DRAG = """<div id=a draggable=true style='width:90px;height:40px;background:red'>Card</div>
<div id=b style='margin-top:200px;width:200px;height:90px;background:blue'>Bin</div><script>
a.ondragstart = (event) => event.dataTransfer.setData("text/plain", "card 7");
b.ondragover = (event) => event.preventDefault();
b.ondrop = (event) => { event.preventDefault(); b.textContent = event.dataTransfer.getData("text/plain"); };
</script>"""
OWN_DRAG = """<div id=a style='position:absolute;left:9px;top:9px;width:90px;height:40px;background:red'>Card</div>
<div id=b style='position:absolute;left:300px;top:200px;width:200px;height:90px;background:blue'>Bin</div><script>
var moves = 0, held = false;
a.onmousedown = () => { held = true; };
onmousemove = (event) => { if (held) moves += 1; };
b.onmouseup = () => { if (held) b.textContent = "dropped after " + (moves > 2 ? "moves" : "nothing"); held = false; };
</script>"""


async def test_dragging_of_the_browsers_kind_and_of_the_pages_own(tab: FixtureTab) -> None:
    actor = actor_of(tab)
    await tab.show(NATIVE_DRAG)
    await actor.perform(Drag(target=css("#a"), to=css("#b")), ENOUGH)
    assert await tab.evaluate("b.textContent") == "card 7"
    await tab.show(OWN_DRAG)
    await actor.perform(Drag(target=css("#a"), to=css("#b")), ENOUGH)
    assert await tab.evaluate("b.textContent") == "dropped after moves"


async def test_a_drag_is_not_dropped_on_what_the_target_became(tab: FixtureTab) -> None:
    for page, moment in ((OWN_DRAG, "mousedown"), (NATIVE_DRAG, "dragstart")):
        await tab.show(page)
        await tab.evaluate(f"a.addEventListener('{moment}', () => {{ b.firstChild.data = 'Archive'; }})")
        with pytest.raises(PalyraError) as refused:
            await actor_of(tab).perform(Drag(target=css("#a"), to=css("#b")), ENOUGH)
        assert isinstance(refused.value, StaleRef), refused.value
        assert await tab.evaluate("b.textContent") == "Archive"


async def test_scrolling_by_pixels_into_view_and_with_a_wheel(tab: FixtureTab) -> None:
    await tab.show(
        f"{SAID}<div id=box style='width:200px;height:100px;overflow:auto'><div style=height:900px>tall</div></div>"
        "<div id=map style='width:100px;height:100px;background:green'>map</div>"
        "<div style=height:3000px></div><p>Low</p>"
        "<script>map.onwheel = (event) => say(event, event.deltaX)</script>"
    )
    actor = actor_of(tab)
    await actor.perform(Scroll(target=css("#box"), dy=120), ENOUGH)
    assert await tab.evaluate("[box.scrollTop, scrollY]") == [120, 0]
    await actor.perform(Scroll(dy=150), ENOUGH)
    assert await tab.evaluate("[box.scrollTop, scrollY]") == [120, 150]
    await actor.perform(Scroll(target=ElementTarget(text="Low")), ENOUGH)
    assert await tab.evaluate("document.querySelector('p').getBoundingClientRect().bottom <= innerHeight") is True
    await actor.perform(Scroll(target=css("#map")), ENOUGH)
    await actor.perform(Scroll(target=css("#map"), dx=30), ENOUGH)
    assert await tab.evaluate("said") == ["wheel30"]
