"""Pictures of every page of the console, for people to look at: in the folder that ``PALYRA_PICTURES`` names."""

import os
from collections.abc import Iterable
from http import HTTPStatus
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from fakes.console_gallery import console_gallery
from fakes.console_harness import PATIENCE_MS, PHONE, WIDE, ConsoleHarness, overflow_of
from fakes.console_moments import EMPTY_PAGES, Moment, Moments, empty_harness, harness_with_lost_profiles

expect.set_options(timeout=PATIENCE_MS)
LOOKS = tuple(product((WIDE, PHONE), ("light", "dark")))
HEIGHT = 800


class Album:
    def __init__(self, harness: ConsoleHarness, folder: Path) -> None:
        self._harness = harness
        self._folder = folder

    def pages(self, paths: Iterable[tuple[str, str]]) -> None:
        self.moments({name: lambda page, path=path: self._open(page, path) for name, path in paths})

    def moments(self, moments: dict[str, Moment], *, token: str | None = None, stranger: bool = False) -> None:
        for width, scheme in LOOKS:
            dark = scheme == "dark"
            page = (
                self._harness.stranger(width=width, dark=dark)
                if stranger
                else self._harness.page("/", width=width, dark=dark, token=token)
            )
            for name, come in moments.items():
                page.set_viewport_size({"width": width, "height": HEIGHT})
                come(page)
                self._take(page, f"{name}-{width}-{scheme}")
            self._harness.close_pages()

    def _open(self, page: Page, path: str) -> None:
        answer = page.goto(f"{self._harness.daemon.url}{path}")
        assert answer is not None and answer.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND), path
        if path.startswith("/browser/"):
            page.wait_for_selector("canvas[data-frames]")

    def _take(self, page: Page, name: str) -> None:
        """In a window as high as the page, so that what stays in view while one scrolls is where it belongs."""
        assert overflow_of(page) <= 0, name
        size = page.viewport_size or {"width": WIDE, "height": HEIGHT}
        page.set_viewport_size({"width": size["width"], "height": max(HEIGHT, whole_height(page))})
        page.screenshot(path=self._folder / f"{name}.png")


def whole_height(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollHeight"))


@pytest.mark.soak
def test_every_page_has_its_picture_taken(tmp_path: Path) -> None:
    folder = Path(os.environ.get("PALYRA_PICTURES", str(tmp_path / "pictures")))
    folder.mkdir(parents=True, exist_ok=True)
    with empty_harness(tmp_path / "empty") as harness:
        Album(harness, folder).pages((f"empty-{name or 'overview'}", f"/{name}") for name in EMPTY_PAGES)
        assert harness.complaints == []
    with harness_with_lost_profiles(tmp_path / "lost") as harness:
        Album(harness, folder).pages([("lost-profiles", "/browser"), ("lost-profiles-overview", "/")])
        assert harness.complaints == []
    with console_gallery(tmp_path / "gallery") as gallery:
        gallery.make_what_people_make(gallery.harness.page("/"))
        album = Album(gallery.harness, folder)
        album.pages(gallery.paths.items())
        moments = Moments(gallery)
        album.moments(moments.of_stranger, stranger=True)
        album.moments(moments.of_operator)
        album.moments(moments.of_viewer, token=moments.viewer)
        album.moments(moments.last)
        moments.close()
        assert gallery.harness.complaints == []
    taken = len(gallery.paths) + len(EMPTY_PAGES) + 2
    taken += sum(len(each) for each in (moments.of_stranger, moments.of_operator, moments.of_viewer, moments.last))
    assert len(list(folder.glob("*.png"))) >= len(LOOKS) * taken
