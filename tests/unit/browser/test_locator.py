"""Selectors match exactly one element over all frames and shadow roots, or tell what may have been meant."""

import pytest

from fakes.page_view import ROOM, FixtureTab, actor_of
from palyra.browser.domain.action import Click, ElementTarget, ObserveAsk
from palyra.browser.domain.page_errors import BadSelector, NoMatch, SeveralMatch

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = 0.2
PAGE = """<button>Save</button><button>Save all</button><p>Terms and <a href=#>conditions</a></p>
<div style=display:none><button class=twice>Hidden twin</button></div><button class=twice>Seen twin</button>
<div id=host></div><script>host.attachShadow({mode: "open"}).innerHTML =
"<div id=inner></div><button class=shadow>Shadowed</button>";
host.shadowRoot.querySelector("#inner").attachShadow({mode: "open"}).innerHTML =
"<i class=deep role=switch>Deep</i>"</script>
<iframe src=http://pay.test/></iframe>"""
PAY = "<button class=pay>Pay</button><button>Save as</button>"


async def where(tab: FixtureTab, target: ElementTarget) -> str:
    seen = await actor_of(tab).observe(ObserveAsk(within=target), ROOM, ROOM)
    return seen.text.splitlines()[0].partition(" [")[0]


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (ElementTarget(role="button", name="Save"), '- button "Save"'),
        (ElementTarget(role="button", name="save a"), "two"),
        (ElementTarget(text="Save"), '- button "Save"'),
        (ElementTarget(text="conditions"), '- link "conditions"'),
        (ElementTarget(text="Terms and conditions"), "- paragraph"),
        (ElementTarget(css=".twice"), '- button "Seen twin"'),
        (ElementTarget(css=".shadow"), '- button "Shadowed"'),
        (ElementTarget(css=".deep"), '- switch "Deep"'),
        (ElementTarget(role="switch"), '- switch "Deep"'),
        (ElementTarget(css=".pay"), '- button "Pay"'),
        (ElementTarget(text="Pay"), '- button "Pay"'),
    ],
)
async def test_one_element_wherever_it_is(tab: FixtureTab, target: ElementTarget, line: str) -> None:
    await tab.show(PAGE, **{"http://pay.test/": PAY})
    if line == "two":
        with pytest.raises(SeveralMatch, match=r"Save all.*Save as"):
            await where(tab, target)
    else:
        assert await where(tab, target) == line


async def test_several_are_named_with_refs_that_work(tab: FixtureTab) -> None:
    await tab.show(
        "<script>var hit = 0</script>" + "".join(f"<button onclick=hit={n}>Go</button>" for n in range(1, 9))
    )
    actor = actor_of(tab)
    with pytest.raises(SeveralMatch, match=r"matches 8 elements: e1 \(button 'Go'\), e2 ") as several:
        await actor.perform(Click(target=ElementTarget(text="Go")), NOW)
    assert [each["ref"] for each in several.value.details["candidates"]] == ["e1", "e2", "e3", "e4", "e5"]
    await actor.perform(Click(target=ElementTarget(ref="e3")), 30)
    assert await tab.evaluate("hit") == 3


async def test_none_names_what_is_near(tab: FixtureTab) -> None:
    await tab.show("<button>Check out</button><button>Cancel</button>")
    with pytest.raises(
        NoMatch, match=r"button 'Checkout' matches nothing on the page; nearest: e1 \(button 'Check out'\)"
    ):
        await actor_of(tab).perform(Click(target=ElementTarget(role="button", name="Checkout")), NOW)
    with pytest.raises(NoMatch, match=r"css '#nope'"):
        await actor_of(tab).perform(Click(target=ElementTarget(css="#nope")), NOW)


async def test_what_is_no_selector(tab: FixtureTab) -> None:
    await tab.show("<p>x")
    with pytest.raises(BadSelector, match="not a valid selector"):
        await actor_of(tab).perform(Click(target=ElementTarget(css="p[")), NOW)


async def test_secrets_in_names_are_in_no_error(tab: FixtureTab) -> None:
    await tab.show("<button>token tok-123</button><button>token tok-123</button>")
    with pytest.raises(SeveralMatch) as several:
        await actor_of(tab, "tok-123").perform(Click(target=ElementTarget(text="token")), NOW)
    assert "tok-123" not in f"{several.value} {several.value.details}"
