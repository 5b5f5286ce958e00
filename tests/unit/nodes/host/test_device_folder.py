"""The device's folder: what a kill or a damaged file leaves of it."""

import os
from pathlib import Path

import pytest

from palyra.config.state_dir import StateDir
from palyra.nodes.device.device_record import DeviceRecord
from palyra.nodes.device.errors import DeviceFileBad, HostRunning
from palyra.nodes.host import limits
from palyra.nodes.host.device_folder import BACKUP_FILE, DEVICE_FILE, NOTES, DeviceFolder
from palyra.nodes.host.messages import Note, NoteState, Outcome

RECORD = DeviceRecord(device_name="bench", servers=("192.0.2.1:1",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "node"


def opened(root: Path) -> DeviceFolder:
    return DeviceFolder(StateDir.open(root))


def note(request_id: str, state: NoteState, outcome: Outcome | None = None) -> Note:
    return Note(request_id=request_id, capability="press", state=state, outcome=outcome)


def test_a_pairing_is_kept_for_this_user_alone(root: Path) -> None:
    assert opened(root).load() is None
    opened(root).save(RECORD)
    assert opened(root).load() == RECORD
    assert {path.stat().st_mode & 0o777 for path in root.iterdir()} == {0o600}


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "gone"])
def test_a_damaged_file_falls_back_to_its_last_good_copy_and_says_so(root: Path, damage: str) -> None:
    opened(root).save(RECORD)
    path = root / DEVICE_FILE
    if damage == "gone":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes({"truncated": whole[:-20], "garbage": b"\0" * 50, "empty": b""}[damage])
    folder = opened(root)
    assert folder.load() == RECORD and len(folder.told) == 1 and "last good copy" in folder.told[0]
    again = opened(root)
    assert again.load() == RECORD and again.told == [], "it was put right"


def test_with_no_good_copy_it_is_an_error_and_not_a_new_device(root: Path) -> None:
    opened(root).save(RECORD)
    for name in (DEVICE_FILE, BACKUP_FILE):
        (root / name).write_bytes(b"{")
    with pytest.raises(DeviceFileBad):
        opened(root).load()


def test_a_link_in_its_place_is_not_followed(root: Path, tmp_path: Path) -> None:
    opened(root)
    (tmp_path / "other").write_bytes(b"{}")
    (root / DEVICE_FILE).symlink_to(tmp_path / "other")
    with pytest.raises(DeviceFileBad):
        opened(root).load()


def test_one_host_at_a_time(root: Path) -> None:
    first, second = opened(root), opened(root)
    first.lock()
    assert second.is_locked()
    with pytest.raises(HostRunning):
        second.lock()
    first.unlock()
    assert not second.is_locked()
    second.lock()
    second.unlock()


def test_notes_outlive_the_process_and_half_written_ones_do_not(root: Path) -> None:
    folder = opened(root)
    folder.write_note(note("R1", NoteState.BEGUN))
    folder.write_note(note("R2", NoteState.FINISHED, Outcome.succeeded(b"\xff\x00")))
    folder.write_note(note("R1", NoteState.FINISHED, Outcome.failed("a.b", "no")))
    (root / NOTES / ".R3.json.abc.new").write_bytes(b"{")
    assert opened(root).notes() == [
        note("R1", NoteState.FINISHED, Outcome.failed("a.b", "no")),
        note("R2", NoteState.FINISHED, Outcome.succeeded(b"\xff\x00")),
    ]
    assert sorted(os.listdir(root / NOTES)) == ["R1.json", "R2.json"]
    folder.forget_note("R1")
    folder.forget_note("R1")
    assert [each.request_id for each in opened(root).notes()] == ["R2"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"request_id":"R9","capability":"","state":"begun"}', b"\xff"])
def test_a_note_that_cannot_be_read_keeps_its_request_from_being_done_again(root: Path, content: bytes) -> None:
    folder = opened(root)
    folder.write_note(note("R1", NoteState.BEGUN))
    (root / NOTES / "R1.json").write_bytes(content)
    again = opened(root)
    assert [each.state for each in again.notes()] == [NoteState.SETTLED] and "R1" in again.told[0]


def test_settled_notes_are_kept_up_to_a_bound(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 3)
    folder = opened(root)
    for number in range(6):
        folder.write_note(note(f"R{number}", NoteState.SETTLED))
    assert sorted(os.listdir(root / NOTES)) == ["R3.json", "R4.json", "R5.json"]
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 1)
    opened(root).notes()
    assert os.listdir(root / NOTES) == ["R5.json"]


def test_forgetting_takes_the_key_and_everything_with_it(root: Path) -> None:
    folder = opened(root)
    folder.save(RECORD)
    folder.write_status({"state": "online"})
    folder.write_note(note("R1", NoteState.BEGUN))
    assert folder.read_status() == {"state": "online"}
    folder.forget()
    folder.forget()
    assert folder.load() is None and folder.notes() == [] and folder.read_status() == {}


def test_a_status_that_is_none_shows_nothing(root: Path) -> None:
    folder = opened(root)
    for content in (b"[]", b"{", b"\xff"):
        (root / "node-status.v1.json").write_bytes(content)
        assert folder.read_status() == {}
