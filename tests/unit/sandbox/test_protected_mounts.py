"""From names that exist to mounts, each known by its inode and reached past no link."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Names
from palyra.sandbox.domain.profile import BadProfile, SandboxProfile
from palyra.sandbox.layers.protected_mounts import (
    TooManyProtected,
    WorkspaceMoved,
    add_ancestors,
    facts_of,
    fold,
    gather_workspace,
    look,
    open_workspace_root,
)
from palyra.sandbox.layers.workspace_scan import WorkspaceScan, scan_workspace
from palyra.workspace.names import ProtectedNames

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
        seen = scan_workspace(root, ProtectedNames(PATTERNS))
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
    monkeypatch.setattr(limits, "MAX_SCANNED_ENTRIES", 2)
    facts, seen = gather_workspace(wanted)
    assert seen.unseen == {(b"big", b"inner")}
    assert {mount.names: mount.read_only for mount in facts.mounts} == {(b"big",): False, (b"big", b"inner"): True}
    assert (facts.unseen, facts.shortfall) == (1, "more than 2 files")
    monkeypatch.setattr(limits, "MAX_SCANNED_ENTRIES", 0)
    with pytest.raises(TooManyProtected, match="more than 0 files"):
        gather_workspace(wanted)


NAMES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=4).map(tuple)


def covered(names: Names, kept: frozenset[Names]) -> bool:
    return any(names[:cut] in kept for cut in range(1, len(names) + 1))


@given(st.frozensets(NAMES, max_size=40), st.integers(min_value=4, max_value=30))
def test_everything_stays_covered_within_the_budget(protected: frozenset[Names], budget: int) -> None:
    kept = fold(protected, budget)
    assert all(covered(names, kept) for names in protected)
    assert len(add_ancestors(kept)) <= budget
    assert () not in kept


def test_few_names_are_kept_as_they_are_and_names_beneath_others_vanish() -> None:
    protected = frozenset({(b".git", b"hooks"), (b".git", b"hooks", b"x"), (b".env",)})
    assert fold(protected) == {(b".git", b"hooks"), (b".env",)}
    assert add_ancestors(fold(protected)) == {(b".git",), (b".git", b"hooks"), (b".env",)}


def test_the_deepest_directory_that_suffices_becomes_read_only() -> None:
    many = {(b"web", b"node_modules", b"p%d" % number, b".vscode") for number in range(900)}
    kept = fold(frozenset({*many, (b".git", b"hooks")}))
    assert kept == {(b"web", b"node_modules"), (b".git", b"hooks")}


def test_names_in_the_root_cannot_be_folded_without_end() -> None:
    assert len(fold(frozenset((b".env%d" % number,) for number in range(900)))) == 900
    with pytest.raises(TooManyProtected):
        fold(frozenset((b".env%d" % number,) for number in range(1_100)))


def look_through(root: Path) -> WorkspaceScan:
    before = len(os.listdir("/proc/self/fd"))
    profile = SandboxProfile(workspace_root=str(root), protected_names=(".git/hooks", ".env*", ".vscode"))
    _, seen = gather_workspace(profile)
    assert len(os.listdir("/proc/self/fd")) == before
    return seen


def test_other_names_of_protected_files_are_found_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / ".vscode" / "inner").mkdir(parents=True)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "real").write_text("")
    (tmp_path / ".env.link").symlink_to("real")
    for name in (".env", ".vscode/inner/settings.json", "other"):
        (tmp_path / name).write_text("")
    os.link(tmp_path / ".env", tmp_path / "a/b/one")
    os.link(tmp_path / ".env", tmp_path / "two")
    # A second name that is protected itself needs nothing more.
    os.link(tmp_path / ".env", tmp_path / "a/.env.same")
    os.link(tmp_path / ".vscode/inner/settings.json", tmp_path / "a/three")
    os.link(tmp_path / "real", tmp_path / "a/four")
    os.link(tmp_path / "other", tmp_path / "a/unprotected")
    seen = look_through(tmp_path)
    assert seen.hard_links == {(b"a", b"b", b"one"), (b"two",), (b"a", b"three"), (b"a", b"four")}
    assert seen.shortfall == ""


def test_a_second_name_outside_the_workspace_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.env").write_text("")
    os.link(tmp_path / "w/.env", tmp_path / "outside")
    assert look_through(tmp_path / "w").hard_links == frozenset()


def test_without_second_names_nothing_is_walked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/hooks/pre-commit").write_text("")
    (tmp_path / ".env").write_text("")
    monkeypatch.setattr("palyra.sandbox.layers.protected_mounts._Finder", None)
    assert look_through(tmp_path).hard_links == frozenset()


def test_what_was_not_walked_again_is_told_as_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("")
    os.link(tmp_path / ".env", tmp_path / "alias")
    (tmp_path / "many").mkdir()
    for number in range(20):
        (tmp_path / "many" / f"{number}").write_text("")
    monkeypatch.setattr(limits, "MAX_SCANNED_ENTRIES", 30)
    (tmp_path / ".vscode").mkdir()
    for number in range(7):
        (tmp_path / "many" / f".env{number}").symlink_to("nowhere")
    seen = look_through(tmp_path)
    assert (b"many",) in seen.unseen
    assert "more than 30" in seen.shortfall


def test_files_in_protected_directories_count(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    for number in range(50):
        (tmp_path / ".vscode" / f"{number}").write_text("")
    profile = SandboxProfile(workspace_root=str(tmp_path), protected_names=(".vscode",))
    _, seen = gather_workspace(profile)
    assert (seen.entries, seen.unseen) == (51, frozenset())
