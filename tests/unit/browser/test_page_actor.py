"""What a session asks of a tab, through the one door that it has."""

import pytest

from fakes.page_view import FixtureTab, actor_of
from palyra.browser.domain.action import Click, ElementTarget, Select, SetFileInput, Upload
from palyra.browser.domain.page_errors import NotFileInput, NotSelectable, UploadRefused

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = 0.3
ENOUGH = 30.0


async def test_options_by_value_and_by_label(tab: FixtureTab) -> None:
    await tab.show(
        "<select id=s onchange=document.title+=this.value><option value=no>Norway<option value=pe>Peru"
        "<option disabled>Atlantis</select><select id=m multiple><option>A<option>B<option>C</select><p id=p>x"
    )
    actor = actor_of(tab)
    select = ElementTarget(css="#s")
    await actor.perform(Select(target=select, values=("pe",)), ENOUGH)
    await actor.perform(Select(target=select, values=("Norway",)), ENOUGH)
    await actor.perform(Select(target=select, values=("Norway",)), ENOUGH)
    assert await tab.evaluate("document.title") == "peno"
    await actor.perform(Select(target=ElementTarget(css="#m"), values=("A", "C")), ENOUGH)
    assert await tab.evaluate("[...m.selectedOptions].map((o) => o.value)") == ["A", "C"]
    for values, error in ((("Mu",), "Norway"), (("Atlantis",), "disabled"), (("pe", "no"), "exactly one")):
        with pytest.raises(NotSelectable, match=error):
            await actor.perform(Select(target=select, values=values), ENOUGH)
    with pytest.raises(NotSelectable, match="no native select"):
        await actor.perform(Select(target=ElementTarget(css="#p"), values=("x",)), ENOUGH)
    assert await tab.evaluate("s.value") == "no"


async def test_files_reach_the_page(tab: FixtureTab) -> None:
    await tab.show(
        "<style>#f {display: none}</style><input type=file id=f multiple><label for=f>Photos</label><p id=p>x</p>"
        "<script>f.onchange = async () => { document.title = (await Promise.all([...f.files].map(async (each) =>"
        " each.name + '=' + await each.text()))).join() }</script>"
    )
    actor = actor_of(tab)
    files = (Upload(name="a.csv", content=b"1,2"), Upload(name="ü.txt", content="漢".encode()))
    await actor.perform(SetFileInput(target=ElementTarget(css="#f"), files=files), ENOUGH)
    title = (
        "new Promise((done) => { const look = () => document.title ? done(document.title) : setTimeout(look); look() })"
    )
    assert await tab.evaluate(title) == "a.csv=1,2,ü.txt=漢"
    await actor.perform(SetFileInput(target=ElementTarget(text="Photos"), files=files[:1]), ENOUGH)
    assert await tab.evaluate("f.files.length") == 1
    with pytest.raises(NotFileInput):
        await actor.perform(SetFileInput(target=ElementTarget(css="#p"), files=files), ENOUGH)
    large = Upload(name="large", content=bytes(40 * 1024 * 1024))
    with pytest.raises(UploadRefused):
        await actor.perform(SetFileInput(target=ElementTarget(css="#f"), files=(large,)), ENOUGH)


async def test_a_click_that_leaves_the_page(tab: FixtureTab) -> None:
    await tab.show("<a href=/two>Next</a>", **{"http://shop.test/two": "<p>Second"})
    await actor_of(tab).perform(Click(target=ElementTarget(text="Next")), ENOUGH)
