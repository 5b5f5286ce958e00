"""Nothing is done to another element than the one that was meant, whatever the page does meanwhile."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from fakes.page_view import ROOM, FixtureTab, actor_of, another_tab
from palyra.browser.domain.action import Click, DoubleClick, ElementTarget, ObserveAsk
from palyra.browser.domain.page_errors import (
    DialogOpen,
    ElementCovered,
    ElementDisabled,
    ElementHidden,
    ElementMoving,
    InputStrayed,
    StaleRef,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = 30.0
# Time that is over at once: what does not hold now is told.
NOW = 0.3


def ref(name: str) -> ElementTarget:
    return ElementTarget(ref=name)


async def clicked(tab: FixtureTab) -> list[str]:
    return list(await tab.evaluate("clicked"))


NOTE = "<script>var clicked = []; const note = (it) => clicked.push(it)</script>"


async def test_a_changed_name_is_told_with_what_it_is_now(tab: FixtureTab) -> None:
    await tab.show(f"{NOTE}<button id=b onclick=note(1)>Buy</button>")
    actor = actor_of(tab)
    await actor.observe(ObserveAsk(), ROOM, ROOM)
    await tab.evaluate("b.textContent = 'Sell'")
    with pytest.raises(
        StaleRef, match=r"e1 \(button 'Buy'\) has another name now: it is e2 \(button 'Sell'\)"
    ) as stale:
        await actor.perform(Click(target=ref("e1")), ENOUGH)
    assert stale.value.details["candidates"] == [{"ref": "e2", "role": "button", "name": "Sell"}]
    assert await clicked(tab) == []
    await actor.perform(Click(target=ref("e2")), ENOUGH)
    assert await clicked(tab) == [1]


@pytest.mark.promise("P-browser-target")
async def test_a_new_element_of_the_same_name_is_the_nearest_and_not_the_same(tab: FixtureTab) -> None:
    await tab.show(f"{NOTE}<button id=b onclick=note(1)>Buy</button>")
    actor = actor_of(tab)
    await actor.observe(ObserveAsk(), ROOM, ROOM)
    await tab.evaluate("b.outerHTML = b.outerHTML")
    with pytest.raises(StaleRef, match=r"was taken from the page; nearest is e2 \(button 'Buy'\)"):
        await actor.perform(Click(target=ref("e1")), ENOUGH)
    await tab.evaluate("b.setAttribute('role', 'link')")
    with pytest.raises(StaleRef, match=r"another role now: it is e3 \(link 'Buy'\)"):
        await actor.perform(Click(target=ref("e2")), ENOUGH)
    assert await clicked(tab) == []


async def test_what_is_in_front_is_named(tab: FixtureTab) -> None:
    await tab.show(
        f"{NOTE}<button onclick=note(1)>Buy</button><div role=dialog aria-label=Cookies id=d"
        " style='position:fixed;inset:0'>We like cookies <button onclick=d.remove()>Fine</button></div>"
    )
    actor = actor_of(tab)
    with pytest.raises(ElementCovered, match=r"\(button 'Buy'\) is covered by e2 \(dialog 'Cookies'\)") as covered:
        await actor.perform(Click(target=ElementTarget(text="Buy")), NOW)
    assert covered.value.details["covered_by"] == "e2"
    await actor.perform(Click(target=ElementTarget(text="Fine")), ENOUGH)
    await actor.perform(Click(target=ElementTarget(text="Buy")), ENOUGH)
    assert await clicked(tab) == [1]


async def test_disabled_hidden_and_moving_elements(tab: FixtureTab) -> None:
    await tab.show(
        "<style>@keyframes m {to {margin-left: 400px}} #m {animation: m .4s infinite alternate linear}</style>"
        "<fieldset disabled><button>Off</button></fieldset><button style=display:none>None</button>"
        "<button style=position:fixed;left:-900px>Away</button><button id=m>Moves</button>"
        "<button aria-disabled=true>Also off</button>"
    )
    actor = actor_of(tab)
    for name, problem in (
        ("Off", ElementDisabled),
        ("Also off", ElementDisabled),
        ("Away", ElementHidden),
        ("Moves", ElementMoving),
    ):
        with pytest.raises(problem, match=name):
            await actor.perform(Click(target=ElementTarget(role="button", name=name)), NOW)
    with pytest.raises(ElementHidden):
        await actor.perform(Click(target=ElementTarget(css="button[style*=none]")), NOW)


async def test_what_two_frames_show_at_one_place_may_still_be_moving(tab: FixtureTab) -> None:
    """A step takes less than two frames, so that never three are alike: as where a frame is left out and what moves has
    turned meanwhile."""
    await tab.show(
        "<style>@keyframes m {to {margin-left: 4000px}} #m {animation: m 60s steps(2000)}"
        "@keyframes c {to {color: red}} #c {animation: c .4s infinite alternate}</style>"
        f"{NOTE}<button id=m onclick=note(1)>Moves</button><p><button id=c onclick=note(2)>Glows</button>"
    )
    actor = actor_of(tab)
    with pytest.raises(ElementMoving, match="Moves"):
        await actor.perform(Click(target=ElementTarget(role="button", name="Moves")), NOW)
    await actor.perform(Click(target=ElementTarget(role="button", name="Glows")), ENOUGH)
    assert await clicked(tab) == [2]


async def test_it_is_waited_until_an_element_is_ready(tab: FixtureTab) -> None:
    await tab.show(
        f"{NOTE}<div id=d style='position:fixed;inset:0'></div><button id=b disabled onclick=note(1)>Go</button>"
    )
    await tab.evaluate("setTimeout(() => {b.disabled = false; setTimeout(() => d.remove(), 50)}, 50)")
    await actor_of(tab).perform(Click(target=ElementTarget(text="Go")), ENOUGH)
    assert await clicked(tab) == [1]


async def test_a_dialog_that_a_click_opens_ends_the_wait(tab: FixtureTab) -> None:
    await tab.show("<button onclick=\"this.textContent = confirm('Sure?')\">Ask</button><iframe srcdoc=x></iframe>")
    actor = actor_of(tab)
    await actor.perform(Click(target=ElementTarget(text="Ask")), ENOUGH)
    dialog = tab.dialog()
    assert dialog is not None
    assert dialog.message == "Sure?"
    with pytest.raises(DialogOpen, match="Sure"):
        await actor.perform(Click(target=ElementTarget(text="Ask")), ENOUGH)
    await tab.answer_dialog()
    assert await tab.evaluate("document.querySelector('button').textContent") == "true"
    await actor.perform(DoubleClick(target=ElementTarget(css="iframe")), ENOUGH)


# A list that is drawn anew at the worst moments: before the press, at it, between press and release, and by timers.
RESTLESS = """<!doctype html><style>button { display: block; width: 200px; height: 24px }</style><div id=list></div>
<script>
var wrong = 0, right = 0, meant = "", round = 0, how = 0;
const draw = (reuse) => {
  const names = ["A", "B", "C", "D"].sort(() => Math.random() - 0.5);
  if (reuse) [...list.children].forEach((each, at) => { each.textContent = names[at]; });
  else list.innerHTML = names.map((name) => `<button>${name}</button>`).join("");
};
const got = (event) => {
  if (!(event.target instanceof HTMLButtonElement)) return;
  if (event.target.textContent === meant) right += 1; else wrong += 1;
};
for (const type of ["mousedown", "mouseup", "click"]) list.addEventListener(type, got);
addEventListener("mousemove", () => { if (how === 1) draw(false); if (how === 2) draw(true); });
document.addEventListener("mousedown", () => { if (how === 3) draw(false); if (how === 4) draw(true); });
const begin = (name) => {
  meant = name; how = round++ % 8;
  if (how === 5) draw(false);
  if (how === 6) setTimeout(() => draw(true), Math.random() * 45);
  if (how === 7) setTimeout(() => draw(false), Math.random() * 45);
};
draw(false);
</script>"""
ROUNDS, TABS = 1000, 4


async def rounds(tab: FixtureTab) -> tuple[int, int, int, int]:
    """How many clicks were done and refused, and how many events reached the right button and another."""
    await tab.show(RESTLESS)
    actor = actor_of(tab)
    done = refused = 0
    for at in range(ROUNDS // TABS):
        name = "ABCD"[at % 4]
        seen = await actor.observe(ObserveAsk(), ROOM, ROOM)
        (line,) = [each for each in seen.text.splitlines() if f'"{name}"' in each]
        target = ref(line.partition("[ref=")[2].partition("]")[0])
        await tab.evaluate(f"begin('{name}')")
        try:
            await actor.perform(Click(target=target), ENOUGH)
            done += 1
        except (StaleRef, InputStrayed):
            refused += 1
    right, wrong = await tab.evaluate("[right, wrong]")
    return done, refused, right, wrong


@pytest.mark.promise("P-browser-target")
async def test_a_thousand_clicks_on_a_list_that_is_drawn_anew_meanwhile_hit_nothing_else(tab: FixtureTab) -> None:
    async with AsyncExitStack() as tabs:
        others = [await tabs.enter_async_context(another_tab(tab.process)) for _ in range(TABS - 1)]
        counts = await asyncio.gather(*(rounds(each) for each in (tab, *others)))
    done, refused, right, wrong = (sum(column) for column in zip(*counts, strict=True))
    assert wrong == 0
    assert done + refused == ROUNDS
    assert min(done, refused) > ROUNDS / 20
    # Press, release and click of each that was done, in whatever of these the page kept the element.
    assert right >= done


@pytest.mark.promise("P-browser-target")
async def test_an_element_that_slides_under_the_mouse_of_another_frame_gets_nothing(tab: FixtureTab) -> None:
    frame = "<body style=margin:0><button style='width:99%;height:90px' onclick='parent.note(2)'>In</button>"
    await tab.show(
        f"{NOTE}<button id=b style='position:fixed;left:0;top:0;width:90px;height:90px' onclick=note(1)>Out</button>"
        f"<iframe id=f srcdoc=\"{frame}\" style='position:fixed;left:300px;top:0;width:200px;height:99px'></iframe>"
        "<script>var moves = 0; addEventListener('mousemove', (event) => { if (++moves === 1) b.style.left = '600px';"
        " else if (event.clientX > 600) { b.style.left = 0; f.style.left = '600px'; } })</script>"
    )
    actor = actor_of(tab)
    try:
        await actor.perform(Click(target=ElementTarget(text="Out")), ENOUGH)
    except InputStrayed:
        assert await clicked(tab) == []
    else:
        # It was seen to move before the button went down, and followed to where it stayed.
        assert await clicked(tab) == [1]
