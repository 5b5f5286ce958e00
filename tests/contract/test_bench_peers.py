"""Peers of the bench that are written in Python run on the one that the bench runs on, also after that was changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf import peers

ROOT = Path(__file__).resolve().parents[2]
# Stands for a Python: says which one it is, and makes environments without anything from outside.
PYTHON = """#!/bin/sh
if [ "$2" = perf.peers ]; then echo "$IT_IS"; exit; fi
echo "$@" >>"$NOTES"
if [ "$2" = venv ]; then
    [ "$3" != --clear ] || rm -rf "$4"
    mkdir -p "$4/bin"
    cp "$0" "$4/bin/python"
    cp "$0" "$4/bin/mitmdump"
fi
"""


@pytest.fixture
def fetched(tmp_path: Path) -> dict[str, str]:
    """The surroundings of a run that gets nothing from Debian and npm, and asks nobody for more rights."""
    for name, does in (("sudo", "exit 1"), ("id", "echo 1000"), ("npm", "exit 1"), ("python", PYTHON)):
        program = tmp_path / name
        program.write_text(does if does.startswith("#!") else f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    (tmp_path / "notes").touch()
    return {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "NOTES": str(tmp_path / "notes"),
    }


def fetch(surroundings: dict[str, str], python: str) -> list[str]:
    """The packages that were fetched."""
    notes = Path(surroundings["NOTES"])
    notes.write_text("")
    command = ["/bin/sh", str(ROOT / "scripts" / "bench_peers.sh"), str(notes.parent / "python")]
    subprocess.run(command, env={**surroundings, "IT_IS": python}, check=True, capture_output=True, timeout=60)
    return [line.split()[-1] for line in notes.read_text().splitlines() if "pip install" in line]


def test_environments_are_kept_for_one_python_and_made_anew_for_another(fetched: dict[str, str]) -> None:
    assert fetch(fetched, "3.11.2 of Debian") == ["mitmproxy", "extism"]
    assert fetch(fetched, "3.11.2 of Debian") == []
    assert fetch(fetched, "3.13.1 of Debian") == ["mitmproxy", "extism"], "another version"
    assert fetch(fetched, "3.13.1 of somebody") == ["mitmproxy", "extism"], "the same version of another build"
    assert fetch(fetched, "3.13.1 of somebody") == []


def test_an_environment_whose_python_is_gone_is_made_anew(fetched: dict[str, str]) -> None:
    fetch(fetched, "3.11.2")
    python = Path(fetched["XDG_CACHE_HOME"], "palyra-bench", "mitmproxy", "bin", "python")
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert fetch(fetched, "3.11.2") == ["mitmproxy"]


def test_what_runs_on_another_python_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for who runs the bench without fetching first."""
    monkeypatch.setattr(peers, "HOME", tmp_path)
    program = tmp_path / "mitmproxy" / "bin" / "mitmdump"
    program.parent.mkdir(parents=True)
    program.touch()
    assert peers.from_pypi("mitmproxy", "mitmdump") is None
    for noted, found in (("", None), ("3.9.1 in /usr", None), (peers.runs_on(), str(program))):
        (tmp_path / "mitmproxy" / "installed").write_text(f"{noted}\n")
        assert peers.from_pypi("mitmproxy", "mitmdump") == found


def test_the_script_and_the_bench_mean_the_same_python() -> None:
    command, surroundings = [sys.executable, "-m", "perf.peers"], {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ran = subprocess.run(command, env=surroundings, check=True, capture_output=True, timeout=60)
    assert ran.stdout.decode().strip() == peers.runs_on()
    assert sys.version.split()[0] in peers.runs_on() and sys.base_prefix in peers.runs_on()
