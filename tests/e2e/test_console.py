"""What an operator does on the console, in a real Chromium on a real daemon."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from fakes.console_scene import PATIENCE_MS, PHONE, WIDE, ConsoleScene, console_scene, overflow_of, violations_of

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleScene]:
    with console_scene(tmp_path_factory.mktemp("console"), '[access.groups]\nviewers = ["user:eve"]\n') as scene:
        yield scene


@pytest.fixture
def scene(opened: ConsoleScene) -> Iterator[ConsoleScene]:
    yield opened
    opened.close_pages()
    assert opened.complaints == []


def request_of(page: Page, text: str) -> Locator:
    """The request whose own arguments say this."""
    arguments = page.get_by_label("Arguments of the call").filter(has_text=text)
    return page.get_by_role("article").filter(has=arguments)


def write_of(name: str) -> dict[str, str]:
    return {"path": name, "content": "hello"}


def test_the_printed_token_logs_in_and_logging_out_ends_it(scene: ConsoleScene) -> None:
    page = scene.stranger()
    page.goto(f"{scene.daemon.url}/approvals")
    assert page.url.endswith("/login")
    page.fill("#token", scene.daemon.token[:-1] + ("A" if scene.daemon.token[-1] != "A" else "B"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the token is not accepted")
    page.fill("#token", f"  {scene.daemon.token}\n")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{scene.daemon.url}/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["expires"] == -1
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.context.add_cookies([cookie])
    page.goto(f"{scene.daemon.url}/")
    assert page.url.endswith("/login")


def test_a_waiting_call_is_approved_on_its_page_and_seen_to_run_without_reload(scene: ConsoleScene) -> None:
    page = scene.page("/approvals")
    page.evaluate("window.untouched = true")
    call = scene.start_call("fs.write", write_of("approved.txt"))
    request = request_of(page, "approved.txt")
    expect(request.get_by_role("heading", level=2)).to_contain_text("fs.write for agent:bot")
    expect(request).to_contain_text("baseline.sensitive-needs-approval")
    expect(page.get_by_label("1 waiting")).to_be_visible()
    request.get_by_role("button", name="Approve").click()
    expect(page.locator("#decided")).to_contain_text("succeeded")
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert call.document()["data"]["status"] == "succeeded"
    assert page.evaluate("window.untouched") is True


def test_a_call_is_refused_with_a_reason_that_the_agent_is_told(scene: ConsoleScene) -> None:
    page = scene.page("/approvals")
    call = scene.start_call("fs.write", write_of("refused.txt"))
    request = request_of(page, "refused.txt")
    request.get_by_label("Reason").fill("not on a Friday")
    request.get_by_role("button", name="Deny").click()
    expect(page.locator("#decided")).to_contain_text("not on a Friday")
    error = call.document()["error"]
    assert error["code"] == "call.denied" and "not on a Friday" in error["message"]


def test_what_somebody_types_survives_the_news(scene: ConsoleScene) -> None:
    page = scene.page("/approvals")
    first = scene.start_call("fs.write", write_of("first.txt"))
    reason = request_of(page, "first.txt").get_by_label("Reason")
    reason.fill("half a sent")
    second = scene.start_call("fs.write", write_of("second.txt"))
    request_of(page, "second.txt").get_by_role("button", name="Approve").click()
    assert second.document()["data"]["status"] == "succeeded"
    expect(request_of(page, "second.txt")).to_have_count(0)
    assert reason.input_value() == "half a sent"
    request_of(page, "first.txt").get_by_role("button", name="Deny").click()
    assert first.document()["error"]["code"] == "call.denied"


def test_a_pattern_lets_the_next_calls_run_and_the_difference_to_them_is_shown(scene: ConsoleScene) -> None:
    page = scene.page("/approvals")
    call = scene.start_call("fs.list", {"path": "notes"}, principal="agent:reader")
    request = page.get_by_role("article").filter(has_text="agent:reader")
    request.get_by_label("Approve", exact=True).select_option("pattern")
    request.get_by_label("Pattern").fill('{"path": "not a pattern for it"}')
    request.get_by_role("button", name="Approve").click()
    expect(request.get_by_role("alert")).to_contain_text("the pattern does not even cover the call")
    request.get_by_label("Pattern").fill('{"path": "note*"}')
    request.get_by_role("button", name="Approve").click()
    call.document()
    outside = scene.start_call("fs.list", {"path": "other"}, principal="agent:reader")
    request = request_of(page, "other")
    expect(request.locator("del")).to_have_text("notes")
    expect(request.locator("ins")).to_have_text("other")
    request.get_by_role("button", name="Deny").click()
    outside.document()


def test_a_run_is_followed_along_its_timeline_down_to_one_call(scene: ConsoleScene) -> None:
    run = scene.palyra("call", "echo", "--principal", "agent:bot", "--input", '{"text": "in a run"}')["data"]["run_id"]
    page = scene.page(f"/runs/{run}")
    expect(page.locator("#timeline tbody tr")).to_have_count(1)
    scene.palyra("call", "echo", "--principal", "agent:bot", "--run-id", run, "--input", '{"text": "second"}')
    expect(page.locator("#timeline tbody tr")).to_have_count(2)
    page.locator("#timeline tbody tr").last.get_by_role("link").click()
    expect(page.locator("pre[aria-label=Output]")).to_contain_text("second")
    for step in ("call.requested", "call.decided", "call.started", "call.finished"):
        expect(page.locator(".events")).to_contain_text(step)
    page.get_by_text("Statement", exact=True).click()
    expect(page.locator("pre[aria-label=Statement]")).to_contain_text("argument_digest")


def test_a_viewer_sees_and_cannot_decide(scene: ConsoleScene) -> None:
    token = scene.palyra("token", "create", "--principal", "user:eve")["data"]["token"]
    page = scene.page("/approvals", token=token)
    call = scene.start_call("fs.write", write_of("watched.txt"))
    request = request_of(page, "watched.txt")
    expect(request).to_contain_text("You may look at this and not decide it.")
    expect(request.get_by_role("button")).to_have_count(0)
    boss = scene.page("/approvals")
    request_of(boss, "watched.txt").get_by_role("button", name="Deny").click()
    call.document()


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_every_page_fits_can_be_read_and_is_reached_by_keyboard(scene: ConsoleScene, width: int) -> None:
    made = scene.palyra("call", "echo", "--principal", "agent:bot", "--input", json.dumps({"text": "x" * 500}))["data"]
    waiting = scene.palyra("call", "fs.write", "--principal", "agent:bot", "--input", json.dumps(write_of("wait.txt")))
    approval = waiting["error"]["details"]["approval_id"]
    page = scene.page("/", width=width)
    paths = [str(link.get_attribute("href")) for link in page.locator("nav[aria-label=Pages] a").all()]
    paths += ["/runs", f"/runs/{made['run_id']}", f"/calls/{made['call_id']}", f"/approvals/{approval}"]
    found: dict[str, object] = {}
    for path in paths:
        scene.open(page, path)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if wrong := violations_of(page):
                found[f"{path} {scheme}"] = wrong
        if overflow_of(page) > 0:
            found[f"{path} overflow"] = overflow_of(page)
        _reach_the_content(page)
    assert found == {}


def _reach_the_content(page: Page) -> None:
    """The first stop of the tabulator is the way past the menu."""
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_colours_are_chosen_and_stay(scene: ConsoleScene, tmp_path: Path) -> None:
    page = scene.page("/")
    button = page.locator("[data-theme-button]")
    button.click()
    button.click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
