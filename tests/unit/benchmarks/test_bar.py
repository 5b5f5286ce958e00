"""How figures are judged, and what happens to a bar that nobody measured."""

from typing import Any

import pytest

from benchmarks.bar import Bar, Kind, Verdict, judge_all

BASE: dict[str, Any] = {
    "name": "a",
    "unit": "ms",
    "ours_p50": 3.0,
    "ours_p99": 4.0,
    "peer": "b",
    "peer_p50": 2.0,
    "peer_p99": 3.0,
    "ratio": 1.5,
    "samples": 9,
    "bar": None,
}


def bar(kind: Kind, number: float) -> Bar:
    return Bar("k", "what", "against", kind, number, "ms")


@pytest.mark.parametrize(
    ("kind", "met", "missed", "words"),
    [
        (Kind.RATIO_AT_MOST, 1.5, 1.4, "at most 1.5 ms"),
        (Kind.RATIO_AT_LEAST, 1.5, 1.6, "at least 1.5 ms"),
        (Kind.AT_MOST, 3.0, 2.9, "at most 3 ms"),
        (Kind.AT_LEAST, 3.0, 3.1, "at least 3 ms"),
        (Kind.MORE_AT_MOST, 1.0, 0.9, "at most 1 ms more"),
    ],
)
def test_the_bar_itself_is_met_and_beyond_it_is_missed(kind: Kind, met: float, missed: float, words: str) -> None:
    assert bar(kind, met).judge(BASE) is Verdict.MET
    assert bar(kind, missed).judge(BASE) is Verdict.MISSED
    assert bar(kind, met).words == words


@pytest.mark.parametrize("kind", [Kind.RATIO_AT_MOST, Kind.RATIO_AT_LEAST, Kind.MORE_AT_MOST])
def test_without_the_peer_nothing_is_said(kind: Kind) -> None:
    missing = {**BASE, "peer": "b (missing)", "peer_p50": None, "ratio": None}
    assert bar(kind, 1).judge(missing) is Verdict.NOT_MEASURED


def test_the_worst_row_counts_and_a_missing_figure_is_the_worst() -> None:
    one = bar(Kind.AT_MOST, 5)
    rows = [{**BASE, "bar": one}, {**BASE, "bar": one, "ours_p50": 6.0}, {**BASE, "bar": one, "ours_p50": 1.0}]
    (judged,) = judge_all([one], rows, {})
    assert (judged.verdict, judged.reached) == (Verdict.MISSED, 6.0)
    (judged,) = judge_all([one], [*rows, {**BASE, "bar": one, "ours_p50": None, "peer": "c (missing)"}], {})
    assert (judged.verdict, judged.reached, judged.why) == (Verdict.NOT_MEASURED, None, "c (missing)")


def test_a_bar_without_any_row_is_not_measured_and_says_why() -> None:
    one, other = bar(Kind.AT_MOST, 5), Bar("o", "what", "-", Kind.AT_MOST, 5)
    judged = judge_all([one, other], [BASE], {"k": "ended with 1"})
    assert [(each.verdict, each.why) for each in judged] == [
        (Verdict.NOT_MEASURED, "ended with 1"),
        (Verdict.NOT_MEASURED, "no row was about it"),
    ]


def test_a_rate_of_nothing_is_a_miss() -> None:
    assert bar(Kind.AT_LEAST, 500).judge({**BASE, "ours_p50": 0.0}) is Verdict.MISSED
