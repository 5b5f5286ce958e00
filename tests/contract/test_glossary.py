"""docs/reference/glossary.md: few terms, one sentence each, and every module it links defines what the page names."""

import re
from pathlib import Path

import pytest

from fakes.documented import names_defined_in

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "glossary.md"
LINK = re.compile(r"\[`(\w+)`\]\(([^)]+)\)")
MAX_TERMS = 40
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]
TERMS = [row[0] for row in ROWS]


def test_terms_are_few_sorted_and_named_once() -> None:
    assert 20 < len(TERMS) <= MAX_TERMS
    assert sorted(set(TERMS), key=str.lower) == TERMS


@pytest.mark.parametrize("row", ROWS, ids=TERMS)
def test_a_term_is_one_sentence_and_its_modules_define_it(row: list[str]) -> None:
    _, meaning, place = row
    assert meaning.endswith(".") and ". " not in meaning and len(meaning.split()) <= 20
    links = LINK.findall(place)
    assert links
    for name, target in links:
        assert name in names_defined_in(PAGE.parent / target), (name, target)
