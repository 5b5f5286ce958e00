"""Pictures: of the window, of the whole page, of one element."""

import base64
import struct

import pytest

from fakes.page_view import FixtureTab, actor_of
from palyra.browser.domain.action import ElementTarget, Made, PictureFormat, Screenshot, Type
from palyra.browser.domain.cdp_messages import CommandRefused
from palyra.secret import Secret

pytestmark = pytest.mark.asyncio(loop_scope="module")

TALL = "<body style=margin:0><div style=height:2000px>top</div><div id=box style='width:123px;height:45px'>box</div>"


def size(made: Made) -> tuple[int, int]:
    assert made.media_type == "image/png"
    width, height = struct.unpack(">II", made.content[16:24])
    return width, height


async def test_the_window_the_page_and_an_element(tab: FixtureTab) -> None:
    await tab.show(TALL)
    actor = actor_of(tab)
    assert list(size(await actor.perform(Screenshot(), 30))) == await tab.evaluate("[innerWidth, innerHeight]")
    width = await tab.evaluate("document.documentElement.clientWidth")
    assert size(await actor.perform(Screenshot(full_page=True), 30)) == (width, 2045)
    assert size(await actor.perform(Screenshot(target=ElementTarget(css="#box")), 30)) == (123, 45)


async def test_other_formats(tab: FixtureTab) -> None:
    await tab.show(TALL)
    jpeg = await actor_of(tab).perform(Screenshot(format=PictureFormat.JPEG, quality=900), 30)
    assert (jpeg.media_type, jpeg.content[:3]) == ("image/jpeg", b"\xff\xd8\xff")
    webp = await actor_of(tab).perform(Screenshot(format=PictureFormat.WEBP), 30)
    assert (webp.media_type, webp.content[8:12]) == ("image/webp", b"WEBP")


async def test_an_element_of_a_frame_of_another_site(tab: FixtureTab) -> None:
    frame = "<body style='margin:0;background:#00f'><div id=i style='width:50px;height:30px;background:#f00'></div>"
    await tab.show(
        "<div style=height:1500px></div><iframe src=http://pay.test/></iframe>", **{"http://pay.test/": frame}
    )
    taken = await actor_of(tab).perform(Screenshot(target=ElementTarget(css="#i")), 30)
    assert size(taken) == (50, 30)
    one_colour = (
        "new Promise(async (done) => { const i = new Image(); i.src = 'data:image/png;base64,%s'; await i.decode();"
    )
    one_colour += " const c = document.createElement('canvas').getContext('2d'); c.drawImage(i, 0, 0);"
    one_colour += " done([...c.getImageData(25, 15, 1, 1).data]) })"
    assert await tab.evaluate(one_colour % base64.b64encode(taken.content).decode()) == [255, 0, 0, 255]


@pytest.mark.promise("P-secret-typed")
async def test_a_secret_in_a_field_that_shows_its_text_is_in_no_picture(tab: FixtureTab) -> None:
    field = ElementTarget(css="input")
    pictures = []
    for text in ("aaaaaaaa", "WWWWWWWW"):
        await tab.show("<input style='caret-color:transparent;outline:0;width:300px'>")
        actor = actor_of(tab)
        await actor.perform(Type(target=field, secret=Secret(text), origins=("http://shop.test",)), 30)
        pictures.append((await actor.perform(Screenshot(target=field), 30)).content)
    assert pictures[0] == pictures[1]


async def test_a_page_of_which_nothing_was_drawn_yet_is_asked_again_until_time_is_up(
    tab: FixtureTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tab.show(TALL)
    send, refusals = tab.cdp.send, 2

    async def refusing(method: str, *given: object, **more: object) -> object:
        nonlocal refusals
        if method == "Page.captureScreenshot" and refusals:
            refusals -= 1
            raise CommandRefused("Page.captureScreenshot: Unable to capture screenshot")
        return await send(method, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(tab.cdp, "send", refusing)
    assert (await actor_of(tab).perform(Screenshot(), 30)).media_type == "image/png"
    refusals = 1_000
    with pytest.raises(CommandRefused):
        await actor_of(tab).perform(Screenshot(), 0.2)
