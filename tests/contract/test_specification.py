"""SPECIFICATION.md is true: it is short, tests keep each promise, and each marker of a test names a promise."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.errors import ExitCode
from palyra.signing.tool_attestation import ToolAttestation

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SPECIFICATION.md").read_text(encoding="utf-8")
VERIFY_PAGE = (ROOT / "docs/how-to/verify-the-record.md").read_text(encoding="utf-8")
MAX_LINES = 200
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| `")]
IDS = [row[0].strip("`") for row in ROWS]
MARKER = "pytest.mark.promise"


def promises_marked_in(source: str) -> Iterator[str]:
    """Yield the ids of every promise marker on a test, or in the ``pytestmark`` of a module."""
    for node in ast.parse(source).body:
        places: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            places = node.decorator_list
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            places = [node.value]
        for call in (inner for place in places for inner in ast.walk(place)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == MARKER:
                yield from (ast.literal_eval(argument) for argument in call.args)


MARKED = {
    str(path.relative_to(ROOT)): set(promises_marked_in(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
}


def test_the_page_is_two_pages_of_promises() -> None:
    assert len(TEXT.splitlines()) <= MAX_LINES
    assert 40 <= len(IDS) <= 80 and len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_row_is_an_id_a_promise_and_a_link(row: list[str]) -> None:
    name, promise, link = row
    assert re.fullmatch(r"`P-[a-z]+(-[a-z]+)*`", name)
    assert promise.endswith(".") and re.fullmatch(r"\[[^]]+\]\([^)]+\)", link)


@pytest.mark.parametrize("promise", IDS)
def test_tests_keep_each_promise(promise: str) -> None:
    assert any(promise in marked for marked in MARKED.values())


def test_each_marker_names_a_promise() -> None:
    assert {path: marked - set(IDS) for path, marked in MARKED.items() if marked - set(IDS)} == {}


def test_the_pages_name_promises_that_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"`(P-[a-z-]+)`", page.read_text(encoding="utf-8"))}
    assert named == set(IDS)


def test_markers_are_found_on_tests_and_modules_only() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.slow, pytest.mark.promise("P-a")]
@pytest.mark.promise("P-b", "P-c")
@pytest.mark.parametrize("x", [1])
async def test_it(x): ...
@pytest.mark.promise("P-lost")
def helper(): ...
"""
    assert list(promises_marked_in(source)) == ["P-a", "P-b", "P-c"]


@pytest.mark.promise("P-evidence")
def test_the_attested_fields_are_the_ones_named() -> None:
    sentence = VERIFY_PAGE.partition("Attested fields: ")[2].partition(".\n")[0]
    assert tuple(re.findall(r"`([^`]+)`", sentence)) == ToolAttestation.__struct_fields__


@pytest.mark.promise("P-clear-errors")
def test_the_exit_codes_are_the_ones_named() -> None:
    sentence = next(line for line in TEXT.splitlines() if "`P-clear-errors`" in line).partition("Exit codes: ")[2]
    assert [int(code) for code in re.findall(r"(\d) [a-z]", sentence)] == list(ExitCode)
