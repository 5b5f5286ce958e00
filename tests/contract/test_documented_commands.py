"""Every command that the documentation shows is run by a test, or says why not; and every command it names exists."""

import re
import shlex
from pathlib import Path

import click
import pytest

from fakes.page_reader import FOLLOWED, ROOT, blocks_of
from palyra.cli.main import root
from palyra.cli.workerd import workerd

DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
    if "generated" not in page.read_text().partition("\n## ")[0]
)
COMMANDS = {"sh", "console"}
# Blocks in these languages show no commands. A block without a language could be anything.
OTHERS = {"toml", "cedar", "json", "python", "text", "ini", "mermaid"}
# Why a block is not run, and what each is taken for: the words that must stand in it.
REASONS = {
    "reaches the internet": r"https://|install",
    "changes the machine as root": r"/etc/|/opt/|/var/",
    "needs a login session with systemd": r"systemctl --user",
    "what CI itself runs": r"^make ",
    # tests/unit/cli/test_browser.py gives each of them to the program, tests/e2e/test_browser_agent.py has a site.
    "needs a site of your own": r"^palyra browser ",
    "needs recorded runs of your own": r"^palyra skill builder ",
    "tests/security/test_sandbox_attacks.py makes every attempt": r"^palyra doctor --attack$",
}
PROGRAMS = {"palyra": root, "palyra-workerd": workerd}
# Where a shell begins to do something of its own, outside quotes.
_WITHOUT_SHELL = re.compile(r""" (?:\||>|<|&&|\#) (?=(?:[^'"]|'[^']*'|"[^"]*")*$)""")
WRITTEN = re.compile(r"`(palyra(?:-workerd)? [a-z][^`]*)`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_stand_in_blocks_that_say_so(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in COMMANDS | OTHERS, block
        if block.language not in COMMANDS:
            assert not re.search(r"^(\$ )?palyra(-\w+)? [a-z]", block.text, re.MULTILINE), block


@pytest.mark.promise("P-documented")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_commands_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks_of(page):
        if block.language not in COMMANDS:
            continue
        kind, _, rest = block.mark.partition(": ")
        if kind == "not run":
            assert rest in REASONS, block
            assert re.search(REASONS[rest], block.text, re.MULTILINE), block
        elif block.mark.startswith("run by "):
            runner = ROOT / block.mark.removeprefix("run by ")
            assert page.name in runner.read_text(encoding="utf-8"), f"{runner} does not name {page.name}"
        else:
            assert block.mark in {"", "stays running"}, block
            assert name_of(page) in FOLLOWED, f"nobody follows {page}"


def test_no_page_is_followed_that_is_not_there() -> None:
    assert [page for page in FOLLOWED if not (ROOT / page).is_file()] == []


def commands_named(page: Path) -> list[str]:
    """In blocks and in prose; without what a shell does around them."""
    found = []
    for block in blocks_of(page):
        if block.language in COMMANDS:
            for command, _ in block.commands:
                found += _WITHOUT_SHELL.split(command.splitlines()[0])
    found += WRITTEN.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    return [command for command in found if command.split(" ")[0] in PROGRAMS and "…" not in command]


@pytest.mark.promise("P-documented")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_exists_with_its_options(page: Path) -> None:
    for written in commands_named(page):
        program, *words = shlex.split(written.replace("[", "").replace("]", ""))
        command: click.Command = PROGRAMS[program]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        for word in words:
            if word == "--":
                break
            if isinstance(command, click.Group) and not word.startswith("-"):
                deeper = command.get_command(click.Context(command), word)
                if deeper is None and not known & {"--state-dir"}:
                    raise AssertionError(f"{written}: there is no {word}")
                if deeper is None:
                    continue
                command = deeper
                known |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
            elif word.startswith("--"):
                assert word.partition("=")[0] in known | {"--help", "--version"}, f"{written}: no {word}"
