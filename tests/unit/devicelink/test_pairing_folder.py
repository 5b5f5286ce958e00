"""The folder of a paired device: what a kill or a damaged file leaves of it."""

from pathlib import Path

import pytest

from palyra.config.state_dir import StateDir
from palyra.devicelink.agent.device_folder import BACKUP, DeviceFileBad, DeviceRecord, HostRunning, PairingFolder

RECORD = DeviceRecord(device_name="bench", servers=("192.0.2.1:1",))
DEVICE_FILE = "node-device.v1.json"
BACKUP_FILE = DEVICE_FILE + BACKUP


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "node"


def opened(root: Path) -> PairingFolder:
    return PairingFolder(StateDir.open(root), "node")


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
    assert folder.load() == RECORD and len(folder.warnings) == 1 and "last good copy" in folder.warnings[0]
    again = opened(root)
    assert again.load() == RECORD and again.warnings == [], "it was put right"


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


def test_a_status_that_is_none_shows_nothing(root: Path) -> None:
    folder = opened(root)
    for content in (b"[]", b"{", b"\xff"):
        (root / "node-status.v1.json").write_bytes(content)
        assert folder.read_status() == {}
