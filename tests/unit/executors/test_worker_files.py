"""Files out of the workspace and back: bounded, and never outside of it. The rest is in test_worker_tier."""

import hashlib
import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import PalyraError
from palyra.executors.worker import files as worker_files
from palyra.executors.worker.files import TooMuchForWorker, copy_to_workspace, gather_inputs
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.fleet.store.artifacts import ArtifactStore

GO_ON = threading.Event()


def scope(root: Path, *paths: str, read_only: bool = False) -> WorkerWorkspaceScope:
    return WorkerWorkspaceScope.parse(str(root), paths, read_only=read_only)


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, store = tmp_path / "w", ArtifactStore(tmp_path / "a")
    root.mkdir()
    for number in range(3):
        (root / str(number)).write_text("same")
    assert len(gather_inputs(scope(root, "."), (), store, GO_ON)[1]) == 3 and store.stored_bytes() == 4
    monkeypatch.setattr(worker_files, "MAX_ARTIFACTS", 2)
    with pytest.raises(TooMuchForWorker):
        gather_inputs(scope(root, "."), (), store, GO_ON)
    monkeypatch.setattr(worker_files, "MAX_ARTIFACT_BYTES", 3)
    with pytest.raises(TooMuchForWorker):
        gather_inputs(scope(root, "0"), (), store, GO_ON)


def test_a_file_that_goes_away_meanwhile_does_not_go_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, store = tmp_path / "w", ArtifactStore(tmp_path / "a")
    root.mkdir()
    for name in ("gone", "kept"):
        (root / name).write_text("x")
    opened = worker_files.open_regular

    def after_others(directory: int, path: bytes, **options: Any) -> AbstractContextManager[int]:
        (root / "gone").unlink(missing_ok=True)
        return opened(directory, path, **options)

    monkeypatch.setattr(worker_files, "open_regular", after_others)
    assert [one.path for one in gather_inputs(scope(root, "."), (), store, GO_ON)[1]] == ["kept"]


def test_a_call_that_was_stopped_stops_reading(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a").write_text("a")
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(PalyraError):
        gather_inputs(scope(tmp_path / "w", "."), (), ArtifactStore(tmp_path / "a"), stopped)


def test_folders_without_files_go_along_and_names_that_cannot_be_told_stay(tmp_path: Path) -> None:
    root, store = tmp_path / "w", ArtifactStore(tmp_path / "a")
    for folder in ("empty", "data/inner", "full", ".git/hooks"):
        (root / folder).mkdir(parents=True)
    (root / "full" / "file").write_text("x")
    (root / os.fsdecode(b"\xff")).write_text("x")
    (root / os.fsdecode(b"\xfe")).mkdir()

    def gathered(*paths: str) -> tuple[tuple[str, ...], list[str]]:
        found, files = gather_inputs(scope(root, *paths), (".git",), store, GO_ON)
        return found.folders, [one.path for one in files]

    assert gathered(".") == (("data/inner", "empty"), ["full/file"])
    # A file that is about to be written: the folder it goes to is there, as far as it is.
    assert gathered("data/new.txt") == (("data",), [])
    assert gathered("data/not/there/new.txt") == (("data",), [])
    assert gathered("new.txt") == ((), []) and gathered("full/file") == ((), ["full/file"])
    assert gathered("empty") == (("empty",), [])


@pytest.mark.parametrize("path", ["link/x", "../x", "linked"])
def test_nothing_is_written_outside(tmp_path: Path, path: str) -> None:
    root, outside, store = tmp_path / "w", tmp_path / "outside", ArtifactStore(tmp_path / "a")
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "linked").symlink_to(outside / "x")
    digest = hashlib.sha256(b"x").hexdigest()
    store.add(iter((b"x",)), 1, digest)
    with pytest.raises(PalyraError):
        copy_to_workspace(scope(root, "."), (ArtifactRef(path=path, digest_sha256=digest, size=1),), (), store, GO_ON)
    assert list(outside.iterdir()) == [] and not (tmp_path / "x").exists()


def test_what_the_scope_does_not_cover_is_not_written(tmp_path: Path) -> None:
    root, store = tmp_path / "w", ArtifactStore(tmp_path / "a")
    root.mkdir()
    digest = hashlib.sha256(b"x").hexdigest()
    store.add(iter((b"x",)), 1, digest)
    made = (ArtifactRef(path="b/x", digest_sha256=digest, size=1),)
    for narrow in (scope(root, "a"), scope(root, ".", read_only=True)):
        with pytest.raises(PalyraError):
            copy_to_workspace(narrow, made, (), store, GO_ON)
