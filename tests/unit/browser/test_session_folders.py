"""Folders of sessions: private, gone with their session, and collected after a daemon that was killed."""

import stat
from pathlib import Path

import pytest

from palyra.browser.tabs.download_folder import FoldersUnusable, SessionFolders


def test_a_folder_goes_with_its_session_and_leftovers_are_collected(tmp_path: Path) -> None:
    folders = SessionFolders(tmp_path / "sessions")
    assert stat.S_IMODE((tmp_path / "sessions").stat().st_mode) == 0o700
    for name in ("S1", "S2"):
        (folders.of(name) / "allowlist").mkdir(parents=True)
        (folders.of(name) / "allowlist" / "x").write_text("x")
    folders.remove("S1")
    folders.remove("S1")
    assert not folders.of("S1").exists()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (tmp_path / "sessions" / "link").symlink_to(outside)
    assert SessionFolders(tmp_path / "sessions").collect() == 2
    assert list((tmp_path / "sessions").iterdir()) == []
    assert (outside / "kept").exists()


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FoldersUnusable):
        SessionFolders(tmp_path / "file")
