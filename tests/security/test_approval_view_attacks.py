"""Class *Approvals and budgets*: an agent writes a call that looks like another one, and a person looks at it.

The console is read in a real Chromium, the command line at a real terminal. What is shown is read back by code that
knows nothing of the one that wrote it, and has to be the canonical arguments, byte for byte.
"""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from rich.cells import cell_len

from fakes.console_harness import PATIENCE_MS, PHONE, WIDE, ConsoleHarness, console_harness, overflow_of
from fakes.daemon import PALYRA, Daemon, Place
from palyra.canonical import canonical_json, digest_of
from palyra.client.client import Client
from palyra.errors import PalyraError

expect.set_options(timeout=PATIENCE_MS)
HIDDEN = "\u202e\u2066\u200b\u200d\u2060\ufeff\u00ad\u034f\u115f\u3164\ufe0f\U000e0041\U000e007f\u2800"
STEERING = "\x00\x1b[2J\x7f\x85\x9b\u2028\u2029\r\t\v"
LOOK_ALIKES = "p\u0430ypal e\u0301 \u212a a\u2044b a\u037eb \u05d0/\u05d1 x=\u0338y \u00a0\u2003\ue000\u0378"
POSING = (
    "\u0441\u0440 -r \u0430.sh paypa1\u0441 g\u0b66ogle \u15eaocs a\u02ba, \u02bab x\ua78c y\u01c0z \u2217.txt m\u2571n"
)
FAKE = 'ok",\n  "mode": "append"\n}\ndigest     0\nwould touch  nothing outside itself'
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "hidden": ("fs.write", {"path": "a.txt", "content": f'{HIDDEN}a{STEERING}{LOOK_ALIKES} {POSING} \\u202e \\ "'}),
    "labels": ("process.run", {"command": "make", "args": [FAKE, HIDDEN], "stdin": FAKE}),
    "far-right": ("process.run", {"command": "echo", "args": ["x" + " " * 3_000 + "; rm -rf ."]}),
    "far-down": (
        "process.run",
        {"command": "echo", "args": ["x" + "\n" * 800 + "y"], "stdin": "\n" * 500 + "rm -rf ."},
    ),
}
LONG = {"path": "long.txt", "content": "harmless\n" * 6_000 + "rm -rf ~ \u202e" + "z" * 600}
SETTINGS = "[tools]\nallowed = ['*']\n"


def ask(client: Client, tool: str, arguments: dict[str, Any], principal: str = "agent:bot") -> str:
    with pytest.raises(PalyraError) as asked:
        client.call(tool, arguments, principal=principal)
    return str(asked.value.details["approval_id"])


def read_back(shown: str) -> bytes:
    """What a person reads, as bytes. Everything in it is ASCII that prints: all the rest is spelled out."""
    assert re.fullmatch(r"[\x20-\x7e\n]*", shown), ascii(shown)
    return canonical_json(json.loads(shown))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleHarness]:
    with console_harness(tmp_path_factory.mktemp("shown"), SETTINGS) as harness:
        yield harness


@pytest.fixture
def harness(opened: ConsoleHarness) -> Iterator[ConsoleHarness]:
    yield opened
    opened.close_pages()


def shown_in(place: Locator | Page) -> str:
    """The visible text. ``innerText`` leaves out what a page does not draw, and adds no line where it wraps one."""
    return str(place.get_by_label("Arguments of the call").evaluate("(each) => each.innerText"))


@pytest.mark.promise("P-approval-shown")
@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_the_console_shows_exactly_the_canonical_arguments(harness: ConsoleHarness, width: int) -> None:
    with harness.daemon.client() as client:
        asked = {name: ask(client, *call) for name, call in CALLS.items()}
    page = harness.page("/approvals", width=width)
    for name, approval in asked.items():
        card = page.get_by_role("article").filter(has=page.locator(f"#t-{approval}"))
        expect(card).to_be_visible()
        assert read_back(shown_in(card)) == canonical_json(CALLS[name][1]), name
        # Nothing of it runs out of sight to the right, not even behind three thousand blanks.
        assert card.evaluate(
            "(card) => [...card.querySelectorAll('pre, .touches, .diff td')]"
            ".every((each) => each.scrollWidth <= each.clientWidth + 1)"
        ), name
        # Nor below: all of the call is above the button, without scrolling a box.
        assert card.evaluate(
            "(card) => [...card.querySelectorAll('pre.shown')].every((each) =>"
            " each.scrollHeight <= each.clientHeight + 1"
            " && each.getBoundingClientRect().bottom <= card.querySelector('.decide').getBoundingClientRect().top)"
        ), name
        expect(card).to_contain_text(digest_of(CALLS[name][1]))
    assert overflow_of(page) <= 0
    for hidden in HIDDEN + re.sub(r"[\s -~]", "", STEERING):
        assert hidden not in page.locator("main").evaluate("(each) => each.textContent"), hex(ord(hidden))


