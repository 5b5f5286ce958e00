"""Scratch workspaces: hostile paths, damaged bytes, and what programs leave behind."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import PalyraError
from palyra.fleet import limits
from palyra.fleet.agent.lease import ArtifactDamaged, NoRoom, TooMuchLeft
from palyra.fleet.agent.scratch import Scratch, ScratchFolder
from palyra.fleet.domain.workspace_scope import ArtifactRef, ArtifactsTooLarge, WorkerWorkspaceScope
from palyra.ids import InvalidId
from palyra.sandbox.layers.workspace_scan import remove_tree

LEASE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
WRITABLE = WorkerWorkspaceScope.parse("/srv/work", ("src", "out"), read_only=False)


def artifact(path: str, data: bytes = b"data", **changes: object) -> ArtifactRef:
    fields = {"path": path, "digest_sha256": hashlib.sha256(data).hexdigest(), "size": len(data), **changes}
    return ArtifactRef(**fields)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> ScratchFolder:
    return ScratchFolder(tmp_path / "scratch", remove_tree=remove_tree)


@pytest.fixture
def scratch(folder: ScratchFolder) -> Scratch:
    return folder.make(LEASE)


def put(scratch: Scratch, ref: ArtifactRef, data: bytes = b"data") -> None:
    with scratch.lay_out(ref) as writer:
        for start in range(0, len(data), 3):
            writer.write(data[start : start + 3])


def test_files_are_laid_out_for_this_user_alone_and_programs_can_be_run(scratch: Scratch) -> None:
    put(scratch, artifact("src/deep/a.txt"))
    put(scratch, artifact("run.sh", executable=True))
    assert (scratch.workspace / "src/deep/a.txt").read_bytes() == b"data"
    modes = {path.name: path.stat().st_mode & 0o777 for path in scratch.workspace.rglob("*")}
    assert modes == {"src": 0o700, "deep": 0o700, "a.txt": 0o600, "run.sh": 0o700}


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../x", "a\0b", "", ".", "x" * 300])
def test_a_hostile_path_leads_nowhere(scratch: Scratch, tmp_path: Path, path: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PalyraError):
        put(scratch, artifact(path))
    assert sorted(tmp_path.rglob("*")) == before


@given(st.text(min_size=1, max_size=40))
def test_no_path_leaves_the_workspace(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    base = tmp_path_factory.mktemp("any")
    made = ScratchFolder(base / "scratch", remove_tree=remove_tree).make(LEASE)
    try:
        put(made, artifact(path))
    except (PalyraError, OSError):
        return
    inside = set(made.workspace.rglob("*"))
    assert {each for each in base.rglob("*") if each.is_file()} <= inside


def test_links_are_not_followed_while_files_are_laid_out(scratch: Scratch, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (scratch.workspace / "src").symlink_to(outside)
    (scratch.workspace / "file").symlink_to(outside / "target")
    for path in ("src/a", "file"):
        with pytest.raises(OSError):
            put(scratch, artifact(path))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("data", [b"dat", b"dats", b"data and more", b""])
def test_bytes_that_are_not_those_named_do_not_stay(scratch: Scratch, data: bytes) -> None:
    with pytest.raises(ArtifactDamaged):
        put(scratch, artifact("a"), data)
    assert list(scratch.workspace.iterdir()) == []


def test_a_disk_without_room_is_noticed_before_a_byte_is_written(scratch: Scratch) -> None:
    with pytest.raises(NoRoom):
        scratch.require_room((artifact("a", size=1 << 60),))
    scratch.require_room((artifact("a"),))


def test_what_changed_is_gathered_within_the_scope(scratch: Scratch) -> None:
    same, changed = artifact("src/same"), artifact("src/changed")
    put(scratch, same)
    put(scratch, changed)
    (scratch.workspace / "src/changed").write_bytes(b"new")
    (scratch.workspace / "out").mkdir()
    (scratch.workspace / "out/made").write_bytes(b"made")
    (scratch.workspace / "out/.env").write_bytes(b"made")
    (scratch.workspace / "elsewhere").write_bytes(b"x")
    (scratch.workspace / "out/link").symlink_to("/etc/passwd")
    os.mkfifo(scratch.workspace / "out/pipe")
    (scratch.workspace / os.fsdecode(b"out/\xff")).write_bytes(b"x")
    found = scratch.gather((same, changed), WRITABLE, lambda names: names[-1] == ".env")
    assert found.artifacts == (artifact("out/made", b"made"), artifact("src/changed", b"new"))
    assert (found.outside_scope, found.not_files, found.protected) == (1, 3, 1)
    with scratch.reading(found.artifacts[0]) as descriptor:
        assert os.read(descriptor, 100) == b"made"


def test_a_bit_that_makes_a_program_is_a_change(scratch: Scratch) -> None:
    put(scratch, artifact("out/a"))
    os.chmod(scratch.workspace / "out/a", 0o700)
    assert [each.executable for each in scratch.gather((artifact("out/a"),), WRITABLE).artifacts] == [True]


def test_nothing_is_gathered_of_a_lease_that_only_reads(scratch: Scratch) -> None:
    (scratch.workspace / "out").mkdir()
    (scratch.workspace / "out/made").write_bytes(b"made")
    scope = WorkerWorkspaceScope.parse("/srv/work", ("out",))
    assert scratch.gather((), scope).artifacts == ()


def test_more_entries_than_a_worker_looks_at_are_refused(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SCRATCH_ENTRIES", 5)
    for number in range(6):
        (scratch.workspace / str(number)).write_bytes(b"")
    with pytest.raises(TooMuchLeft):
        scratch.gather((), WRITABLE)


def test_folders_deeper_than_a_worker_follows_are_refused_and_still_removed(
    folder: ScratchFolder, scratch: Scratch
) -> None:
    place = os.open(scratch.workspace, os.O_RDONLY)
    for _ in range(2_000):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    with pytest.raises(TooMuchLeft):
        scratch.gather((), WRITABLE)
    folder.remove(LEASE)
    assert folder.names() == []


def test_more_artifacts_than_a_lease_may_have_are_refused(scratch: Scratch) -> None:
    (scratch.workspace / "out").mkdir()
    for number in range(1_025):
        (scratch.workspace / "out" / str(number)).write_bytes(b"")
    with pytest.raises(ArtifactsTooLarge):
        scratch.gather((), WRITABLE)


def test_each_lease_has_one_folder_and_every_folder_can_be_removed(folder: ScratchFolder, tmp_path: Path) -> None:
    made = folder.make(LEASE)
    with pytest.raises(FileExistsError):
        folder.make(LEASE)
    with pytest.raises(InvalidId):
        folder.make("../x")
    assert len(folder.names()) == 1 and made.identity.count(":") == 1
    (folder.root / "file").write_bytes(b"")
    (folder.root / "link").symlink_to(tmp_path)
    for name in folder.names():
        folder.remove(name)
    assert folder.names() == [] and tmp_path.exists()


def test_folders_are_made_for_what_is_to_be_written_and_are_no_result(scratch: Scratch) -> None:
    scope = WorkerWorkspaceScope.parse("/srv", (".",), read_only=False, folders=("data/inner", "empty"))
    scratch.make_folders(scope)
    assert (scratch.workspace / "data" / "inner").is_dir() and (scratch.workspace / "empty").is_dir()
    assert scratch.gather((), scope).artifacts == ()
