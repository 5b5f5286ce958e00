"""`palyra bench`: what it lists, what it writes, and when its status says that a bar was missed."""

import json
from pathlib import Path
from typing import Any

import pytest

import palyra
from benchmarks import bars, runner
from fakes.daemon import Place
from palyra.cli.main import run

ROW: dict[str, Any] = {
    "name": "a",
    "unit": "us",
    "ours_p50": 2.0,
    "ours_p99": 2.5,
    "peer": "b",
    "peer_p50": 1.0,
    "peer_p99": 1.5,
    "samples": 9,
}


def test_the_list_has_every_bar(tmp_path: Path) -> None:
    listed = Place(tmp_path).palyra("bench", "--list", "--json").data
    keys = {bar["key"]: bar["bar"] for each in listed for bar in each["bars"]}
    assert keys["cli.start"] == "at most 8 x" and len(keys) > 40
    assert "python -c pass" in Place(tmp_path).palyra("bench", "--list", "start").stdout


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    answer = Place(tmp_path).palyra("bench", "nonsense", "--json")
    assert (answer.status, answer.error["code"]) == (2, "bench.unknown")


def test_without_the_repository_it_says_how_to_get_the_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(palyra, "__file__", str(tmp_path / "lib" / "site-packages" / "palyra" / "__init__.py"))
    for words in (["bench"], ["bench", "--list"], ["bench", "policy", "--check"]):
        assert run([*words, "--json"]) == 6
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["code"] == "cli.command_missing" and "`make bench` in a checkout" in error["hint"]


@pytest.mark.parametrize(("ratio", "status"), [(1.5, 0), (2.5, 1), (None, 1)])
def test_a_run_writes_its_results_and_check_makes_a_miss_the_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ratio: float | None,
    status: int,
) -> None:
    rows = [{**ROW, "ratio": ratio, "bar": bars.LAUNCH}]
    monkeypatch.setattr(runner, "run_one", lambda source: runner.Ended(source, tuple(rows), 1.0))
    words = ["bench", "launch", "--json", "--results", str(tmp_path / "results")]
    assert run(words) == 0
    (bar,) = json.loads(capsys.readouterr().out)["data"]["bars"]
    assert (bar["key"], bar["number"], bar["reached"]) == ("sandbox.launch", 2, ratio)
    assert json.loads((tmp_path / "results" / "bench.json").read_text())["bars"] == [bar]
    assert "bars met" in (tmp_path / "results" / "bench.txt").read_text()
    assert run([*words, "--check"]) == status
