"""The help that is answered before anything is imported is the help that click would print."""

import os
import subprocess
import sys

import pytest

from palyra.cli import program
from palyra.cli.root_help import TEXT
from palyra.version import VERSION

BEGIN = "from palyra.cli.program import main; import sys; main(); print(sorted(sys.modules), file=sys.stderr)"


def begin(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-c", BEGIN, *words],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_it_is_the_same_text_and_imports_next_to_nothing(word: str) -> None:
    answered = begin(word)
    assert (answered.returncode, answered.stdout) == (0, TEXT)
    assert "'click'" not in answered.stderr and "'typing'" not in answered.stderr
    by_click = subprocess.run(
        [sys.executable, "-m", "palyra.cli.main", word], capture_output=True, text=True, timeout=60, check=True
    )
    assert by_click.stdout == TEXT


def test_so_is_the_version() -> None:
    answered = begin("--version")
    assert (answered.returncode, answered.stdout) == (0, f"palyra {VERSION}\n")
    assert "'click'" not in answered.stderr and "'typing'" not in answered.stderr
    words = [sys.executable, "-m", "palyra.cli.main", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout == answered.stdout


@pytest.mark.parametrize(
    ("words", "environment"),
    [(("--help",), {"COLUMNS": "60"}), (("--version", "--json"), {}), (("config", "--help"), {})],
)
def test_anything_else_is_for_click(words: tuple[str, ...], environment: dict[str, str]) -> None:
    answered = begin(*words, **environment)
    assert answered.returncode == 0 and answered.stdout and answered.stdout != TEXT


def test_a_reader_that_went_away_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-c", "from palyra.cli.program import main; main()", "--help"]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(("told", "found"), [("120", 120), ("0", 80), ("many", 80), ("", 80)])
def test_the_width_is_what_click_would_take(
    told: str, found: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", told)
    assert program.columns() == found
