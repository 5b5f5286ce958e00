"""The environment in a checkout is kept while it works, and made anew where its Python is gone or too old."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = f'set -eu; . "{ROOT}/scripts/environment.sh"; make_environment "$1" "$2"'
# Stands for the Python that environments are made of: makes one that says so, as that of the standard library does,
# which leaves a link to nothing where it is.
PYTHON = """shift 2
if [ "$1" = --clear ]; then shift; rm -rf "$1"; fi
mkdir -p "$1/bin"
touch "$1/pyvenv.cfg" "$1/made"
[ -L "$1/bin/python" ] || ln -s /bin/true "$1/bin/python"
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.environment = folder / "environment"
        self._python = program(folder / "python", PYTHON)

    def has(self, python: str) -> Path:
        """An environment with something in it, and the program of its Python, which is returned."""
        (self.environment / "bin").mkdir(parents=True)
        (self.environment / "pyvenv.cfg").touch()
        (self.environment / "package").touch()
        return program(self.environment / "bin" / "python", python)

    def made(self) -> str:
        command = ["/bin/sh", "-c", MAKE, "sh", str(self._python), str(self.environment)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stderr

    def is_anew(self) -> bool:
        """Whether it was made, works, and has nothing of the one before."""
        there = (self.environment / "made").exists() and (self.environment / "bin" / "python").exists()
        return there and not (self.environment / "package").exists()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_where_there_is_none_it_is_made(checkout: Checkout) -> None:
    assert checkout.made() == "" and checkout.is_anew()


def test_one_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    python = checkout.has("exit 0")
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    said = checkout.made()
    assert "is made of a Python that is gone: it is made anew" in said and str(checkout.environment) in said
    assert checkout.is_anew()


def test_one_of_an_old_python_is_made_anew(checkout: Checkout) -> None:
    checkout.has("echo 3.9; exit 1")
    assert "is made of Python 3.9, and 3.11 or newer is needed: it is made anew" in checkout.made()
    assert checkout.is_anew()


def test_one_whose_python_does_not_run_is_made_anew(checkout: Checkout) -> None:
    checkout.has("exit 127")
    assert "is made of a Python that does not run: it is made anew" in checkout.made()
    assert checkout.is_anew()


def test_one_of_another_python_that_works_is_kept(checkout: Checkout) -> None:
    checkout.has(f'exec "{sys.executable}" "$@"')
    assert checkout.made() == ""
    assert (checkout.environment / "package").exists() and not (checkout.environment / "made").exists()


def test_a_folder_that_is_no_environment_loses_nothing(checkout: Checkout) -> None:
    checkout.environment.mkdir()
    (checkout.environment / "letters").touch()
    assert checkout.made() == "" and (checkout.environment / "letters").exists()


@pytest.mark.parametrize("python", ["there", "gone"])
def test_make_looks_after_an_environment_whose_python_is_gone(checkout: Checkout, python: str) -> None:
    """It was complete when it was made."""
    link = checkout.has("exit 0")
    if python == "gone":
        link.unlink()
        link.symlink_to("/nowhere/python3.11")
    for stamp in (".installed", ".installed-for-tests"):
        (checkout.environment / stamp).touch()
    command = ["make", "--dry-run", "--directory", str(ROOT), f"VENV={checkout.environment}", "demo"]
    would = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert ("scripts/bootstrap.sh" in would) is (python == "gone")
