"""A benchmark runs in a process of its own; one that fails or hangs costs its own rows only."""

from pathlib import Path

import msgspec
import pytest

from benchmarks import bars
from benchmarks.bar import Verdict
from benchmarks.runner import BenchResult, run_all, run_one
from benchmarks.sources import Source, find_sources

GOOD = """
from benchmarks import bars
def run():
    print("noise")
    base = {"unit": "ms", "ours_p99": None, "peer": "-", "peer_p50": None, "peer_p99": None, "samples": 1}
    return [
        {**base, "name": "a", "ours_p50": 2.0, "ratio": 1.5, "bar": bars.LAUNCH},
        {**base, "name": "b", "ours_p50": 2.0, "ratio": None, "bar": None, "series": [(1, 2.0), (10, 3.0)]},
    ]
"""
BAD = """
from benchmarks import bars
def run():
    raise RuntimeError(bars.GUARD.key)
"""
HANGS = """
import os, subprocess, sys, time
def run():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(os.path.join(os.path.dirname(__file__), "pid"), "w").write(str(child.pid))
    time.sleep(600)
"""


def source(folder: Path, name: str, text: str) -> Source:
    file = folder / f"{name}_bench.py"
    file.write_text(text)
    return Source(name, f"{name}_bench", file, folder)


def test_a_failure_costs_its_own_rows_only(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    results = tmp_path / "results"

    def tell(text: str) -> None:
        printed.append(text)
        if text.startswith("[2/2] good …"):
            # What was measured before is there, whatever becomes of the rest.
            assert "failed: bad" in (results / "bench.txt").read_text()

    result = run_all([source(tmp_path, "bad", BAD), source(tmp_path, "good", GOOD)], tell, results)
    assert [row["name"] for row in result.rows] == ["a", "b"]
    assert {each.bar.key: each.verdict for each in result.judged()} == {
        "sandbox.launch": Verdict.MET,
        "browser.guard": Verdict.NOT_MEASURED,
    }
    assert "failed: bad: ended with 1" in result.text()
    assert printed[0] == "[1/2] bad …" and "2 rows" in printed[-1]
    captured = capfd.readouterr()
    assert captured.out == "" and "noise" in captured.err and "RuntimeError: browser.guard" in captured.err
    written = result.write(results)
    assert [path.name for path in written] == ["bench.txt", "bench.json", "bench.svg", "growth.svg"]


def test_what_was_measured_while_the_host_took_the_processor_away_is_called_doubtful(tmp_path: Path) -> None:
    one = run_one(source(tmp_path, "good", GOOD))
    for stolen, doubtful in ((0.04, False), (0.31, True)):
        result = BenchResult((msgspec.structs.replace(one, stolen=stolen),))
        assert ("doubtful: good: the host of this machine gave 31%" in result.text()) is doubtful
        assert result.document()["benchmarks"][0]["stolen"] == stolen


def test_what_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    ended = run_one(source(tmp_path, "hangs", HANGS), max_seconds=5)
    assert ended.failure == "did not end within 5 s" and ended.rows == ()
    child = Path("/proc") / (tmp_path / "pid").read_text()
    assert not child.exists() or "zombie" in (child / "status").read_text()


def test_the_benchmarks_of_both_folders_are_found_with_their_bars() -> None:
    every = {each.name: each for each in find_sources()}
    assert {"policy", "browser", "guard", "growth"} <= set(every)
    assert bars.CLI_START in every["start"].bars() and bars.GUARD in every["guard"].bars()
    assert BenchResult(()).judged() == []
