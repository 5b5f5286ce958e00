"""Notes of leases: what a kill or a damaged disk leaves of them."""

from pathlib import Path

import pytest

from palyra.config.state_dir import StateDir
from palyra.fleet.agent.lease import LeaseNote, NoteBad
from palyra.fleet.agent.note_folder import NoteFolder

FIRST, SECOND = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW"


def note(lease_id: str = FIRST) -> LeaseNote:
    return LeaseNote(
        lease_id=lease_id,
        fence=1,
        nonce="00",
        run_id="r",
        call_id="c",
        principal="agent:a",
        tool="echo",
        argument_digest="ee",
        begun_ms=5,
    )


@pytest.fixture
def folder(tmp_path: Path) -> NoteFolder:
    return NoteFolder(StateDir.open(tmp_path / "worker"))


def test_notes_are_read_as_they_were_written_and_forgotten_once(folder: NoteFolder) -> None:
    assert folder.load() == [] and folder.names() == []
    folder.write(note(SECOND))
    folder.write(note())
    assert folder.load() == [note(), note(SECOND)] and folder.names() == [FIRST, SECOND]
    assert folder.read(FIRST) == note()
    folder.forget(FIRST)
    folder.forget(FIRST)
    assert folder.names() == [SECOND]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]"])
def test_a_note_that_cannot_be_read_is_set_aside_and_named(folder: NoteFolder, tmp_path: Path, content: bytes) -> None:
    folder.write(note())
    folder.write(note(SECOND))
    place = tmp_path / "worker" / "leases"
    (place / f"{FIRST}.json").write_bytes(content)
    (place / ".half.new").write_bytes(b"{")
    assert folder.load() == [note(SECOND)] and folder.unreadable == [FIRST]
    assert sorted(path.name for path in place.iterdir()) == [f"{FIRST}.json.bad", f"{SECOND}.json"]
    assert folder.load() == [note(SECOND)]


def test_a_note_under_anothers_name_is_none(folder: NoteFolder, tmp_path: Path) -> None:
    folder.write(note())
    place = tmp_path / "worker" / "leases"
    (place / f"{FIRST}.json").rename(place / f"{SECOND}.json")
    with pytest.raises(NoteBad):
        folder.read(SECOND)
