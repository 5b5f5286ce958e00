"""Typing: into the field that was meant and no other, and secrets only where they belong."""

import logging

import pytest

from fakes.page_view import ROOM, FixtureTab, actor_of
from palyra.browser.domain.action import ElementTarget, ObserveAsk, Press, Type
from palyra.browser.domain.page_errors import BadKey, InputStrayed, NotEditable, SecretWrongOrigin, StaleRef
from palyra.errors import PalyraError
from palyra.secret import Secret

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = 30.0
NOW = 0.3
SECRET = "correct-horse-battery"


def css(selector: str) -> ElementTarget:
    return ElementTarget(css=selector)


async def value(tab: FixtureTab, selector: str = "input") -> str:
    return str(await tab.evaluate(f"document.querySelector('{selector}').value"))


async def test_text_replaces_what_was_there_or_is_added(tab: FixtureTab) -> None:
    await tab.show(
        "<input value=old oninput=this.dataset.heard=event.isTrusted onkeyup=this.dataset.key=event.keyCode>"
    )
    actor = actor_of(tab)
    await actor.perform(Type(target=css("input"), text="new ü 漢字 🙂"), ENOUGH)
    assert await value(tab) == "new ü 漢字 🙂"
    assert await tab.evaluate("({...document.querySelector('input').dataset})") == {"heard": "true", "key": "229"}
    await actor.perform(Type(target=css("input"), text="!", clear=False), ENOUGH)
    assert await value(tab) == "new ü 漢字 🙂!"
    await actor.perform(Type(target=css("input"), text=""), ENOUGH)
    assert await value(tab) == ""


async def test_other_fields(tab: FixtureTab) -> None:
    await tab.show(
        "<textarea>x</textarea><div contenteditable>old <b>text</b></div><input type=date><input type=number>"
        "<input type=range max=10><input type=email value=a@b>"
    )
    actor = actor_of(tab)
    for selector, text in (
        ("textarea", "two\nlines"),
        ("[type=date]", "2026-02-28"),
        ("[type=number]", "12"),
        ("[type=range]", "7"),
        ("[type=email]", "c@d"),
    ):
        await actor.perform(Type(target=css(selector), text=text), ENOUGH)
        assert await value(tab, selector) == text
    await actor.perform(Type(target=css("[contenteditable]"), text="all new"), ENOUGH)
    assert await tab.evaluate("document.querySelector('[contenteditable]').innerText") == "all new"
    with pytest.raises(NotEditable, match="date"):
        await actor.perform(Type(target=css("[type=date]"), text="tomorrow"), ENOUGH)


async def test_what_takes_no_text(tab: FixtureTab) -> None:
    await tab.show("<button>B</button><input readonly><input type=checkbox><p>words</p>")
    for selector in ("button", "[readonly]", "[type=checkbox]", "p"):
        with pytest.raises(NotEditable):
            await actor_of(tab).perform(Type(target=css(selector), text="x"), NOW)


async def test_a_form_is_sent_with_enter(tab: FixtureTab) -> None:
    await tab.show("<form onsubmit=\"document.title = 'sent ' + q.value; return false\"><input id=q></form>")
    await actor_of(tab).perform(Type(target=css("#q"), text="shoes", submit=True), ENOUGH)
    assert await tab.evaluate("document.title") == "sent shoes"


@pytest.mark.promise("P-browser-target")
async def test_a_page_that_moves_the_focus_away_does_not_get_the_text(tab: FixtureTab) -> None:
    await tab.show("<input id=a onkeydown=b.focus()><input id=b>")
    with pytest.raises(InputStrayed):
        await actor_of(tab).perform(Type(target=css("#a"), text="for a only"), ENOUGH)
    assert await tab.evaluate("[a.value, b.value]") == ["", ""]
    await tab.show('<input id=a onfocus="setTimeout(() => b.focus(), 0); b.focus()"><input id=b>')
    with pytest.raises(PalyraError):
        await actor_of(tab).perform(Type(target=css("#a"), text="for a only"), ENOUGH)
    assert await tab.evaluate("[a.value, b.value]") == ["", ""]


