"""The bars of the benchmark are stated in SPECIFICATION.md with the same numbers, each is measured, and what is known
to fall short is told with its cause."""

from pathlib import Path

import pytest

from palyra.bench.bar import Bar
from palyra.bench.bars import BARS
from palyra.bench.sources import sources

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = (ROOT / "SPECIFICATION.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/explanation/performance.md").read_text(encoding="utf-8")
TEST = "`tests/contract/test_performance_bars.py::test_each_bar_is_judged_by_one_benchmark`"


def stated_row(bar: Bar) -> str:
    return f"| {bar.what} | {bar.words} | {bar.against} | `{bar.key}` | {TEST} |"


def known_row(bar: Bar) -> str:
    return f"| {bar.what} | {bar.against} | {bar.words} | {bar.shortfall} |"


def rows_of(text: str, heading: str) -> list[str]:
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return lines[2:]


def test_the_specification_states_exactly_the_bars_that_are_judged() -> None:
    assert rows_of(SPECIFICATION, "Performance") == [stated_row(bar) for bar in BARS]


def test_keys_are_given_once() -> None:
    assert len({bar.key for bar in BARS}) == len(BARS) > 40


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.key)
def test_each_bar_is_judged_by_one_benchmark(bar: Bar) -> None:
    assert len([source.name for source in sources() if bar in source.bars()]) == 1


def test_what_falls_short_is_listed_with_its_cause() -> None:
    assert rows_of(PAGE, "What falls short") == [known_row(bar) for bar in BARS if bar.shortfall]
