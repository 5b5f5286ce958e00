"""Pictures of every page of the console, for people to look at: in the folder that ``PALYRA_PICTURES`` names."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fakes.console_gallery import console_gallery
from fakes.console_scene import PATIENCE_MS, PHONE, WIDE, overflow_of

expect.set_options(timeout=PATIENCE_MS)


@pytest.mark.soak
def test_every_page_has_its_picture_taken(tmp_path: Path) -> None:
    folder = Path(os.environ.get("PALYRA_PICTURES", str(tmp_path / "pictures")))
    folder.mkdir(parents=True, exist_ok=True)
    with console_gallery(tmp_path / "gallery") as gallery:
        gallery.make_what_people_make(gallery.scene.page("/"))
        for width, scheme in ((WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")):
            page = gallery.scene.page("/", width=width, dark=scheme == "dark")
            for name, path in gallery.paths.items():
                page.goto(f"{gallery.scene.daemon.url}{path}")
                if name == "browser-session":
                    page.wait_for_selector("canvas[data-frames]")
                assert overflow_of(page) <= 0, (name, width)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            gallery.scene.close_pages()
        assert gallery.scene.complaints == []
    assert len(list(folder.glob("*.png"))) >= 4 * len(gallery.paths)
