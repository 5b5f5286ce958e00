"""Folders are opened as they are; only a descriptor of our own is followed."""

import os
from pathlib import Path

import pytest

from palyra.browser.engine.browser_folders import open_folder


def test_a_folder_and_a_folder_beneath_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with open_folder(tmp_path) as top, open_folder(b"inner", top) as inner:
        assert os.listdir(top) == ["inner"]
        assert os.path.sameopenfile(inner, inner)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(inner)


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with pytest.raises(OSError), open_folder(tmp_path / "link"):
        pass
    with open_folder(tmp_path) as top, pytest.raises(OSError), open_folder(b"link", top):
        pass


def test_a_descriptor_of_ours_is_followed_and_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with open_folder(tmp_path) as top:
        with open_folder(Path(f"/proc/{os.getpid()}/fd/{top}")) as again:
            assert os.listdir(again) == ["file"]
        for other in (f"/proc/{os.getppid()}/fd/{top}", f"/proc/self/fd/{top}", f"/proc/{os.getpid()}/cwd"):
            with pytest.raises(OSError), open_folder(Path(other)):
                pass
