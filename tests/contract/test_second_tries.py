"""``make test`` forgives a few tests that fail beside the others, names them, and fails when there are too many."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "run_tests.py"
# Each test of it fails in its first run and passes in its second.
RACES = """
import pathlib, pytest
@pytest.mark.parametrize("number", range({count}))
def test_race(number):
    seen = pathlib.Path(f"seen-{{number}}")
    before = seen.exists()
    seen.touch()
    assert before
"""


def run(folder: Path, **files: str) -> tuple[int, list[str]]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    words = [sys.executable, str(SCRIPT), "--workers", "1", "--report", "report.txt"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, (folder / "report.txt").read_text().splitlines()


def test_nothing_is_reported_when_all_pass(tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("of an earlier run")
    assert run(tmp_path, good="def test_good(): pass") == (0, [])


@pytest.mark.parametrize(("count", "status"), [(3, 0), (4, 1)])
def test_three_may_need_a_second_try(tmp_path: Path, count: int, status: int) -> None:
    ended, lines = run(tmp_path, good="def test_good(): pass", races=RACES.format(count=count))
    assert ended == status
    assert lines[1:-1] == [f"test_races.py::test_race[{number}]" for number in range(count)]


def test_one_that_fails_twice_fails_the_run_and_is_named(tmp_path: Path) -> None:
    ended, lines = run(tmp_path, bad="def test_bad(): assert False", races=RACES.format(count=1))
    assert ended == 1 and lines[1:] == ["test_bad.py::test_bad", "test_races.py::test_race[0]"]


def test_a_file_that_cannot_be_collected_fails_the_run(tmp_path: Path) -> None:
    ended, lines = run(tmp_path, good="def test_good(): pass", broken="import nothing_of_that_name")
    assert ended != 0 and "test_broken.py" in lines


def test_make_test_runs_it_and_prints_the_report_last() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ntest: ")[2].partition("\n\n")[0]
    assert "scripts/run_tests.py" in recipe
    assert recipe.rstrip().splitlines()[-1].strip() == "cat $(SECOND_TRIES); exit $$tested"
