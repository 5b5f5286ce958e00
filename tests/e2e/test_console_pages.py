"""Every page of the console with real data on it: it fits, can be read, is used without a pointer, and is silent."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from fakes.console_faults import READ, faults_of
from fakes.console_gallery import PAGES, Gallery, console_gallery
from fakes.console_harness import PATIENCE_MS
from fakes.console_moments import Moment, Moments
from palyra.server.console.app import SECTIONS

expect.set_options(timeout=PATIENCE_MS)
NOWHERE = "/nowhere"
# Where the keyboard stands on pages that are walked through anyway.
FOCUSED = ("focus-on-the-menu", "focus-past-the-menu", "focus-on-a-button", "focus-on-a-list")
# There the tabulator belongs to the page in the picture.
TAKEN_OVER = "taken-over"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    """One daemon with everything beside it, and one Chromium, for all of them."""
    with console_gallery(tmp_path_factory.mktemp("gallery")) as made:
        yield made


@pytest.fixture(scope="module")
def console_user(gallery: Gallery) -> Page:
    page = gallery.harness.page("/")
    gallery.make_what_people_make(page)
    return page


@pytest.fixture(scope="module")
def moments(gallery: Gallery) -> Iterator[Moments]:
    made = Moments(gallery)
    yield made
    made.close()


@pytest.mark.promise("P-console-works")
@pytest.mark.parametrize("name", PAGES)
def test_it_fits_can_be_read_and_is_reached_by_keyboard(gallery: Gallery, console_user: Page, name: str) -> None:
    console_user.goto(f"{gallery.harness.daemon.url}{gallery.paths[name]}")
    if name != "no-such-page":
        console_user.wait_for_selector("[data-lamp=on]", state="attached")
        first_stop_is_the_way_past_the_menu(console_user)
    assert faults_of(console_user, menu=name in ("overview", "no-such-page")) == {} and gallery.harness.complaints == []


def test_so_does_the_way_in(gallery: Gallery, moments: Moments) -> None:
    stranger = gallery.harness.stranger()
    for come in moments.of_stranger.values():
        come(stranger)
        assert faults_of(stranger) == {} and gallery.harness.complaints == []


@pytest.mark.promise("P-console-works")
def test_so_does_what_somebody_sees_who_may_only_look(gallery: Gallery, moments: Moments) -> None:
    assert faults_at(gallery.harness.page("/", token=moments.viewer), moments.of_viewer) == {}
    assert gallery.harness.complaints == []


@pytest.mark.promise("P-console-works")
def test_so_does_what_pages_show_only_at_a_moment(gallery: Gallery, console_user: Page, moments: Moments) -> None:
    assert faults_at(console_user, moments.of_operator) == {} and gallery.harness.complaints == []


def faults_at(page: Page, moments: dict[str, Moment]) -> dict[str, object]:
    """Each is read once, in one width and scheme and then the other: the pages themselves are read in both."""
    found: dict[str, object] = {}
    for number, (name, come) in enumerate(moments.items()):
        if name in FOCUSED:
            continue
        come(page)
        look = READ[number % len(READ)]
        found[name] = faults_of(page, seen=READ, read=[look], menu=False, walk=name != TAKEN_OVER)
    return {name: faults for name, faults in found.items() if faults}


@pytest.mark.promise("P-console-works")
def test_no_page_is_left_out(gallery: Gallery, console_user: Page) -> None:
    assert set(gallery.paths) == set(PAGES)
    shown = {route.partition("?")[0] for route in gallery.paths.values()}
    for page in (page for section in SECTIONS for page in section.pages):
        way = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(page.path)))
        assert any(way.fullmatch(each) for each in shown), page.path


def first_stop_is_the_way_past_the_menu(page: Page) -> None:
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.promise("P-console-works")
def test_a_mistyped_address_is_a_page_for_people_and_a_document_for_programs(gallery: Gallery) -> None:
    page = gallery.harness.page("/")
    page.goto(f"{gallery.harness.daemon.url}{NOWHERE}")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    answer = page.request.get(f"{gallery.harness.daemon.url}{NOWHERE}", headers={"accept": "*/*"})
    assert answer.status == 404 and answer.json()["error"]["code"] == "http.no_such_route"


def test_a_run_shows_what_was_asked_and_what_was_said_to_it(gallery: Gallery) -> None:
    page = gallery.harness.page(gallery.paths["run"])
    rows = page.locator("#timeline tbody tr")
    expect(rows.filter(has_text="asked denied")).to_have_count(1)
    expect(rows.filter(has_text="asked approved")).to_have_count(2)
    expect(rows.filter(has_text="needs approval")).to_have_count(1)
    expect(page.locator("#budget")).to_contain_text("of 40")
    page.locator("#timeline").get_by_role("link", name="asked").last.click()
    expect(page.locator("#request")).to_contain_text("secrets do not belong into files")


def test_what_egress_kept_in_is_shown_even_where_no_call_began(gallery: Gallery) -> None:
    page = gallery.harness.page("/egress")
    expect(page.locator("#refused tbody tr")).to_contain_text("egress.host_not_allowed")


@pytest.mark.promise("P-console-works")
def test_so_does_a_daemon_that_has_changed_for_good(gallery: Gallery, console_user: Page, moments: Moments) -> None:
    """The last of all."""
    assert faults_at(console_user, moments.last) == {} and gallery.harness.complaints == []
