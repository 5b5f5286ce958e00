"""Completion: scripts that the shells accept, and answers to what they ask."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from palyra.cli.main import COMMANDS, run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_calls_back(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_PALYRA_COMPLETE={shell}_complete" in script
    assert run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["script"].strip() == script.strip()


def test_bash_accepts_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    run(["completion", "bash"])
    bash = shutil.which("bash")
    assert bash is not None
    script = capsys.readouterr().out + "\ncomplete -p palyra\n"
    result = subprocess.run([bash, "--norc", "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "_palyra_completion" in result.stdout


def test_an_unknown_shell_is_a_usage_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "index", "expected"),
    [
        ("palyra co", 1, {"config", "completion"}),
        ("palyra config ", 2, {"show", "path"}),
        ("palyra ", 1, set(COMMANDS)),
    ],
)
def test_the_program_answers_completion_requests(words: str, index: int, expected: set[str]) -> None:
    environ = {**os.environ, "_PALYRA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index)}
    result = subprocess.run(
        [sys.executable, "-m", "palyra.cli.main"], capture_output=True, text=True, env=environ, check=False
    )
    assert result.returncode == 0, result.stderr
    assert {line.partition(",")[2] for line in result.stdout.split()} == expected
