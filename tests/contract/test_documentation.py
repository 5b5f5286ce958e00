"""Examples of the documentation are valid, and its links lead somewhere. Commands: tests/e2e/test_pages_followed.py."""

import ast
import fnmatch
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from fakes.page_reader import blocks_of
from palyra.daemon.pipeline_wiring import directory_of
from palyra.daemon.settings import Settings, check_together
from palyra.executors.tool_set import builtin_catalog
from palyra.ids import Principal
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Decision, Outcome
from palyra.policy.live_policy import load_bundle
from palyra.policy.request import tool_request
from palyra.server.console.app import SECTIONS
from palyra.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("README.md"))
    if ".venv" not in path.parts
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def blocks(page: Path, language: str) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == language]


def test_the_policies_of_the_how_to_are_valid_together_and_do_what_they_say() -> None:
    examples = blocks(ROOT / "docs/how-to/write-policies.md", "cedar")
    assert len(examples) >= 3
    base = load_bundle(None, directory_of(Settings()))
    files = tuple((f"{number}.cedar", text) for number, text in enumerate(examples))
    bundle = Bundle(
        schema=base.schema, files=(*base.files, *files), directory=base.directory, schema_name=base.schema_name
    )
    engine = CedarEngine(bundle)

    def asked(tool: str, principal: str = "agent:any", path: str = "a", approved: bool = False) -> Decision:
        spec = builtin_catalog().entry(tool).spec
        directory = base.directory
        request = tool_request(
            directory.principal(Principal.parse(principal)),
            directory.tool(tool, frozenset(spec.metadata.capabilities), spec.metadata.sensitive, spec.tier.value),
            directory.channel("api"),
            workspace="/w",
            run="r",
            argument_bytes=2,
            paths=(path,),
            hosts=(),
        )
        return engine.decide(msgspec.structs.replace(request, context={**request.context, "approved": approved}))

    assert asked("fs.write").outcome is Outcome.NEEDS_APPROVAL
    assert asked("fs.write", path="docs/index.md", approved=True).policies == ("no-writes-to-docs",)
    assert asked("sleep").outcome is Outcome.NEEDS_APPROVAL
    assert asked("sleep", approved=True).outcome is Outcome.ALLOW
    read = asked("fs.read", principal="agent:bot", approved=True)
    assert (read.obligations.timeout_ms, read.obligations.max_output_bytes) == (2_000, 65_536)
    assert asked("fs.read", principal="agent:bot").outcome is Outcome.NEEDS_APPROVAL


@pytest.mark.parametrize("page", ["write-policies", "protect-a-coding-agent", "run-for-a-team", "give-an-agent-an-api"])
def test_the_settings_of_the_how_tos_are_settings(page: str) -> None:
    # Files of expectations are TOML too, and have a version of their own.
    examples = [text for text in blocks(ROOT / f"docs/how-to/{page}.md", "toml") if "[[expect]]" not in text]
    assert examples
    for example in examples:
        check_together(msgspec.convert(tomllib.loads(example), Settings))


def test_settings_and_policies_of_the_browser_are_valid() -> None:
    page = ROOT / "docs/how-to/use-the-browser.md"
    (example,) = blocks(page, "toml")
    check_together(msgspec.convert(tomllib.loads(example), Settings))
    base = load_bundle(None, directory_of(Settings()))
    files = tuple((f"{number}.cedar", text) for number, text in enumerate(blocks(page, "cedar")))
    assert files
    CedarEngine(Bundle(schema=base.schema, files=(*base.files, *files), directory=base.directory))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_python_parses(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target
    for example in blocks(page, "python"):
        ast.parse(example)


def test_every_document_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    assert {path.resolve() for path in (ROOT / "docs").rglob("*.md")} - {index.resolve()} <= linked


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/twenty-minutes.md"])
def test_the_readme_names_the_commands_of_the_makefile(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(blocks(ROOT / page, "sh")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_newcomers_find_the_five_minute_path_on_ten_lines() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 10 and "`make check`" in text
    (test,) = re.findall(r"`\.venv/bin/pytest (\S+)`", text)
    assert (ROOT / test).is_file()


def test_the_changelog_has_this_version() -> None:
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_commits_run_only_checks_of_this_checkout() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"repo: (\S+)", text) == ["local"]
    for program in re.findall(r"entry: (\S+)", text):
        assert (ROOT / program).is_file(), program


def first_cells(page: Path, heading: str) -> list[str]:
    """Return the first cell of each row of the table under a heading."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_page_of_the_consoles_menu_is_in_its_how_to() -> None:
    menu = [page.menu or page.title for section in SECTIONS for page in section.pages if not page.above]
    assert first_cells(ROOT / "docs/how-to/use-the-console.md", "Pages") == menu


def test_the_readme_names_every_tool_but_those_for_a_try() -> None:
    # The row about workers names tools of other rows.
    rows = [cell for cell in first_cells(ROOT / "README.md", "What is in it") if "--tier worker" not in cell]
    named = re.findall(r"`([^`]+)`", " ".join(rows))
    tools = [str(spec.name) for spec in builtin_catalog().specs()]
    assert [tool for tool in tools if not any(fnmatch.fnmatch(tool, name) for name in named)] == ["echo", "sleep"]
    assert "fs.*" not in named, "each file tool by its name"