@pytest.mark.promise("P-approval-shown")
def test_a_long_call_is_approved_only_where_all_of_it_is_shown(harness: ConsoleHarness) -> None:
    with harness.daemon.client() as client:
        approval = ask(client, "fs.write", LONG, "agent:long")
        page = harness.page("/approvals")
        card = page.get_by_role("article").filter(has=page.locator(f"#t-{approval}"))
        expect(card.get_by_text("too long for the list")).to_be_visible()
        expect(card.get_by_role("button", name="Approve")).to_have_count(0)
        card.get_by_role("link", name="Read all of it").click()
        expect(page.locator("#request")).to_be_visible()
        assert read_back(shown_in(page)) == canonical_json(LONG)
        # Once more as it is read, with the same letters.
        text = str(page.get_by_label("An argument as text").evaluate("(each) => each.innerText"))
        assert text.replace("\\u202e", "\u202e") == LONG["content"]
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("#request .verdict")).to_contain_text("approved")
        assert client.approval(approval).state == "approved"


@pytest.mark.promise("P-approval-shown")
def test_a_request_that_comes_under_the_pointer_takes_no_click_at_once(harness: ConsoleHarness) -> None:
    who = "agent:pointer"
    with harness.daemon.client() as client:
        first, second = (ask(client, "fs.write", {"path": f"{name}.txt", "content": "x"}, who) for name in "ab")
        page = harness.page(f"/approvals?who={who}")
        cards = [page.get_by_role("article").filter(has=page.locator(f"#t-{each}")) for each in (first, second)]
        button = cards[0].get_by_role("button", name="Approve")
        button.scroll_into_view_if_needed()
        place = button.bounding_box()
        assert place is not None
        # Clicks where the button is, in the same moment in which the page changes beneath it.
        page.evaluate(
            """([x, y, id]) => {
              new MutationObserver(() => {
                if (document.getElementById(`t-${id}`) || document.body.dataset.hit) return;
                document.body.dataset.hit = document.elementFromPoint(x, y)?.closest("button")?.value ?? "none";
              }).observe(document.getElementById("waiting"), { childList: true, subtree: true });
            }""",
            [place["x"] + place["width"] / 2, place["y"] + place["height"] / 2, first],
        )
        client.deny(first)
        expect(page.locator("body")).to_have_attribute("data-hit", "none")
        cards[1].get_by_role("button", name="Approve").click()
        expect(cards[1]).to_have_count(0)
        assert client.approval(second).state == "approved"


@pytest.mark.promise("P-approval-shown")
def test_a_wider_approval_starts_as_this_call_and_says_what_it_covers(harness: ConsoleHarness) -> None:
    call = {"command": "bash", "args": ["-c", "make test *"], "cwd": "."}
    with harness.daemon.client() as client:
        approval = ask(client, "process.run", call, "agent:wide")
        page = harness.page(f"/approvals/{approval}")
        form = page.get_by_role("form", name="Approve process.run")
        approve, said = form.get_by_role("button", name="Approve"), form.locator(".covers")
        expect(said).to_be_hidden()
        form.get_by_label("Approve", exact=True).select_option("pattern")
        assert json.loads(form.get_by_label("Pattern").input_value()) == call
        expect(said).to_contain_text('where args is ["-c", "make test *"] and command is "bash"')
        expect(said).to_contain_text("and it has no other argument")
        form.get_by_label("Pattern").fill('{"command": "ba*"}')
        expect(said).to_contain_text("where command matches ba*, whatever its other arguments: args, cwd, and any more")
        form.get_by_label("Pattern").fill('{"command": "zsh"}')
        expect(said).to_contain_text("does not even cover the call")
        expect(approve).to_be_disabled()
        form.get_by_label("Pattern").fill(json.dumps(call))
        expect(approve).to_be_enabled()
        approve.click()
        expect(page.locator("#request .verdict")).to_contain_text("and it has no other argument")
        for other in ({**call, "args": ["-c", "make test; rm"]}, {**call, "env": {"A": "b"}}, {"command": "bash"}):
            assert ask(client, "process.run", other, "agent:wide") != approval


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Place(tmp_path_factory.mktemp("terminal"), SETTINGS).daemon() as running:
        yield running


