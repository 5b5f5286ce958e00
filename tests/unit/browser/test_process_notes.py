"""Notes of processes, and what the next daemon does with them."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from palyra.browser.engine.process_inspection import start_time
from palyra.browser.engine.process_tree import Leftovers, Note, ProcessNotes


@pytest.fixture
def notes(tmp_path: Path) -> ProcessNotes:
    return ProcessNotes(tmp_path / "processes")


def sleeping() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def test_the_folder_and_the_notes_are_ours_alone(notes: ProcessNotes, tmp_path: Path) -> None:
    with sleeping() as child:
        note = notes.write(child.pid)
        assert note is not None
        assert note.stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "processes").stat().st_mode & 0o777 == 0o700
        notes.remove(note)
        notes.remove(note)
        child.kill()
    assert not list((tmp_path / "processes").iterdir())


def test_what_still_runs_is_ended_and_the_note_removed(notes: ProcessNotes, tmp_path: Path) -> None:
    with sleeping() as child:
        notes.write(child.pid)
        assert notes.collect() == Leftovers(notes=1, ended=(child.pid,))
        assert child.wait(30) == -9
    assert not list((tmp_path / "processes").iterdir())
    assert notes.collect() == Leftovers()


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another start of the machine"}])
def test_another_process_with_the_same_number_is_left_alone(notes: ProcessNotes, change: dict[str, object]) -> None:
    with sleeping() as child:
        note = notes.write(child.pid)
        assert note is not None
        said = msgspec.json.decode(note.read_bytes(), type=Note)
        note.write_bytes(msgspec.json.encode(msgspec.structs.replace(said, **change)))
        assert notes.collect() == Leftovers(notes=1)
        assert start_time(child.pid) is not None
        child.kill()


def test_one_that_ended_meanwhile_leaves_only_its_note(notes: ProcessNotes) -> None:
    with sleeping() as child:
        notes.write(child.pid)
        child.kill()
    assert notes.write(child.pid) is None
    assert notes.collect() == Leftovers(notes=1)


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": 1}', b"[]", b"x" * 5000])
def test_what_is_no_note_harms_nobody(notes: ProcessNotes, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "processes" / "1-1.json").write_bytes(content)
    (tmp_path / "processes" / "other").write_text("not ours")
    assert notes.collect() == Leftovers(notes=1)
    assert [path.name for path in (tmp_path / "processes").iterdir()] == ["other"]
