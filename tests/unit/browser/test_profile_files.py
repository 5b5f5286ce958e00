"""Files that are whole or not there, one daemon at a time, and a bounded place for evidence."""

import os
from pathlib import Path

import pytest

from palyra.browser.domain.profile import ProfilesUnusable
from palyra.browser.profiles.ledger import MAX_ASIDE, ProfileFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "profiles"


def test_written_and_read(folder: Path) -> None:
    files = ProfileFiles(folder)
    files.write("a", b"one")
    files.write("a", b"two")
    assert (files.read("a", 3), files.read("a", 1), files.read("b", 3)) == (b"two", b"tw", None)
    assert files.names() == ["a"]
    assert (folder / "a").stat().st_mode & 0o777 == 0o600
    files.remove("a")
    files.remove("a")
    assert files.names() == []
    files.close()


def test_what_a_death_left_is_removed(folder: Path) -> None:
    ProfileFiles(folder).close()
    (folder / ".0123.new").write_bytes(b"half")
    files = ProfileFiles(folder)
    assert files.names() == []
    files.close()


def test_a_write_that_fails_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ProfileFiles(folder)
    files.write("a", b"one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ProfilesUnusable, match="No space"):
            files.write("a", b"two")
    assert files.read("a", 9) == b"one"
    assert files.names() == ["a"]
    files.close()


def test_evidence_is_kept_and_bounded(folder: Path) -> None:
    files = ProfileFiles(folder)
    for number in range(MAX_ASIDE + 5):
        files.write(f"f{number}", b"x")
        files.set_aside(f"f{number}")
    files.set_aside("nothing")
    kept = sorted(path.name.split("-")[1] for path in (folder / "aside").iterdir())
    assert len(kept) == MAX_ASIDE
    assert f"f{MAX_ASIDE + 4}" in kept
    files.close()


def test_one_at_a_time(folder: Path) -> None:
    files = ProfileFiles(folder)
    with pytest.raises(ProfilesUnusable):
        ProfileFiles(folder)
    files.close()
    ProfileFiles(folder).close()


def test_a_folder_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProfilesUnusable):
        ProfileFiles(folder)
