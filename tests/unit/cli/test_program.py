"""The installed program, from its first line."""

import os
import subprocess
import sys

from palyra.version import VERSION

BEGIN = "from palyra.cli.program import main; main()"


def begin(*words: str, **options: int) -> "subprocess.CompletedProcess[str]":
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    words = (sys.executable, "-c", BEGIN, *words)
    return subprocess.run(words, text=True, timeout=60, check=False, **streams)  # type: ignore[call-overload,no-any-return]


def test_it_prints_its_version() -> None:
    answered = begin("--version")
    assert (answered.returncode, answered.stdout) == (0, f"palyra {VERSION}\n")


def test_a_reader_that_went_away_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = begin("--help", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
