"""Tabs are saved with their place and come back there, each judged anew."""

from pathlib import Path

import pytest

from fakes.page_harness import OTHER, PageHarness, page_harness
from palyra.browser.domain.action import OpenTab, Scroll
from palyra.browser.domain.page_errors import UnknownPermission
from palyra.browser.domain.profile import TabState

TALL = "<title>Tall</title><div style='height: 9000px; width: 5000px'></div>"


async def scrolled(harness: PageHarness, tab: str) -> str:
    return (await harness.run("[scrollX, scrollY]", tab)).value_json


async def test_tabs_come_back_where_they_were(tmp_path: Path) -> None:
    async with page_harness(tmp_path / "first") as harness:
        await harness.open()
        harness.site.pages["/tall"] = TALL
        await harness.go("/tall?1")
        await harness.pages.perform(Scroll(dx=40, dy=700))
        await harness.pages.perform(OpenTab())
        await harness.pages.perform(OpenTab(url=harness.site.url("/tall?2", OTHER)))
        saved = await harness.pages.saved_tabs()
        assert saved == (
            TabState(url=harness.site.url("/tall?2", OTHER)),
            TabState(url=harness.site.url("/tall?1"), scroll_x=40, scroll_y=700),
        )
        origin = harness.site.url("")
        await harness.pages.restore_permissions({origin: ("geolocation", "notifications")})
        assert harness.pages.permissions() == {origin: ("geolocation", "notifications")}
        asked = "navigator.permissions.query({name: 'geolocation'}).then((found) => found.state)"
        assert (await harness.run(asked, "t1")).value_json == '"granted"'
        with pytest.raises(UnknownPermission):
            await harness.pages.restore_permissions({origin: ("root",)})

    async with page_harness(tmp_path / "second") as harness:
        await harness.open()
        harness.site.pages["/tall"] = TALL
        harness.judge.hosts.discard(OTHER)
        tabs = (
            TabState(url=harness.site.url("/tall?1"), scroll_x=40, scroll_y=700),
            TabState(url=harness.site.url("/", OTHER)),
            TabState(url="file:///etc/passwd"),
            TabState(url=harness.site.url("/tall?3"), scroll_y=5),
        )
        refused = await harness.pages.restore_tabs(tabs)
        assert refused == (
            f"{harness.site.url('/', OTHER)} test.not_allowed",
            "file:///etc/passwd browser.scheme_refused",
        )
        shown = [tab for tab in harness.pages.tabs() if tab.url != "about:blank"]
        assert [(tab.url, tab.active) for tab in shown] == [
            (harness.site.url("/tall?1"), True),
            (harness.site.url("/tall?3"), False),
        ]
        assert [await scrolled(harness, tab.tab) for tab in shown] == ["[40, 700]", "[0, 5]"]
