import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from fakes.workspace_harness import call, leftovers, refused
from palyra.workspace import replacement
from palyra.workspace.errors import AlreadyExists, Cancelled, Changed
from palyra.workspace.root import Workspace, open_workspace


@pytest.fixture(params=["unnamed", "named"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything here holds with O_TMPFILE and on file systems without it."""
    if request.param == "named":
        monkeypatch.setattr(replacement, "open_unnamed", lambda directory, mode: None)
    return str(request.param)


def test_a_file_keeps_its_permissions_and_owner_but_no_set_id_bits(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "f").chmod(0o4751)
    with open_workspace(tmp_path, ()) as workspace:
        call(workspace, "fs.write", path="f", content="new", mode="overwrite")
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o751
        call(workspace, "fs.write", path="f", content="new", mode="overwrite", executable=False)
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640
        call(workspace, "fs.write", path="f", content="new", mode="overwrite", executable=True)
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o750
        assert (tmp_path / "f").stat().st_uid == os.geteuid()


def test_new_files_obey_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with open_workspace(tmp_path, ()) as workspace:
            call(workspace, "fs.write", path="plain", content="")
            call(workspace, "fs.write", path="program", content="", executable=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "program").stat().st_mode) == 0o750


@pytest.mark.promise("P-files-protected")
@pytest.mark.parametrize("step", ["write", "fsync", "rename", "link"])
def test_a_failure_at_any_step_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both_ways: str, step: str
) -> None:
    (tmp_path / "f").write_text("old")

    def fail(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "made up")

    with open_workspace(tmp_path, ()) as workspace:
        with monkeypatch.context() as broken:
            broken.setattr(replacement.os, step, fail)
            if step == "link" and both_ways == "named":
                # A named temporary file needs no link: the write must not depend on one.
                call(workspace, "fs.write", path="f", content="old", mode="overwrite")
            else:
                code = refused(workspace, "fs.write", path="f", content="new", mode="overwrite")
                assert code == "workspace.disk_full"
        assert (tmp_path / "f").read_text() == "old"
        assert os.listdir(tmp_path) == ["f"]


class CancelAfter(threading.Event):
    """Set from the given look at it on."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.promise("P-files-protected")
def test_cancelling_at_any_moment_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    outcomes = set()
    for looks in range(12):
        root = tmp_path / str(looks)
        root.mkdir()
        (root / "f").write_text("old")
        with open_workspace(root, ()) as workspace:
            for path, mode in (("f", "append"), ("a/b/c", "create")):
                arguments = {"path": path, "content": "x" * 600_000, "mode": mode, "create_parents": True}
                try:
                    call(workspace, "fs.write", CancelAfter(looks), **arguments)
                    outcomes.add("done")
                    assert (root / path).stat().st_size >= 600_000
                except Cancelled:
                    outcomes.add("cancelled")
                    assert path == "a/b/c" or (root / "f").read_text() == "old"
                    assert path == "f" or not (root / "a").exists()
        assert not leftovers(root)
    assert outcomes == {"done", "cancelled"}


def patched(workspace: Workspace, number: int) -> None:
    while True:
        try:
            call(workspace, "fs.patch", path="f", edits=[{"old": f"<{number}>", "new": f"[{number}]"}])
            return
        except Changed:
            continue


def test_of_many_patches_at_once_none_is_lost(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"<{number}>" for number in range(12)))
    with open_workspace(tmp_path, ()) as workspace:
        threads = [threading.Thread(target=patched, args=(workspace, number)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (tmp_path / "f").read_text() == "".join(f"[{number}]" for number in range(12))


def test_of_many_creators_one_wins(tmp_path: Path) -> None:
    won: list[int] = []
    with open_workspace(tmp_path, ()) as workspace:

        def create(number: int) -> None:
            try:
                call(workspace, "fs.write", path="d/f", content=str(number), create_parents=True)
                won.append(number)
            except AlreadyExists:
                pass

        threads = [threading.Thread(target=create, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [(tmp_path / "d" / "f").read_text()] == [str(number) for number in won]


def test_a_file_that_another_program_changes_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def meddle(descriptor: int) -> None:
        real(descriptor)
        (tmp_path / "f").write_text("theirs, and longer")

    (tmp_path / "f").write_text("old")
    with open_workspace(tmp_path, ()) as workspace, monkeypatch.context() as broken:
        broken.setattr(replacement.os, "fsync", meddle)
        assert refused(workspace, "fs.write", path="f", content="ours", mode="overwrite") == "workspace.changed"
        (tmp_path / "f").unlink()
        assert refused(workspace, "fs.write", path="f", content="ours", mode="overwrite") == "workspace.exists"
    assert (tmp_path / "f").read_text() == "theirs, and longer"
    assert not leftovers(tmp_path)


def test_a_file_system_without_unnamed_files_is_told_from_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    directory = os.open(tmp_path, os.O_PATH)

    def answer(number: int) -> None:
        def fake(*arguments: object, **named: object) -> int:
            raise OSError(number, "made up")

        monkeypatch.setattr(replacement.os, "open", fake)

    answer(errno.EOPNOTSUPP)
    assert replacement.open_unnamed(directory, 0o600) is None
    answer(errno.EDQUOT)
    with pytest.raises(OSError, match="made up"):
        replacement.open_unnamed(directory, 0o600)
    monkeypatch.undo()
    os.close(directory)
