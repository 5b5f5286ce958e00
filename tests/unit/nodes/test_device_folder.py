"""The notes in a node host's folder."""

import os
from pathlib import Path

import pytest

from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import DeviceRecord
from palyra.nodes import limits
from palyra.nodes.agent.messages import Note, NoteState, Outcome
from palyra.nodes.agent.note_folder import REQUEST_NOTES, DeviceFolder

RECORD = DeviceRecord(device_name="bench", servers=("192.0.2.1:1",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "node"


def opened(root: Path) -> DeviceFolder:
    return DeviceFolder(StateDir.open(root))


def note(request_id: str, state: NoteState, outcome: Outcome | None = None) -> Note:
    return Note(request_id=request_id, capability="press", state=state, outcome=outcome)


def test_notes_outlive_the_process_and_half_written_ones_do_not(root: Path) -> None:
    folder = opened(root)
    folder.write_note(note("R1", NoteState.BEGUN))
    folder.write_note(note("R2", NoteState.FINISHED, Outcome.succeeded(b"\xff\x00")))
    folder.write_note(note("R1", NoteState.FINISHED, Outcome.failed("a.b", "no")))
    (root / REQUEST_NOTES / ".R3.json.abc.new").write_bytes(b"{")
    assert opened(root).notes() == [
        note("R1", NoteState.FINISHED, Outcome.failed("a.b", "no")),
        note("R2", NoteState.FINISHED, Outcome.succeeded(b"\xff\x00")),
    ]
    assert sorted(os.listdir(root / REQUEST_NOTES)) == ["R1.json", "R2.json"]
    folder.forget_note("R1")
    folder.forget_note("R1")
    assert [each.request_id for each in opened(root).notes()] == ["R2"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"request_id":"R9","capability":"","state":"begun"}', b"\xff"])
def test_a_note_that_cannot_be_read_keeps_its_request_from_being_done_again(root: Path, content: bytes) -> None:
    folder = opened(root)
    folder.write_note(note("R1", NoteState.BEGUN))
    (root / REQUEST_NOTES / "R1.json").write_bytes(content)
    again = opened(root)
    assert [each.state for each in again.notes()] == [NoteState.SETTLED] and "R1" in again.warnings[0]


def test_settled_notes_are_kept_up_to_a_bound(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 3)
    folder = opened(root)
    for number in range(6):
        folder.write_note(note(f"R{number}", NoteState.SETTLED))
    assert sorted(os.listdir(root / REQUEST_NOTES)) == ["R3.json", "R4.json", "R5.json"]
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 1)
    opened(root).notes()
    assert os.listdir(root / REQUEST_NOTES) == ["R5.json"]


def test_forgetting_takes_the_key_and_everything_with_it(root: Path) -> None:
    folder = opened(root)
    folder.save(RECORD)
    folder.write_status({"state": "online"})
    folder.write_note(note("R1", NoteState.BEGUN))
    assert folder.read_status() == {"state": "online"}
    folder.forget()
    folder.forget()
    assert folder.load() is None and folder.notes() == [] and folder.read_status() == {}
