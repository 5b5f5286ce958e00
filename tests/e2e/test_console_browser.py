"""A person watches an agent's browser on the console, takes it over, and hands it back."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest
from playwright.sync_api import Page, Response, expect

from fakes.console_harness import PATIENCE_MS, PHONE, ConsoleHarness, console_harness, overflow_of, violations_of
from fakes.eventually import eventually_sync
from fakes.web_server import QuietHandler, web_server

expect.set_options(timeout=PATIENCE_MS)
PAGE = b"""<!doctype html><title>Shop</title><style>body{margin:0}button{display:block;width:100vw;height:100vh}</style>
<button onclick="document.title = 'clicked'; fetch('/clicked')">Buy</button>"""


class Shop:
    def __init__(self) -> None:
        self.clicked = threading.Event()


@contextmanager
def shop() -> Iterator[tuple[Shop, int]]:
    place = Shop()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if self.path == "/clicked":
                place.clicked.set()
            self.answer(PAGE)

    with web_server(Handler) as port:
        yield place, port


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConsoleHarness, Shop, int]]:
    with shop() as (place, port):
        settings = f"""
[egress]
allowed_hosts = ["127.0.0.1:{port}"]
[browser]
private_targets = ["127.0.0.1:{port}"]
allow_no_sandbox = true
ready = 0
[tools]
allowed = ["*"]
preapproved = ["browser.*"]
"""
        with console_harness(tmp_path_factory.mktemp("watched"), settings, browser=True) as harness:
            yield harness, place, port


def open_page(harness: ConsoleHarness, url: str) -> None:
    """Once the browser daemon, which is started beside the other one, is there."""
    made: dict[str, Any] = {}

    def tried() -> bool:
        made.update(
            harness.palyra("call", "browser.open", "--principal", "agent:bot", "--input", json.dumps({"url": url}))
        )
        return bool(made["ok"]) or made["error"]["code"] != "browser.unavailable"

    eventually_sync(tried, seconds=60)
    assert made["ok"], made


def refusals_to(page: Page) -> list[str]:
    """What a page asks for and does not get: people see it in the console of their browser."""
    found: list[str] = []

    def look(answer: Response) -> None:
        if answer.status >= HTTPStatus.BAD_REQUEST:
            found.append(f"{answer.status} {answer.url}")

    page.on("response", look)
    return found


def fills_a_phone(page: Page) -> None:
    """The picture is as wide as the screen there, and larger at a touch."""
    wide, picture = page.viewport_size or {}, page.locator("#picture")
    expect(page.get_by_role("button", name="Enlarge")).to_have_count(0)
    page.set_viewport_size({"width": PHONE, "height": 800})
    assert (picture.bounding_box() or {}).get("width") == PHONE
    page.get_by_role("button", name="Enlarge").click()
    assert (picture.bounding_box() or {})["width"] > 2 * PHONE
    assert violations_of(page) == [] and overflow_of(page) <= 0
    page.get_by_role("button", name="Fit to the screen").click()
    assert (picture.bounding_box() or {}).get("width") == PHONE
    page.set_viewport_size({"width": wide["width"], "height": wide["height"]})


@pytest.mark.promise("P-browser-handover")
def test_a_session_is_watched_taken_over_and_handed_back(opened: tuple[ConsoleHarness, Shop, int]) -> None:
    harness, place, port = opened
    open_page(harness, f"http://127.0.0.1:{port}/")
    page = harness.page("/browser")
    refused = refusals_to(page)
    page.locator("#sessions").get_by_role("link", name="agent:bot").click()
    expect(page.locator("#where")).to_contain_text(f"127.0.0.1:{port}")
    page.wait_for_selector("canvas[data-frames]")
    page.locator("#picture").click()
    assert not place.clicked.is_set(), "whoever only watches changes nothing"
    fills_a_phone(page)
    page.get_by_label("Reason").fill("to see that it buys the right thing")
    page.get_by_role("button", name="Take over").click()
    expect(page.get_by_text("You have this session")).to_be_visible()
    page.locator("#picture").click()
    assert place.clicked.wait(45)
    expect(page.locator("#session")).to_contain_text("taken over")
    assert violations_of(page) == [] and overflow_of(page) <= 0
    page.get_by_role("button", name="Hand it back").click()
    expect(page.get_by_role("button", name="Take over")).to_be_visible()
    kinds = [event["kind"] for event in harness.palyra("journal", "tail", "-n", "500")["data"]["events"]]
    assert {"browser.taken_over", "browser.handed_back", "browser.looked_at"} <= set(kinds)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="End it").click()
    page.wait_for_url("**/browser")
    expect(page.get_by_text("No browser is open.")).to_be_visible()
    assert harness.complaints == [] and refused == []


@pytest.mark.promise("P-browser-handover")
def test_whoever_watches_a_session_that_ends_is_told(opened: tuple[ConsoleHarness, Shop, int]) -> None:
    harness, _, port = opened
    open_page(harness, f"http://127.0.0.1:{port}/")
    page = harness.page("/browser")
    refused = refusals_to(page)
    page.locator("#sessions").get_by_role("link", name="agent:bot").click()
    page.wait_for_selector("canvas[data-frames]")
    harness.palyra("browser", "close", page.url.rpartition("/")[2])
    expect(page.locator("#control")).to_contain_text("The session is over")
    expect(page.get_by_role("button", name="Take over")).to_have_count(0)
    with page.expect_response("**/browser"):
        harness.palyra("call", "fs.write", "--principal", "agent:bot", "--input", '{"path": "a", "content": "b"}')
    expect(page.get_by_label("1 waiting")).to_be_visible()
    assert refused == [], "the page does not ask for a session that is over"
    page.get_by_role("link", name="All sessions").click()
    expect(page.get_by_text("No browser is open.")).to_be_visible()
