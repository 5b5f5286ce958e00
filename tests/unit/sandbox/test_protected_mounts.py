"""From names that exist to mounts, each known by its inode and reached past no link."""

import os
from pathlib import Path

import pytest

from palyra.sandbox import limits
from palyra.sandbox.domain.profile import BadProfile, SandboxProfile
from palyra.sandbox.layers.protected_mounts import (
    TooManyProtected,
    WorkspaceMoved,
    facts_of,
    gather_workspace,
    look,
    open_workspace_root,
)
from palyra.sandbox.layers.workspace_scan import survey
from palyra.workspace.protected import ProtectedNames

PATTERNS = (".git/hooks", ".env*")


def profile(root: Path, *, read_only: bool = False) -> SandboxProfile:
    return SandboxProfile(workspace_root=str(root), protected_names=PATTERNS, read_only=read_only)


def test_each_name_is_read_only_and_each_directory_above_it_a_mount(tmp_path: Path) -> None:
    (tmp_path / "a/.git/hooks").mkdir(parents=True)
    (tmp_path / ".env").write_text("")
    facts, seen = gather_workspace(profile(tmp_path))
    assert [(mount.names, mount.read_only) for mount in facts.mounts] == [
        ((b".env",), True),
        ((b"a",), False),
        ((b"a", b".git"), False),
        ((b"a", b".git", b"hooks"), True),
    ]
    assert facts.mounts[1].identity.inode == (tmp_path / "a").stat().st_ino
    assert facts.mounts[0].reason == "protected by .env*"
    assert facts.identity.inode == tmp_path.stat().st_ino
    assert set(seen.found) == {(b".env",), (b"a", b".git", b"hooks")}


def test_links_are_watched_and_their_real_places_mounted(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("")
    (tmp_path / ".env").symlink_to("real")
    facts, _ = gather_workspace(profile(tmp_path))
    assert [mount.names for mount in facts.mounts] == [(b"real",)]
    assert facts.watched_links == 1


def test_a_read_only_workspace_needs_no_mounts(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("")
    assert gather_workspace(profile(tmp_path, read_only=True))[0].mounts == ()


def test_thousands_of_names_need_few_mounts(tmp_path: Path) -> None:
    for number in range(1_500):
        (tmp_path / f"modules/p{number}").mkdir(parents=True)
        (tmp_path / f"modules/p{number}/.env").write_text("")
    facts, seen = gather_workspace(profile(tmp_path))
    assert len(seen.found) == 1_500
    assert [(mount.names, mount.read_only) for mount in facts.mounts] == [((b"modules",), True)]
    assert "more protected names" in facts.mounts[0].reason


def test_a_directory_swapped_for_a_link_meanwhile_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    root = open_workspace_root(str(tmp_path))
    try:
        seen = survey(root, ProtectedNames(PATTERNS))
        (tmp_path / ".git").rename(tmp_path / "moved")
        (tmp_path / ".git").symlink_to("moved")
        with pytest.raises(WorkspaceMoved):
            facts_of(root, profile(tmp_path), seen)
        with pytest.raises(WorkspaceMoved):
            look(root, (b".git", b"hooks"))
    finally:
        os.close(root)


def test_a_workspace_behind_a_link_or_missing_is_refused_with_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(BadProfile) as refused:
        gather_workspace(profile(tmp_path / "link"))
    assert str(tmp_path / "real") in refused.value.hint
    with pytest.raises(BadProfile):
        gather_workspace(profile(tmp_path / "nothing"))


def test_a_name_too_deep_for_a_mount_is_covered_by_a_directory_above_it(tmp_path: Path) -> None:
    """A path that no mount can have must not keep every later call from starting."""
    deep = tmp_path / "w"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(200):
        os.mkdir(b"d" * 90, dir_fd=here)
        inner = os.open(b"d" * 90, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.mkdir(b".vscode", dir_fd=here)
    os.close(here)
    facts, seen = gather_workspace(SandboxProfile(workspace_root=str(deep), protected_names=(".vscode",)))
    assert len(next(iter(seen.found))) == 201
    (sealed,) = [mount for mount in facts.mounts if mount.read_only]
    length = len(os.fsencode(deep)) + sum(len(name) + 1 for name in sealed.names)
    assert limits.MAX_MOUNT_PATH_BYTES - 91 < length <= limits.MAX_MOUNT_PATH_BYTES


def test_what_was_not_looked_through_is_read_only_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big" / "inner").mkdir(parents=True)
    (tmp_path / "big" / "inner" / "file").write_text("")
    wanted = SandboxProfile(workspace_root=str(tmp_path), protected_names=(".vscode",))
    monkeypatch.setattr(limits, "MAX_SURVEYED_ENTRIES", 2)
    facts, seen = gather_workspace(wanted)
    assert seen.unseen == {(b"big", b"inner")}
    assert {mount.names: mount.read_only for mount in facts.mounts} == {(b"big",): False, (b"big", b"inner"): True}
    assert (facts.unseen, facts.shortfall) == (1, "more than 2 files")
    monkeypatch.setattr(limits, "MAX_SURVEYED_ENTRIES", 0)
    with pytest.raises(TooManyProtected, match="more than 0 files"):
        gather_workspace(wanted)
