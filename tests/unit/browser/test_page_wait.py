"""Waiting ends when the page changes, without anybody asking again and again."""

import asyncio
from typing import Any

import pytest

from fakes.page_view import FixtureTab, actor_of
from palyra.browser.domain.action import Click, ElementTarget, LoadState, ObserveAsk, WaitFor
from palyra.browser.domain.page_errors import DialogOpen, StaleRef, WaitTimedOut

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = 30.0
NOW = 0.3
LATER = "setTimeout(() => {{ {} }}, 120)"


@pytest.mark.parametrize(
    ("page", "later", "wait"),
    [
        ("<p id=p>", "p.textContent = 'Ready now'", WaitFor(text="ready now")),
        ("<p id=p style=display:none>Ready</p>", "p.style.display = ''", WaitFor(text="Ready")),
        ("<p id=p>Busy</p>", "p.remove()", WaitFor(text="Busy", gone=True)),
        ("<style>.h {opacity: 0}</style><p id=p>Busy</p>", "p.className = 'h'", WaitFor(text="Busy", gone=True)),
        ("<b id=b>", "b.innerHTML = '<button>Go</button>'", WaitFor(target=ElementTarget(role="button", name="Go"))),
        ("<b id=b>Go</b>", "b.id = ''", WaitFor(target=ElementTarget(css="#b"), gone=True)),
        ("<p>x", "history.pushState(null, '', '/next?page=2')", WaitFor(url="/next")),
        ("<p>x", "history.pushState(null, '', '/orders/7')", WaitFor(url="http://*/orders/*")),
        ("<p>x", "location.href = '/two'", WaitFor(text="Second page", state=LoadState.LOADED)),
        (
            "<div id=h>",
            "h.attachShadow({mode: 'open'}).innerHTML = 'shadow words'; h.id = 'g'",
            WaitFor(text="shadow words"),
        ),
        ("<div id=h>", "h.innerHTML = '<iframe src=http://pay.test/></iframe>'", WaitFor(text="Pay here")),
        (
            "<style>@keyframes m {from {opacity: 0} to {opacity: 1}} .a {animation: m .2s forwards}</style>"
            "<p id=p style=opacity:0>Faded</p>",
            "p.className = 'a'",
            WaitFor(text="Faded"),
        ),
    ],
)
async def test_a_wait_ends_with_the_change(tab: FixtureTab, page: str, later: str, wait: WaitFor) -> None:
    await tab.show(page, **{"http://shop.test/two": "<p>Second page", "http://pay.test/": "<p>Pay here"})
    actor = actor_of(tab)
    with pytest.raises(WaitTimedOut):
        await actor.perform(wait, 0)
    await tab.evaluate(LATER.format(later))
    await actor.perform(wait, ENOUGH)


@pytest.mark.promise("P-browser-target")
async def test_nothing_is_asked_while_nothing_changes(tab: FixtureTab, monkeypatch: pytest.MonkeyPatch) -> None:
    await tab.show("<p>still</p>")
    sent: list[str] = []
    send = tab.process.cdp.send

    async def counted(method: str, *given: Any, **more: Any) -> dict[str, Any]:
        sent.append(method)
        return await send(method, *given, **more)

    monkeypatch.setattr(tab.process.cdp, "send", counted)
    with pytest.raises(WaitTimedOut, match="the text is not there"):
        await actor_of(tab).perform(WaitFor(text="never"), 1.0)
    assert len(sent) < 15, sent


async def test_several_conditions_hold_together(tab: FixtureTab) -> None:
    await tab.show("<p>Ready</p>")
    with pytest.raises(WaitTimedOut, match="the element is not there; the address is another"):
        await actor_of(tab).perform(WaitFor(text="Ready", target=ElementTarget(css="#x"), url="nowhere"), NOW)


async def test_load_states(tab: FixtureTab) -> None:
    await tab.show("<p>Ready</p>")
    for state in LoadState:
        await actor_of(tab).perform(WaitFor(state=state), ENOUGH)


async def test_a_ref_that_is_gone(tab: FixtureTab) -> None:
    await tab.show("<button id=b>One</button>")
    actor = actor_of(tab)
    await actor.observe(ObserveAsk(), 9999, 9999)
    await actor.perform(WaitFor(target=ElementTarget(ref="e1")), ENOUGH)
    await tab.evaluate(LATER.format("b.remove()"))
    await actor.perform(WaitFor(target=ElementTarget(ref="e1"), gone=True), ENOUGH)
    with pytest.raises(StaleRef):
        await actor.perform(WaitFor(target=ElementTarget(ref="e1")), NOW)


async def test_a_selector_is_waited_for_before_an_action(tab: FixtureTab) -> None:
    await tab.show("<div id=d></div>")
    await tab.evaluate(LATER.format("d.innerHTML = '<button onclick=document.title=1>Late</button>'"))
    await actor_of(tab).perform(Click(target=ElementTarget(text="Late")), ENOUGH)
    assert await tab.evaluate("document.title") == "1"


async def test_a_dialog_ends_a_wait(tab: FixtureTab) -> None:
    await tab.show("<p>x")
    await tab.evaluate(LATER.format("alert('stop')"))
    with pytest.raises(DialogOpen):
        await actor_of(tab).perform(WaitFor(text="never"), ENOUGH)
    await tab.answer_dialog()


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(tab: FixtureTab) -> None:
    await tab.show("<p>x")
    actor = actor_of(tab)
    before = len(asyncio.all_tasks())
    waiting = asyncio.create_task(actor.perform(WaitFor(text="never"), ENOUGH))
    await tab.evaluate("new Promise((done) => setTimeout(done, 100))")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(asyncio.all_tasks()) == before
