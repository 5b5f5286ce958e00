"""One benchmark judges each bar, and the page on performance lists the cause of each known shortfall."""

from pathlib import Path

import pytest

from benchmarks.bar import Bar
from benchmarks.bars import BARS
from benchmarks.sources import find_sources

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/performance.md").read_text(encoding="utf-8")


def known_row(bar: Bar) -> str:
    return f"| {bar.what} | {bar.against} | {bar.words} | {bar.shortfall} |"


def rows_of(text: str, heading: str) -> list[str]:
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return lines[2:]


def test_keys_are_given_once() -> None:
    assert len({bar.key for bar in BARS}) == len(BARS) > 40


@pytest.mark.promise("P-performance")
@pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.key)
def test_each_bar_is_judged_by_one_benchmark(bar: Bar) -> None:
    assert len([source.name for source in find_sources() if bar in source.bars()]) == 1


def test_what_falls_short_is_listed_with_its_cause() -> None:
    assert rows_of(PAGE, "What falls short") == [known_row(bar) for bar in BARS if bar.shortfall]
