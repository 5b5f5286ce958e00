"""What an operator does on the console, in a real Chromium on a real daemon."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from fakes.console_faults import READ, faults_of
from fakes.console_harness import PATIENCE_MS, PHONE, WIDE, ConsoleHarness, console_harness
from fakes.console_moments import EMPTY_PAGES
from fakes.daemon import Place
from fakes.skill_harness import PUBLISHER, SKILL, archive
from fakes.worker_process import WorkerProcess, worker_process
from palyra.signing.ed25519 import Ed25519Signer

expect.set_options(timeout=PATIENCE_MS)
SETTINGS = """
[access.groups]
viewers = ["user:eve"]
[skills]
builder_enabled = true
[workers]
require_egress_binding = false
heartbeat_seconds = 0.5
heartbeat_timeout_seconds = 20.0
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleHarness]:
    with console_harness(tmp_path_factory.mktemp("console"), SETTINGS) as harness:
        yield harness


@pytest.fixture
def harness(opened: ConsoleHarness) -> Iterator[ConsoleHarness]:
    yield opened
    opened.close_pages()
    assert opened.complaints == []


def request_of(page: Page, text: str) -> Locator:
    """The request whose own arguments say this."""
    arguments = page.get_by_label("Arguments of the call").filter(has_text=text)
    return page.get_by_role("article").filter(has=arguments)


def write_of(name: str) -> dict[str, str]:
    return {"path": name, "content": "hello"}


