"""SPECIFICATION.md is true: its tests exist, its numbers are the program's, and no limit is missing."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra import limits
from palyra.config.settings import known_settings
from palyra.errors import ExitCode
from palyra.limits import KIB, MIB
from palyra.tools.attestation import ToolAttestation

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SPECIFICATION.md").read_text(encoding="utf-8")
UNITS = {"KiB": KIB, "MiB": MIB}
CODE = re.compile(r"`([^`]+)`")


class Row(msgspec.Struct, frozen=True):
    columns: dict[str, str]

    @property
    def tests(self) -> list[str]:
        return CODE.findall(self.columns["test"])


def rows() -> list[Row]:
    """Every row of every table, by the names of its columns."""
    found: list[Row] = []
    names: list[str] = []
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            names = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not names:
            names = cells
        elif not set(line) <= set("|-"):
            assert len(cells) == len(names), line
            found.append(Row(dict(zip(names, cells, strict=True))))
    return found


ROWS = rows()
NUMBERS = [row for row in ROWS if "constant" in row.columns]


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def constant(name: str) -> Any:
    if name.startswith("settings:"):
        return known_settings()[name.removeprefix("settings:")].default
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def number(stated: str) -> float:
    """``64 KiB``, ``30,000 ms``, ``0700``: the value that is meant."""
    digits, _, unit = stated.partition(" ")
    if re.fullmatch(r"0[0-7]{3}", digits):
        return int(digits, 8)
    return float(digits.replace(",", "")) * UNITS.get(unit, 1)


def test_the_page_was_read() -> None:
    assert len(ROWS) > 100 and len(NUMBERS) > 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.columns["promise"][:60])
def test_every_row_names_tests_that_exist(row: Row) -> None:
    assert row.columns["promise"] and row.tests, row
    for test in row.tests:
        path, _, name = test.partition("::")
        assert path.startswith("tests/") and (ROOT / path).is_file(), path
        assert name in functions_of(path), test


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row.columns["constant"])
def test_every_number_is_that_of_its_constant(row: Row) -> None:
    (name,) = CODE.findall(row.columns["constant"])
    assert number(row.columns["value"]) == constant(name)


def test_no_limit_is_missing() -> None:
    stated = {CODE.findall(row.columns["constant"])[0] for row in NUMBERS}
    assert {f"palyra.limits.{name}" for name in vars(limits) if name.isupper()} - stated == {
        "palyra.limits.KIB",
        "palyra.limits.MIB",
    }


def test_the_attested_fields_are_the_ones_named() -> None:
    sentence = TEXT.partition("Fields: ")[2].partition(".\n")[0]
    assert tuple(CODE.findall(sentence)) == ToolAttestation.__struct_fields__


def test_the_exit_codes_are_the_ones_named() -> None:
    sentence = next(line for line in TEXT.splitlines() if line.startswith("0 done,"))
    assert [int(code) for code in re.findall(r"(\d) [a-z]", sentence)] == list(ExitCode)


@pytest.mark.parametrize(
    ("stated", "value"), [("64 KiB", 65536), ("30,000 ms", 30000), ("0700", 0o700), ("256", 256), ("1 MiB", 2**20)]
)
def test_values_are_read_as_they_are_meant(stated: str, value: float) -> None:
    assert number(stated) == value
