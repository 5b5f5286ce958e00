import os
from pathlib import Path

import pytest

from palyra.workspace import root as walk_module
from palyra.workspace.openat2 import held
from palyra.workspace.root import OPEN_DIRECTORY, Shortfall, walk


def names(root: Path, *, recursive: bool = True, skip: str = "") -> tuple[list[str], Shortfall]:
    shortfall = Shortfall()
    with held(os.open(root, OPEN_DIRECTORY)) as directory:
        entries = walk(
            directory,
            recursive=recursive,
            shortfall=shortfall,
            keep_going=lambda: None,
            enter=lambda path: path[-1] != skip,
        )
        return ["/".join(entry.names) for entry in entries], shortfall


def test_sorted_depth_first_and_never_through_links(tmp_path: Path) -> None:
    for path in ("b/y", "b/x", "a", "c"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "l").symlink_to("b")
    assert names(tmp_path)[0] == ["a", "b", "b/x", "b/y", "c", "l"]
    assert names(tmp_path, recursive=False)[0] == ["a", "b", "c", "l"]
    assert names(tmp_path, skip="b")[0] == ["a", "b", "c", "l"]


def test_what_is_left_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    with monkeypatch.context() as small:
        small.setattr(walk_module, "MAX_WALK_DEPTH", 2)
        found, shortfall = names(tmp_path)
        assert (found, shortfall.incomplete) == (["a", "a/b"], True)
    (tmp_path / "z").mkdir()
    monkeypatch.setattr(walk_module, "MAX_DIRECTORY_ENTRIES", 1)
    found, shortfall = names(tmp_path, recursive=False)
    assert (len(found), shortfall.incomplete) == (1, True)


def test_a_walk_given_up_closes_what_it_opened(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    with held(os.open(tmp_path, OPEN_DIRECTORY)) as directory:
        entries = walk(directory, recursive=True, shortfall=Shortfall(), keep_going=lambda: None)
        for entry in entries:
            if len(entry.names) == 3:
                break
        entries.close()
    assert len(os.listdir("/proc/self/fd")) == before
