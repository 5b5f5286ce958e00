"""A program that tests start as a copy is like one that is started: the same words, folder, streams and end."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Place
from fakes.started_warm import COLD, PALYRA, Warmth, begin_test, run_palyra, start_palyra


@pytest.fixture(autouse=True)
def _warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Warmth, "allowed", True)


def both(*words: str | bytes, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[tuple[int, bytes, bytes]]:
    results = []
    for warm in (True, False):
        monkeypatch.setattr(Warmth, "allowed", warm)
        done = run_palyra([*PALYRA, *words], timeout=60, **{"given": b"", **options})
        results.append((done.returncode, done.stdout, done.stderr))
    return results


@pytest.mark.parametrize("words", [("--version",), ("no-such",), ("config", "show", "--json"), ("run", "--", "pwd")])
def test_it_says_and_ends_as_one_that_is_started(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, folder = Place(tmp_path / "home"), tmp_path / "folder"
    folder.mkdir()
    copied, begun = both(*words, monkeypatch=monkeypatch, cwd=folder, env=place.environment)
    assert copied == begun


def test_words_that_are_no_text_and_input_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "home")
    for words, given in ((("run", "--", "printf", "%s", b"\xff\xc3"), b""), (("run", "--", "cat"), b"\x00\xff" * 90)):
        copied, begun = both(*words, monkeypatch=monkeypatch, cwd=tmp_path, env=place.environment, given=given)
        assert copied[:2] == begun[:2]


def test_its_environment_is_the_one_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_LOG__LEVEL", "error")
    place = Place(tmp_path / "home")
    done = run_palyra([*PALYRA, "config", "show", "--json"], env=place.environment, given="", text=True, timeout=60)
    assert json.loads(done.stdout)["ok"] and "PALYRA_LOG__LEVEL" not in done.stdout


def test_it_is_a_child_of_the_test_with_a_number_and_no_descriptor_of_another(tmp_path: Path) -> None:
    with Place(tmp_path).daemon() as daemon:
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        assert f"PPid:\t{os.getpid()}\n" in status
        links = [os.readlink(link) for link in Path(f"/proc/{daemon.process.pid}/fd").iterdir()]
        assert sum("socket:" in link for link in links) < 10
    assert daemon.process.returncode == 0


def test_a_signal_ends_it_as_it_ends_any_program(tmp_path: Path) -> None:
    daemon = Place(tmp_path).daemon()
    with daemon as running:
        running.kill()
    assert running.process.returncode == -signal.SIGKILL


def test_attacks_and_whoever_asks_for_it_start_programs_as_people_do(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_test("tests/e2e/test_calls.py::test_one")
    assert Warmth.allowed is (os.environ.get(COLD) != "1")
    begin_test("tests/security/test_vault_attacks.py::test_one")
    assert not Warmth.allowed
    monkeypatch.setenv(COLD, "1")
    begin_test("tests/e2e/test_calls.py::test_one")
    assert not Warmth.allowed
    with start_palyra([*PALYRA, "--version"], env=os.environ, stdout=subprocess.PIPE) as process:
        assert type(process) is subprocess.Popen and process.args[: len(PALYRA)] == list(PALYRA)


def test_whoever_asks_for_more_than_a_folder_and_streams_gets_a_start(tmp_path: Path) -> None:
    for more in ({"start_new_session": True}, {"pass_fds": ()}):
        environment = Place(tmp_path).environment
        with start_palyra([*PALYRA, "--version"], env=environment, stdout=subprocess.PIPE, **more) as process:
            assert type(process) is subprocess.Popen
