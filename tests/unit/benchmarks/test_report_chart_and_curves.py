"""What a run prints and draws."""

from typing import Any
from xml.etree import ElementTree

from benchmarks import bars
from benchmarks.bar import Bar, Kind, judge_all
from benchmarks.chart import bar_chart
from benchmarks.curves import curves
from benchmarks.report import document, summary, table

KNOWN = Bar("known", "a & b", "<peer>", Kind.RATIO_AT_MOST, 2, shortfall="the kernel's own time")
NEW = Bar("new", "c", "-", Kind.AT_LEAST, 500, "calls a second")


def row(bar: Bar | None, **more: Any) -> dict[str, Any]:
    base = {"name": "n", "unit": "ms", "ours_p50": 9.0, "ours_p99": 12.5, "peer": "<peer>", "peer_p50": 3.0}
    return {**base, "peer_p99": None, "ratio": 3.0, "samples": 40, "bar": bar, **more}


ROWS = [
    row(KNOWN),
    row(NEW),
    row(bars.GUARD, ratio=None, peer="chromium (missing)"),
    row(bars.LAUNCH, ratio=1.5),
    row(None),
]
JUDGED = judge_all([KNOWN, NEW, bars.GUARD, bars.LAUNCH], ROWS, {})


def test_the_summary_counts_and_gives_a_cause_for_each_miss() -> None:
    lines = summary(JUDGED).splitlines()
    assert lines[0] == "bars met 1 of 4; missed 2; not measured 1"
    assert lines[1] == "missed: known (a & b / <peer>): 3 x, at most 2 x; the kernel's own time"
    assert lines[2] == "missed: new (c): 9 calls a second, at least 500 calls a second; no cause is known: this is new"
    assert lines[3].startswith("not measured: browser.guard") and lines[3].endswith("chromium (missing)")


def test_the_table_has_every_row_with_its_verdict() -> None:
    lines = table(ROWS).splitlines()
    assert [line.split("  ")[-1].strip() for line in lines] == [
        "verdict",
        "missed",
        "missed",
        "not measured",
        "met",
        "-",
    ]
    assert "12.5" in lines[1] and "40" in lines[1]


def test_the_document_names_bars_by_their_keys() -> None:
    printed = document(ROWS, JUDGED, {"cores": 2})
    assert [each["bar"] for each in printed["rows"]] == ["known", "new", "browser.guard", "sandbox.launch", None]
    assert printed["bars"][0] | {"cause": ""} == {
        "key": "known",
        "kind": "ratio at most",
        "number": 2,
        "unit": "x",
        "reached": 3.0,
        "verdict": "missed",
        "cause": "",
    }


def test_the_drawings_are_well_formed_and_have_a_line_for_each() -> None:
    drawn = bar_chart(JUDGED)
    texts = [
        "".join(each.itertext()) for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "a & b / <peer>" in texts and "not measured" in texts
    grown = ElementTree.fromstring(curves({"echo (us)": {1_000: 20.0, 1_000_000: 22.0}, "one": {1: 5.0}}))
    assert len(list(grown.iter("{http://www.w3.org/2000/svg}circle"))) == 3
