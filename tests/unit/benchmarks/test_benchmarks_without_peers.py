"""Each benchmark that needs no other program gives rows that can be judged; here with few samples.

policy_bench, journal_bench, pipeline_bench, launch_bench, start_bench, growth_bench, measure.
"""

from typing import Any

import pytest

from benchmarks import growth_bench, journal_bench, launch_bench, pipeline_bench, policy_bench, start_bench
from benchmarks.bar import Verdict, judge_all
from benchmarks.measure import alternately, row
from benchmarks.sources import find_sources

FEW: dict[Any, dict[str, Any]] = {
    policy_bench: {"ROUNDS": 30, "WARM_UP": 5, "FEW": 10, "MANY": 50},
    journal_bench: {"ROUNDS": 3, "WAITERS": 4, "CALLS_PER_WAITER": 3, "VERIFY_EVENTS": 1_000, "VERIFY_SAMPLES": 2},
    pipeline_bench: {"SAMPLES": 5, "CALLERS": 4, "CALLS_PER_CALLER": 2},
    launch_bench: {"SAMPLES": 5, "BURST": 4, "AT_ONCE": 2},
    start_bench: {"SAMPLES": 2, "WEIGHED": 1},
    growth_bench: {
        "POLICIES": (10, 50),
        "EVENTS": (500, 1_500),
        "AT_ONCE": (1, 4),
        "DECISIONS": 10,
        "CALLS": 5,
        "SANDBOXES": 4,
    },
}


@pytest.mark.parametrize("module", FEW, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_bar_of_it_is_measured(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FEW[module].items():
        monkeypatch.setattr(module, name, value)
    rows = module.run()
    (source,) = [each for each in find_sources() if each.module == module.__name__]
    assert source.bars()
    for judged in judge_all(source.bars(), rows, {}):
        assert judged.verdict is not Verdict.NOT_MEASURED and judged.reached, judged


def test_two_things_are_measured_in_turn() -> None:
    asked: list[str] = []
    ours, theirs = alternately(lambda: asked.append("a"), lambda: asked.append("b"), 4)
    assert asked == ["a", "b"] * 7 and len(ours) == len(theirs) == 4
    found = row("n", "ms", [2.0, 2.0], "p", [1.0, 1.0], start_bench.bars.CLI_START)
    assert (found["ratio"], found["samples"]) == (2.0, 2)