@pytest.mark.promise("P-secret-typed")
async def test_a_secret_reaches_only_its_origins_and_no_error_log_or_page_text(
    tab: FixtureTab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await tab.show(
        "<input type=password><iframe src=http://evil.test/></iframe>", **{"http://evil.test/": "<input id=e>"}
    )
    actor = actor_of(tab)
    secret = Type(target=css("[type=password]"), secret=Secret(SECRET), origins=("http://shop.test",))
    await actor.perform(secret, ENOUGH)
    assert await value(tab) == SECRET
    assert SECRET not in (await actor.observe(ObserveAsk(), ROOM, ROOM)).text
    wrong = (
        (css("[type=password]"), ("https://shop.test",)),
        (css("[type=password]"), ("http://shop.test:8080", "http://shop.test.evil.test", "null", "")),
        (css("#e"), ("http://shop.test",)),
    )
    for target, origins in wrong:
        with pytest.raises(SecretWrongOrigin) as refused:
            await actor.perform(Type(target=target, secret=Secret(SECRET), origins=origins), ENOUGH)
        assert SECRET not in f"{refused.value} {refused.value.details}"
    await tab.evaluate("document.querySelector('input').value = ''")
    await tab.evaluate("document.querySelector('input').onkeydown = () => document.querySelector('iframe').focus()")
    with pytest.raises(PalyraError) as strayed:
        await actor.perform(secret, ENOUGH)
    assert SECRET not in f"{strayed.value} {strayed.value.details}"
    assert await value(tab) == ""
    (inner,) = [each for each in tab.frames() if "evil" in each.url]
    params = {"expression": "e.value", "returnByValue": True}
    assert (await tab.cdp.send("Runtime.evaluate", params, inner.session_id))["result"]["value"] == ""
    assert SECRET not in caplog.text


@pytest.mark.promise("P-secret-typed")
async def test_a_secret_is_for_no_sandboxed_page_of_its_own_site(tab: FixtureTab) -> None:
    await tab.show("<iframe sandbox=allow-scripts srcdoc='<input id=i>'></iframe>")
    with pytest.raises(SecretWrongOrigin, match="null"):
        secret = Type(target=css("#i"), secret=Secret(SECRET), origins=("http://shop.test", "null"))
        # It is tried until its time is up: the frame might still get an origin.
        await actor_of(tab).perform(secret, 5)


async def test_keys_and_chords(tab: FixtureTab) -> None:
    await tab.show(
        "<input value=abc id=i><input id=j><p>words<script>var keys = []; onkeydown = (e) => keys.push(e.key)</script>"
    )
    actor = actor_of(tab)
    await actor.perform(Press(key="Control+a", target=css("#i")), ENOUGH)
    assert await tab.evaluate("[i.selectionStart, i.selectionEnd]") == [0, 3]
    await actor.perform(Press(key="Backspace"), ENOUGH)
    await actor.perform(Press(key="Shift+x"), ENOUGH)
    await actor.perform(Press(key="Tab"), ENOUGH)
    await actor.perform(Press(key="7"), ENOUGH)
    assert await tab.evaluate("[i.value, j.value]") == ["X", "7"]
    assert await tab.evaluate("keys") == ["Control", "a", "Backspace", "Shift", "X", "Tab", "7"]
    with pytest.raises(BadKey):
        await actor.perform(Press(key="Nonsense"), ENOUGH)
    with pytest.raises(NotEditable):
        await actor.perform(Press(key="a", target=css("p")), NOW)


async def test_a_key_for_an_element_that_changed_is_not_pressed(tab: FixtureTab) -> None:
    await tab.show("<button id=b onclick=\"document.title = 'pressed'\">Keep</button>")
    actor = actor_of(tab)
    await actor.observe(ObserveAsk(), ROOM, ROOM)
    await tab.evaluate("b.onfocus = () => { b.textContent = 'Delete'; }")
    with pytest.raises(StaleRef, match="Delete"):
        await actor.perform(Press(key="Enter", target=ElementTarget(ref="e1")), ENOUGH)
    assert await tab.evaluate("document.title") == ""
