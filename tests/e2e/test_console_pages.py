"""Every page of the console with real data on it: it fits, can be read, is used without a pointer, and is silent."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from fakes.console_gallery import PAGES, Gallery, console_gallery
from fakes.console_scene import PATIENCE_MS, PHONE, WIDE, overflow_of, unreached_by_keyboard, violations_of
from palyra.console.sections import SECTIONS

expect.set_options(timeout=PATIENCE_MS)
HEIGHT = 800
NOWHERE = "/nowhere"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    """One daemon with everything beside it, and one Chromium, for all of them."""
    with console_gallery(tmp_path_factory.mktemp("gallery")) as made:
        yield made


@pytest.fixture(scope="module")
def visitor(gallery: Gallery) -> Page:
    page = gallery.scene.page("/")
    gallery.make_what_people_make(page)
    return page


def look_at(page: Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")


def faults_of(page: Page) -> dict[str, object]:
    """In both widths and both schemes. What axe-core looks at depends on the width or on the scheme, never on both."""
    found: dict[str, object] = {"unreached": unreached_by_keyboard(page)}
    for width, scheme in ((WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")):
        look_at(page, width, scheme)
        found[f"overflow {width} {scheme}"] = max(0, overflow_of(page))
        if (width, scheme) in ((WIDE, "light"), (PHONE, "dark")):
            found[f"axe {width} {scheme}"] = violations_of(page)
    look_at(page, WIDE, "light")
    return {name: fault for name, fault in found.items() if fault}


@pytest.mark.parametrize("name", PAGES)
def test_it_fits_can_be_read_and_is_reached_by_keyboard(gallery: Gallery, visitor: Page, name: str) -> None:
    visitor.goto(f"{gallery.scene.daemon.url}{gallery.paths[name]}")
    if name != "no-such-page":
        visitor.wait_for_selector("[data-lamp=on]", state="attached")
        first_stop_is_the_way_past_the_menu(visitor)
    assert faults_of(visitor) == {} and gallery.scene.complaints == []


def test_so_does_the_way_in(gallery: Gallery) -> None:
    stranger = gallery.scene.stranger()
    stranger.goto(f"{gallery.scene.daemon.url}/login")
    assert faults_of(stranger) == {} and gallery.scene.complaints == []


def test_no_page_is_left_out(gallery: Gallery, visitor: Page) -> None:
    assert set(gallery.paths) == set(PAGES)
    shown = {route.partition("?")[0] for route in gallery.paths.values()}
    for page in (page for section in SECTIONS for page in section.pages):
        way = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(page.path)))
        assert any(way.fullmatch(each) for each in shown), page.path


def first_stop_is_the_way_past_the_menu(page: Page) -> None:
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_mistyped_address_is_a_page_for_people_and_a_document_for_programs(gallery: Gallery) -> None:
    page = gallery.scene.page("/")
    page.goto(f"{gallery.scene.daemon.url}{NOWHERE}")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    answer = page.request.get(f"{gallery.scene.daemon.url}{NOWHERE}", headers={"accept": "*/*"})
    assert answer.status == 404 and answer.json()["error"]["code"] == "http.no_such_route"


def test_a_run_shows_what_was_asked_and_what_was_said_to_it(gallery: Gallery) -> None:
    page = gallery.scene.page(gallery.paths["run"])
    rows = page.locator("#timeline tbody tr")
    expect(rows.filter(has_text="asked denied")).to_have_count(1)
    expect(rows.filter(has_text="asked approved")).to_have_count(2)
    expect(rows.filter(has_text="needs approval")).to_have_count(1)
    expect(page.locator("#budget")).to_contain_text("of 40")
    page.locator("#timeline").get_by_role("link", name="asked").last.click()
    expect(page.locator("#request")).to_contain_text("secrets do not belong into files")


def test_what_egress_kept_in_is_shown_even_where_no_call_began(gallery: Gallery) -> None:
    page = gallery.scene.page("/egress")
    expect(page.locator("#refused tbody tr")).to_contain_text("egress.host_not_allowed")