def at_a_terminal(place: Place, words: list[str], answer: str, columns: int = 60_000) -> tuple[str, int]:
    """What the command prints there, when the person types this at its question."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    running = subprocess.Popen([*PALYRA, *words], env=place.environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    printed = b""
    with suppress(OSError):
        while chunk := os.read(ours, 65536):
            printed += chunk
            if printed.endswith(b"[y/N]: "):
                os.write(ours, f"{answer}\n".encode())
    os.close(ours)
    return printed.decode().replace("\r\n", "\n"), running.wait(60)


def arguments_in(printed: str) -> str:
    """The lines of the label ``arguments``: the first one, and those that are indented beneath it."""
    found = re.search(r"^arguments( +)(.*\n(?:\1 {9}.*\n)*)", printed, re.MULTILINE)
    assert found, printed
    return found[2].replace("\n" + found[1] + " " * 9, "\n")


@pytest.mark.promise("P-approval-shown")
@pytest.mark.parametrize("name", CALLS)
def test_the_command_line_shows_the_request_before_it_asks(daemon: Daemon, name: str) -> None:
    with daemon.client() as client:
        approval = ask(client, *CALLS[name])
        printed, status = at_a_terminal(daemon.place, ["approvals", "approve", approval], "n")
        assert status == 2 and "approval.not_confirmed" in printed and client.approval(approval).state == "pending"
        assert re.fullmatch(r"[\x20-\x7e\n]*", printed), ascii(printed)
        assert read_back(arguments_in(printed)) == canonical_json(CALLS[name][1])
        labels = [line.split("  ")[0] for line in printed.split("\n") if re.match(r"\w+( \w+)?  ", line)]
        assert labels.count("arguments") == labels.count("digest") == labels.count("would touch") == 1
        printed, status = at_a_terminal(daemon.place, ["approvals", "approve", approval], "y")
        assert status == 0 and client.approval(approval).state == "approved"


@pytest.mark.promise("P-approval-shown")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_value_reaches_the_column_of_the_labels_where_a_terminal_breaks_its_lines(
    daemon: Daemon, columns: int
) -> None:
    # Each of these begins a row somewhere, whatever stands before them.
    labels = "".join("x" * before + "tool      fs.read".ljust(columns) for before in range(1, columns))
    wide = "\u4e2d\u6587" * columns
    with daemon.client() as client:
        approval = ask(client, "fs.write", {"path": "a.txt", "content": labels + wide})
        printed, status = at_a_terminal(daemon.place, ["approvals", "approve", approval], "n", columns)
        shown = printed[: printed.index("\nApprove it?")].strip("\n").split("\n")
        assert status == 2 and all(cell_len(row) <= columns for row in shown)
        rows = [row for row in shown if not row.startswith(" ")]
        assert [row.split("  ")[0] for row in rows].count("tool") == 1
        column = len(re.match(r"approval +", rows[0])[0])
        assert all(not row[:column].strip() or row[column - 1] == " " for row in shown)


@pytest.mark.promise("P-approval-shown")
def test_the_command_line_says_what_a_wider_approval_covers(daemon: Daemon) -> None:
    with daemon.client() as client:
        approval = ask(client, "process.run", {"command": "make", "args": ["a*"]})
        wide = ["approvals", "approve", approval, "--scope", "pattern", "--pattern", '{"command": "make"}']
        printed, status = at_a_terminal(daemon.place, wide, "n")
        assert status == 2
        assert 'where command is "make", whatever its other arguments: args, and any more' in printed


@pytest.mark.promise("P-approval-shown")
def test_without_a_terminal_nobody_approves_what_nobody_saw(daemon: Daemon) -> None:
    with daemon.client() as client:
        arguments = {"command": "make", "args": ["install"]}
        approval = ask(client, "process.run", arguments)
        approve = ("approvals", "approve", approval)
        blind = daemon.place.palyra(*approve, stdin="y\n")
        assert blind.status == 2 and "approval.not_read" in blind.stderr and "--digest" in blind.stderr
        wrong = daemon.place.palyra(*approve, "--digest", "0" * 64, "--json")
        assert wrong.error["code"] == "approval.changed_call"
        assert client.approval(approval).state == "pending"
        assert daemon.place.palyra(*approve, "--digest", digest_of(arguments)).status == 0