@pytest.mark.promise("P-console-works")
def test_a_house_in_which_nothing_happened_fits_can_be_read_and_is_reached_by_keyboard(harness: ConsoleHarness) -> None:
    """The first of all, as a person sees it a minute after the first start."""
    page = harness.page("/")
    found = {}
    for number, name in enumerate(EMPTY_PAGES):
        harness.open(page, f"/{name}")
        found[name] = faults_of(page, seen=READ, read=[READ[number % len(READ)]], menu=False)
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.promise("P-console-works")
def test_the_printed_token_logs_in_and_logging_out_ends_it(harness: ConsoleHarness) -> None:
    page = harness.stranger()
    page.goto(f"{harness.daemon.url}/approvals")
    assert page.url.endswith("/login")
    page.fill("#token", harness.daemon.token[:-1] + ("A" if harness.daemon.token[-1] != "A" else "B"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The token is not accepted.")
    page.fill("#token", f"  {harness.daemon.token}\n")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{harness.daemon.url}/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["expires"] == -1
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{harness.daemon.url}/login", timeout=30_000)
    page.context.add_cookies([cookie])
    page.goto(f"{harness.daemon.url}/")
    assert page.url.endswith("/login")


@pytest.mark.promise("P-console-works")
def test_a_waiting_call_is_approved_on_its_page_and_seen_to_run_without_reload(harness: ConsoleHarness) -> None:
    page = harness.page("/approvals")
    page.evaluate("window.untouched = true")
    call = harness.start_call("fs.write", write_of("approved.txt"))
    request = request_of(page, "approved.txt")
    expect(request.get_by_role("heading", level=2)).to_contain_text("fs.write for agent:bot")
    expect(request).to_contain_text("baseline.sensitive-needs-approval")
    expect(page.get_by_label("1 waiting")).to_be_visible()
    request.get_by_role("button", name="Approve").click()
    expect(page.locator("#decided")).to_contain_text("succeeded")
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert call.document()["data"]["status"] == "succeeded"
    assert page.evaluate("window.untouched") is True


@pytest.mark.promise("P-console-works")
def test_the_menu_tells_on_every_page_what_waits(harness: ConsoleHarness) -> None:
    """Also on a page that shows nothing of it, and without a reload."""
    page = harness.page("/doctor")
    page.evaluate("window.untouched = true")
    call = harness.start_call("fs.write", write_of("counted.txt"))
    expect(page.get_by_label("1 waiting")).to_be_visible()
    page.get_by_role("link", name=re.compile("Approvals")).click()
    request_of(page, "counted.txt").get_by_role("button", name="Deny").click()
    assert call.document()["error"]["code"] == "call.denied"


def test_on_a_phone_the_menu_says_on_which_side_it_goes_on(harness: ConsoleHarness) -> None:
    page = harness.page("/", width=PHONE)
    menu = page.locator("#menu")
    expect(menu).to_have_attribute("data-more", "after")
    harness.open(page, "/journal")
    expect(menu).to_have_attribute("data-more", "before after")
    harness.open(page, "/doctor")
    expect(menu).to_have_attribute("data-more", "before")
    page.set_viewport_size({"width": WIDE, "height": 800})
    expect(menu).to_have_attribute("data-more", "")


@pytest.mark.promise("P-approval-answer")
def test_a_call_is_refused_with_a_reason_that_the_agent_is_told(harness: ConsoleHarness) -> None:
    page = harness.page("/approvals")
    call = harness.start_call("fs.write", write_of("refused.txt"))
    request = request_of(page, "refused.txt")
    request.get_by_label("Reason").fill("not on a Friday")
    request.get_by_role("button", name="Deny").click()
    expect(page.locator("#decided")).to_contain_text("not on a Friday")
    error = call.document()["error"]
    assert error["code"] == "call.denied" and "not on a Friday" in error["message"]


@pytest.mark.promise("P-console-works")
def test_what_somebody_types_survives_the_news(harness: ConsoleHarness) -> None:
    page = harness.page("/approvals")
    first = harness.start_call("fs.write", write_of("first.txt"))
    reason = request_of(page, "first.txt").get_by_label("Reason")
    reason.fill("half a sent")
    second = harness.start_call("fs.write", write_of("second.txt"))
    request_of(page, "second.txt").get_by_role("button", name="Approve").click()
    assert second.document()["data"]["status"] == "succeeded"
    expect(request_of(page, "second.txt")).to_have_count(0)
    assert reason.input_value() == "half a sent"
    request_of(page, "first.txt").get_by_role("button", name="Deny").click()
    assert first.document()["error"]["code"] == "call.denied"


def test_who_walks_with_the_keyboard_stays_where_they_are_when_rows_come_in(harness: ConsoleHarness) -> None:
    """Never on the row that came into the place of theirs: Enter would open, or decide, something else."""
    first = harness.start_call("fs.write", write_of("kept.txt"))
    page = harness.page("/")
    link = page.locator("#now li", has_text="kept.txt").get_by_role("link")
    link.focus()
    place = "document.activeElement.getAttribute('href')"
    before = page.evaluate(place)
    second = harness.start_call("fs.write", write_of("newer.txt"))
    expect(page.locator("#now li", has_text="newer.txt")).to_be_visible()
    assert page.evaluate(place) == before
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{harness.daemon.url}{before}")
    expect(page.get_by_label("Arguments of the call")).to_contain_text("kept.txt")
    page.goto(f"{harness.daemon.url}/approvals")
    for name, call in (("kept.txt", first), ("newer.txt", second)):
        request_of(page, name).get_by_role("button", name="Deny").click()
        assert call.document()["error"]["code"] == "call.denied"


def test_a_pattern_lets_the_next_calls_run_and_the_difference_to_them_is_shown(harness: ConsoleHarness) -> None:
    page = harness.page("/approvals")
    call = harness.start_call("fs.list", {"path": "notes"}, principal="agent:reader")
    request = page.get_by_role("article").filter(has_text="agent:reader")
    request.get_by_label("Approve", exact=True).select_option("pattern")
    request.get_by_label("Pattern").fill('{"path": "not a pattern for it"}')
    expect(request.locator(".covers")).to_contain_text("the pattern does not even cover the call")
    expect(request.get_by_role("button", name="Approve")).to_be_disabled()
    request.get_by_label("Pattern").fill('{"path": "note*"}')
    request.get_by_role("button", name="Approve").click()
    call.document()
    outside = harness.start_call("fs.list", {"path": "other"}, principal="agent:reader")
    request = request_of(page, "other")
    expect(request.locator("del")).to_have_text("notes")
    expect(request.locator("ins")).to_have_text("other")
    request.get_by_role("button", name="Deny").click()
    outside.document()


def test_a_run_is_followed_along_its_timeline_down_to_one_call(harness: ConsoleHarness) -> None:
    run = harness.palyra("call", "echo", "--principal", "agent:bot", "--input", '{"text": "in a run"}')["data"][
        "run_id"
    ]
    page = harness.page(f"/runs/{run}")
    expect(page.locator("#timeline tbody tr")).to_have_count(1)
    harness.palyra("call", "echo", "--principal", "agent:bot", "--run-id", run, "--input", '{"text": "second"}')
    expect(page.locator("#timeline tbody tr")).to_have_count(2)
    page.locator("#timeline tbody tr").last.get_by_role("link").click()
    expect(page.locator("pre[aria-label=Output]")).to_contain_text("second")
    for step in ("call.requested", "call.decided", "call.started", "call.finished"):
        expect(page.locator(".events")).to_contain_text(step)
    page.get_by_text("Statement", exact=True).click()
    expect(page.locator("pre[aria-label=Statement]")).to_contain_text("argument_digest")


def test_a_viewer_sees_and_cannot_decide(harness: ConsoleHarness) -> None:
    token = harness.palyra("token", "create", "--principal", "user:eve")["data"]["token"]
    page = harness.page("/approvals", token=token)
    call = harness.start_call("fs.write", write_of("watched.txt"))
    request = request_of(page, "watched.txt")
    expect(request).to_contain_text("You may look at this and not decide it.")
    expect(request.get_by_role("button")).to_have_count(0)
    boss = harness.page("/approvals")
    request_of(boss, "watched.txt").get_by_role("button", name="Deny").click()
    call.document()


def test_the_journal_is_searched_and_verified_and_handed_out(harness: ConsoleHarness, tmp_path: Path) -> None:
    harness.palyra("call", "echo", "--principal", "agent:searched", "--input", '{"text": "a needle in it"}')
    page = harness.page("/journal")
    page.get_by_label("In the payload").fill("NEEDLE")
    page.get_by_label("Kind").fill("call.requested")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#events tbody tr")).to_have_count(1)
    page.locator("#events tbody tr").get_by_role("link").first.click()
    expect(page.get_by_label("Payload")).to_contain_text("a needle in it")
    harness.open(page, "/journal")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator("#verified")).to_contain_text("Sound:")
    with page.expect_download() as started:
        page.get_by_role("link", name="Export").click()
    started.value.save_as(tmp_path / "out.jsonl")
    assert harness.palyra("journal", "verify", str(tmp_path / "out.jsonl"))["ok"]
    kinds = [event["payload"]["action"] for event in _actions(harness)]
    assert {"journal.verify", "journal.export"} <= set(kinds)


def _actions(harness: ConsoleHarness) -> list[dict[str, Any]]:
    tail = harness.palyra("journal", "tail", "-n", "500", "--kind", "console.action_requested")
    events: list[dict[str, Any]] = tail["data"]["events"]
    return events


def test_policy_explains_a_call_and_replays_the_recorded_ones(harness: ConsoleHarness) -> None:
    page = harness.page("/policy")
    page.get_by_label("Principal").fill("agent:bot")
    page.get_by_label("Tool").select_option("fs.write")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#explained")).to_contain_text("needs approval")
    harness.open(page, "/policy/replay")
    expect(page.get_by_text("Every one of them would be decided the same today.")).to_be_visible()
    page.goto(f"{harness.daemon.url}/policy?principal=nobody&tool=fs.write")
    expect(page.get_by_role("alert")).to_contain_text("is not a principal")


def version_of(page: Page, version: str) -> Locator:
    title = page.get_by_role("heading", level=2).filter(has_text=f"Version {version}")
    return page.get_by_role("article").filter(has=title)


@pytest.mark.promise("P-skill-approved")
def test_a_skill_is_reviewed_by_what_it_asks_for_and_approved(harness: ConsoleHarness, tmp_path: Path) -> None:
    signer = Ed25519Signer.load_or_create(tmp_path / "acme.key")
    harness.palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    page = harness.page("/skills")
    for version, capabilities in (("1.0.0", ""), ("1.1.0", 'http_egress_allowlist = ["api.example.org"]')):
        file = tmp_path / f"{version}.skill"
        file.write_bytes(archive(version, signer=signer, capabilities=capabilities))
        assert harness.palyra("skill", "install", str(file))["ok"]
        harness.open(page, f"/skills/{SKILL}")
        article = version_of(page, version)
        if capabilities:
            expect(article.locator("ins").first).to_have_text("+ send requests to api.example.org")
        article.get_by_role("button", name="Approve this version").click()
        expect(article.get_by_role("heading", level=2)).to_contain_text("approved")
    page.once("dialog", lambda dialog: dialog.accept())
    older = version_of(page, "1.0.0")
    older.get_by_role("button", name="Roll back to this").click()
    expect(older.get_by_role("heading", level=2)).to_contain_text("approved")
    expect(page.locator("#history")).to_contain_text("skill.rolled_back")


def test_a_candidate_is_written_shown_and_given_up(harness: ConsoleHarness) -> None:
    page = harness.page("/skills")
    page.get_by_label("Skill id").fill("acme.greeter")
    page.get_by_label("Publisher").fill("acme")
    page.get_by_label("What it shall do").fill("Greets people by their names.")
    page.get_by_role("button", name="Write a scaffold").click()
    page.locator("#candidates").get_by_role("link", name="acme.greeter").click()
    expect(page.get_by_role("heading", name="skill.toml")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Discard").click()
    page.wait_for_url("**/skills")
    expect(page.locator("#candidates")).to_contain_text("discarded")


@pytest.mark.promise("P-console-works")
def test_a_worker_joins_with_the_payload_of_the_qr_code(harness: ConsoleHarness, tmp_path: Path) -> None:
    machine = Place(tmp_path / "machine")
    page = harness.page("/devices")
    page.get_by_label("For a").select_option("worker")
    page.get_by_role("button", name="Make a code").click()
    expect(page.locator("#qr path")).to_have_count(1)
    command = page.locator("#code-text").inner_text()
    assert command.startswith("palyra-workerd join --code '")
    code = command.partition("'")[2].rstrip("'")
    joining = WorkerProcess(machine, "join", "--code", code)
    try:
        joining.says("shows the code")
        digits = joining.said.partition("shows the code ")[2][:6]
        request = page.locator("#asking article")
        expect(request.locator(".compare")).to_have_text(digits)
        expect(page.locator("#menu a[href='/devices']").get_by_label("1 waiting")).to_be_visible()
        request.get_by_label("Digits on the device").fill(digits)
        request.get_by_role("button", name="Let it in").click()
        assert joining.wait() == 0, joining.said
    finally:
        joining.stop()
    with worker_process(machine, "--slots", "2") as worker:
        worker.says("connected and attested")
        row = page.locator("#workers tbody tr")
        expect(row).to_contain_text("0 of 2")
        row.get_by_role("button", name="Drain").click()
        expect(row).to_contain_text("draining")
        row.get_by_role("button", name="Resume").click()
        expect(row.get_by_role("button", name="Drain")).to_be_visible()
    made = [event["payload"] for event in _actions(harness) if event["payload"]["action"] == "pairing.make_code"]
    assert made and code not in json.dumps(harness.palyra("journal", "tail", "-n", "1000"))


def test_a_token_and_a_pairing_command_are_copied_with_a_button(harness: ConsoleHarness) -> None:
    page = harness.page("/access")
    page.context.grant_permissions(["clipboard-write"])
    copy_token = page.get_by_role("button", name="Copy the token")
    expect(copy_token).to_have_count(0)
    page.get_by_label("For", exact=True).fill("agent:coder")
    page.get_by_role("button", name="Make a token").click()
    copy_token.click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    label = page.get_by_label("Label")
    label.focus()
    page.keyboard.press("Control+V")
    expect(label).to_have_value(page.locator("#made").inner_text())
    harness.open(page, "/devices")
    page.locator("#method").select_option("pin")
    page.get_by_role("button", name="Make a code").click()
    # A browser that gives no clipboard: the text is chosen, to be copied by hand.
    page.context.clear_permissions()
    page.get_by_role("button", name="Copy the command").click()
    expect(page.get_by_text("Chosen: copy it with your keyboard.")).to_be_visible()
    assert page.evaluate("getSelection().toString().trim()") == page.locator("#code-text").inner_text()


def test_the_machine_is_examined_on_demand(harness: ConsoleHarness) -> None:
    page = harness.page("/doctor")
    expect(page.get_by_text("This machine was not examined since the daemon started.")).to_be_visible()
    page.get_by_role("button", name="Examine this machine").click()
    expect(page.locator("#report tbody")).to_contain_text("keeps the file tools in their workspace")


def test_the_vault_shows_names_and_never_values(harness: ConsoleHarness) -> None:
    value = "value-that-nobody-sees"
    harness.place.palyra("vault", "put", "global/shown", stdin=value)
    page = harness.page("/vault")
    expect(page.locator("#secrets")).to_contain_text("global/shown")
    assert value not in page.content()


def test_the_colours_are_chosen_and_stay(harness: ConsoleHarness, tmp_path: Path) -> None:
    page = harness.page("/")
    button = page.locator("[data-theme-button]")
    button.click()
    button.click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
