"""The attacking program as a program: one order in, one line out, and how it answers."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from palyra.doctor.attacks import probes
from palyra.doctor.attacks.probes import program
from palyra.doctor.attacks.probes.calls import Blocked, NotApplicable

START = os.path.join(os.path.dirname(probes.__file__), "start.py")


def test_started_as_inside_it_answers_with_one_line() -> None:
    order = {"probe": "hello", "comm": "pbtest", "calls": {}}
    done = subprocess.run([sys.executable, "-I", "-S", START], input=json.dumps(order), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"escaped": True, "evidence": "here", "errno": None}


def raising(error: Exception) -> Any:
    def probe(_: Any) -> str:
        raise error

    return probe


@pytest.mark.parametrize(
    ("error", "escaped", "errno"),
    [
        (Blocked("no"), False, None),
        (NotApplicable("nothing here"), None, None),
        (OSError(1, "Operation not permitted"), False, "EPERM"),
        (FileNotFoundError(2, "No such file or directory", "x"), False, "ENOENT"),
        (MemoryError(), False, "ENOMEM"),
    ],
)
def test_how_it_ends_is_what_it_says(
    monkeypatch: pytest.MonkeyPatch, error: Exception, escaped: bool | None, errno: str | None
) -> None:
    monkeypatch.setitem(program.PROBES, "raising", raising(error))
    answer = program.attempt({"probe": "raising"})
    assert (answer["escaped"], answer["errno"]) == (escaped, errno)
    assert answer["evidence"]
