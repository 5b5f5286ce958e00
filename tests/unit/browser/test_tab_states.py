"""Tabs are saved with their place and come back there, each judged anew."""

from pathlib import Path

import pytest

from fakes.page_scene import OTHER, PageScene, page_scene
from palyra.browser.domain.action import OpenTab, Scroll
from palyra.browser.domain.page_errors import UnknownPermission
from palyra.browser.domain.profile import TabState

TALL = "<title>Tall</title><div style='height: 9000px; width: 5000px'></div>"


async def scrolled(scene: PageScene, tab: str) -> str:
    return (await scene.run("[scrollX, scrollY]", tab)).value_json


async def test_tabs_come_back_where_they_were(tmp_path: Path) -> None:
    async with page_scene(tmp_path / "first") as scene:
        await scene.open()
        scene.site.pages["/tall"] = TALL
        await scene.go("/tall?1")
        await scene.pages.perform(Scroll(dx=40, dy=700))
        await scene.pages.perform(OpenTab())
        await scene.pages.perform(OpenTab(url=scene.site.url("/tall?2", OTHER)))
        saved = await scene.pages.saved_tabs()
        assert saved == (
            TabState(url=scene.site.url("/tall?2", OTHER)),
            TabState(url=scene.site.url("/tall?1"), scroll_x=40, scroll_y=700),
        )
        origin = scene.site.url("")
        await scene.pages.restore_permissions({origin: ("geolocation", "notifications")})
        assert scene.pages.permissions() == {origin: ("geolocation", "notifications")}
        asked = "navigator.permissions.query({name: 'geolocation'}).then((found) => found.state)"
        assert (await scene.run(asked, "t1")).value_json == '"granted"'
        with pytest.raises(UnknownPermission):
            await scene.pages.restore_permissions({origin: ("root",)})

    async with page_scene(tmp_path / "second") as scene:
        await scene.open()
        scene.site.pages["/tall"] = TALL
        scene.judge.hosts.discard(OTHER)
        tabs = (
            TabState(url=scene.site.url("/tall?1"), scroll_x=40, scroll_y=700),
            TabState(url=scene.site.url("/", OTHER)),
            TabState(url="file:///etc/passwd"),
            TabState(url=scene.site.url("/tall?3"), scroll_y=5),
        )
        refused = await scene.pages.restore_tabs(tabs)
        assert refused == (
            f"{scene.site.url('/', OTHER)} test.not_allowed",
            "file:///etc/passwd browser.scheme_refused",
        )
        shown = [tab for tab in scene.pages.tabs() if tab.url != "about:blank"]
        assert [(tab.url, tab.active) for tab in shown] == [
            (scene.site.url("/tall?1"), True),
            (scene.site.url("/tall?3"), False),
        ]
        assert [await scrolled(scene, tab.tab) for tab in shown] == ["[40, 700]", "[0, 5]"]
