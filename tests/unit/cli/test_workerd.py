"""The command line of palyra-workerd."""

import json
from pathlib import Path

import pytest

from palyra.cli.main import run_as_program
from palyra.cli.workerd import workerd


def run(*words: str) -> int:
    return run_as_program(workerd, "palyra-workerd", words)


def test_it_says_what_it_measures_and_that_it_joined_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--state-dir", str(tmp_path / "state"))
    assert run(*place, "measure", "--json") == 0
    measured = json.loads(capsys.readouterr().out)["data"]
    assert len(measured["build_digest_sha256"]) == 64
    assert run(*place, "status") == 0 and "joined no daemon" in capsys.readouterr().out
    assert run(*place, "leave", "--forget", "--json") == 0
    capsys.readouterr()
    assert run(*place, "run") == 6 and "nodes.not_paired" in capsys.readouterr().err
    assert run(*place, "join", "--code", "nonsense") != 0 and "code" in capsys.readouterr().err
    assert run("--help") == 0 and "join" in capsys.readouterr().out
