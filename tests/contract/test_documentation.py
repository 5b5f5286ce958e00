"""What the documentation shows is what happens: transcripts replay, examples are valid, links lead somewhere."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from fakes.daemon import Place
from palyra.config.settings import Settings, check_together
from palyra.daemons.entity_directory import directory_of
from palyra.daemons.tool_set import builtin_catalog
from palyra.identity.principal import Principal
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Decision, Outcome
from palyra.policy.loader import load_bundle
from palyra.policy.request import tool_request

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("README.md"))
    if ".venv" not in path.parts
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ULID = re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{25}\b")
# What differs from one run to the next.
VOLATILE = [
    (ULID, "ID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\bbundle [0-9a-f]{12}\b"), "bundle DIGEST"),
    (re.compile(r"ed25519:[0-9a-f]{32}"), "KEY"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"\b\d+ ms\b"), "N ms"),
    (re.compile(r"^checkpoints: .*\ncompared with .*$", re.MULTILINE), "CHECKPOINTS"),
    (re.compile(r"^workspace +\S+$", re.MULTILINE), "WORKSPACE"),
]


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def steady(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip()


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of the page's transcripts with what it is said to print."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


@pytest.mark.parametrize(
    ("page", "with_daemon"),
    [
        ("README.md", False),
        ("docs/tutorial/first-five-minutes.md", True),
        ("docs/how-to/investigate-an-incident.md", False),
    ],
)
def test_a_transcript_is_what_the_program_prints(tmp_path: Path, page: str, with_daemon: bool) -> None:
    place = Place(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "palyra").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m palyra.cli.main "$@"\n')
    (programs / "palyra").chmod(0o755)
    environment = {**place.environment, "PATH": f"{programs}:{os.environ['PATH']}"}
    names: dict[str, str] = {}
    status = 0
    seen = 0
    with ExitStack() as running:
        if with_daemon:
            running.enter_context(place.daemon())
        for command, said in steps(ROOT / page):
            seen += 1
            if command == "echo $?":
                assert int(said) == status
                continue
            for old, new in names.items():
                command = command.replace(old, new)
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            status = done.returncode
            assert steady(done.stdout) == steady(said), command
            # The ids of the page stand for those of this run.
            names |= dict(zip(ULID.findall(said), ULID.findall(done.stdout), strict=True))
    assert seen > 5


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


@pytest.mark.parametrize("page", ["write-policies", "protect-a-coding-agent", "run-for-a-team"])
def test_the_settings_of_the_how_tos_are_settings(page: str) -> None:
    examples = blocks(ROOT / f"docs/how-to/{page}.md", "toml")
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


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/first-five-minutes.md"])
def test_the_readme_names_the_commands_of_the_makefile(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(blocks(ROOT / page, "sh")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
