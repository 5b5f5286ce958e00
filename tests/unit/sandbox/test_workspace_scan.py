"""The look through a workspace: what it finds, what it does not follow, and what it says when it is cut short."""

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.launching import as_ordinary_user
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Kind
from palyra.sandbox.layers.workspace_scan import WorkspaceScan, _Walker, open_names, remove_tree, scan_workspace
from palyra.workspace.names import ProtectedNames
from palyra.workspace.root import hold

PATTERNS = (".git/hooks", ".git/config", ".env*", ".vscode")
MACHINE = ProtectedNames(PATTERNS)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def look(opened: int) -> WorkspaceScan:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    seen = scan_workspace(opened, ProtectedNames(PATTERNS))
    assert len(os.listdir("/proc/self/fd")) == before
    return seen


def test_names_are_found_at_any_depth_with_kind_and_inode(tmp_path: Path, opened: int) -> None:
    (tmp_path / "a/.git/hooks").mkdir(parents=True)
    (tmp_path / "a/.git/config").write_text("")
    (tmp_path / "a/.git/index").write_text("")
    (tmp_path / ".env.local").write_text("")
    os.mkfifo(tmp_path / ".env")
    seen = look(opened)
    assert {names: found.kind for names, found in seen.found.items()} == {
        (b"a", b".git", b"hooks"): Kind.DIRECTORY,
        (b"a", b".git", b"config"): Kind.FILE,
        (b".env.local",): Kind.FILE,
        (b".env",): Kind.OTHER,
    }
    found = seen.found[(b"a", b".git", b"config")]
    assert found.identity.inode == (tmp_path / "a/.git/config").stat().st_ino
    assert (found.pattern, seen.shortfall) == (".git/config", "")


def test_a_file_in_the_place_of_a_protected_parent_is_protected(tmp_path: Path, opened: int) -> None:
    (tmp_path / "module").mkdir()
    (tmp_path / "module/.git").write_text("gitdir: /elsewhere\n")
    assert look(opened).found[(b"module", b".git")].kind is Kind.FILE


def test_odd_names_are_names(tmp_path: Path, opened: int) -> None:
    for name in (b".env\n", b".env\xff\xfe", b".env*?[", b".env" + b"x" * 251):
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).write_text("")
    assert {names[0] for names in look(opened).found} == {b".env\n", b".env\xff\xfe", b".env*?[", b".env" + b"x" * 251}


def test_links_are_seen_not_entered_and_lead_to_their_real_place(tmp_path: Path, opened: int) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    (outside / "hooks").mkdir(parents=True)
    (tmp_path / "real/hooks").mkdir(parents=True)
    (tmp_path / "settings").mkdir()
    (tmp_path / ".git").symlink_to("real")
    (tmp_path / ".vscode").symlink_to(tmp_path / "settings")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.git").symlink_to(outside)
    (tmp_path / ".env").symlink_to("nowhere")
    (tmp_path / ".env.root").symlink_to(".")
    seen = look(opened)
    links = {names for names, found in seen.found.items() if found.kind is Kind.LINK}
    assert links == {(b".git",), (b".vscode",), (b"sub", b".git"), (b".env",), (b".env.root",)}
    assert seen.found[(b".env",)].target == b"nowhere"
    assert seen.real_places == {(b"real", b"hooks"), (b"settings",)}


def test_second_names_of_a_file_are_counted(tmp_path: Path, opened: int) -> None:
    (tmp_path / ".env").write_text("")
    os.link(tmp_path / ".env", tmp_path / "alias")
    assert look(opened).found[(b".env",)].links == 2


def test_a_name_is_found_however_deep_it_lies(tmp_path: Path, opened: int) -> None:
    """Deeper than a path can be, and than directories are held open."""
    wide = [b"%03d" % number + b"n" * 200 for number in range(80)]
    here = os.dup(opened)
    for name in wide:
        for sibling in (name, name + b"-after", b"a-" + name):
            os.mkdir(sibling, dir_fd=here)
        for sibling in (name + b"-after", b"a-" + name):
            os.close(os.open(sibling + b"/.env", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.mkdir(b".git", dir_fd=here)
    os.mkdir(b".git/hooks", dir_fd=here)
    os.symlink(b"../" * 80 + b"real", b".env.link", dir_fd=here)
    os.close(here)
    (tmp_path / "real").write_text("")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    seen = look(opened)
    assert len(os.listdir("/proc/self/fd")) == before
    assert (*wide, b".git", b"hooks") in seen.found
    assert len(seen.found) == 2 * 80 + 2
    assert (seen.shortfall, seen.unseen) == ("", frozenset())
    assert seen.real_places == {(b"real",)}
    with hold(open_names(opened, (*wide, b".git", b"hooks"))) as hooks:
        assert os.fstat(hooks).st_ino == seen.found[(*wide, b".git", b"hooks")].identity.inode


def test_only_some_directories_are_held_open_at_once(
    tmp_path: Path, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath(*["d"] * 30).mkdir(parents=True)
    monkeypatch.setattr(limits, "MAX_SCAN_DESCRIPTORS", 3)
    most = 0
    children = _Walker.children

    def counting(self: _Walker, *arguments: Any) -> Any:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))
        return children(self, *arguments)

    monkeypatch.setattr(_Walker, "children", counting)
    at_rest = len(os.listdir("/proc/self/fd"))
    assert look(opened).shortfall == ""
    assert most <= at_rest + 4


def test_a_directory_that_was_moved_meanwhile_is_told(
    tmp_path: Path, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going back up must not lead to another place."""
    deep = tmp_path.joinpath(*["d"] * 5)
    deep.mkdir(parents=True)
    (tmp_path / "d" / "later").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(limits, "MAX_SCAN_DESCRIPTORS", 1)
    children = _Walker.children

    def moving(self: _Walker, directory: int, names: Any, state: Any) -> Any:
        if len(names) == 5:
            os.rename(tmp_path / "d/d/d", tmp_path / "elsewhere/d")
        return sorted(children(self, directory, names, state), reverse=True)

    monkeypatch.setattr(_Walker, "children", moving)
    seen = look(opened)
    assert "moved" in seen.shortfall
    assert (b"d", b"later") in seen.unseen


def test_the_bounds_are_said_with_what_lies_beyond(
    tmp_path: Path, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path.joinpath(*["d"] * 10)
    deep.mkdir(parents=True)
    monkeypatch.setattr(limits, "MAX_SCAN_DEPTH", 5)
    seen = look(opened)
    assert "deeper" in seen.shortfall
    assert seen.unseen == {(b"d",) * 6}
    monkeypatch.setattr(limits, "MAX_SCANNED_ENTRIES", 2)
    seen = look(opened)
    assert "more than 2 files" in seen.shortfall
    assert seen.unseen == {(b"d",) * 2}
    # What is left out on purpose is no shortfall.
    assert scan_workspace(opened, MACHINE, without=frozenset({(b"d",) * 2})).shortfall == ""
    for number in range(3):
        (tmp_path / f".env{number}").symlink_to("d")
    monkeypatch.setattr(limits, "MAX_SCANNED_ENTRIES", 100)
    monkeypatch.setattr(limits, "MAX_FOLLOWED_LINKS", 2)
    seen = look(opened)
    assert "links" in seen.shortfall
    assert () in seen.unseen


def test_many_directories_beyond_a_bound_are_told_as_the_one_around_them(
    tmp_path: Path, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        (tmp_path / "many" / f"{number}").mkdir(parents=True)
        (tmp_path / "many" / f"{number}" / "file").write_text("")
    monkeypatch.setattr(limits, "MAX_SCANNED_ENTRIES", 45)
    unseen = look(opened).unseen
    assert (b"many",) in unseen
    assert len(unseen) <= 2


def test_the_path_of_a_found_name_counts_too(tmp_path: Path, opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain with a protected name on each level would else take memory by the square of its length."""
    here = tmp_path
    for _ in range(50):
        here = here / "d"
        here.mkdir()
        (here / ".env").write_text("")
    monkeypatch.setattr(limits, "MAX_SCANNED_ENTRIES", 500)
    seen = look(opened)
    assert "files" in seen.shortfall
    assert len(seen.found) < 40


def test_a_directory_that_cannot_be_read_is_told(tmp_path: Path, opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    opening = os.open

    def refused(path: Any, *arguments: Any, **more: Any) -> int:
        if path == b"closed":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opening(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refused)
    seen = look(opened)
    assert seen.unseen == {(b"closed",)}
    assert "cannot be read" in seen.shortfall


def test_what_a_link_leads_to_may_be_too_deep_to_be_told(tmp_path: Path, opened: int) -> None:
    """Through thirty short links to a place whose own path the kernel cannot put into words."""
    (tmp_path / ".env").symlink_to("way/" * 30 + "end")
    here = os.dup(opened)
    for _ in range(30):
        os.mkdir(b"n" * 200, dir_fd=here)
        os.symlink(b"n" * 200, b"way", dir_fd=here)
        inner = os.open(b"way", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.mkdir(b"end", dir_fd=here)
    os.close(here)
    assert (tmp_path / ".env").is_dir()
    seen = look(opened)
    assert (seen.shortfall, seen.real_places) == ("", frozenset())


def test_without_patterns_nothing_is_walked(tmp_path: Path, opened: int) -> None:
    (tmp_path / ".env").write_text("")
    assert scan_workspace(opened, ProtectedNames(())).entries == 0


def nest(place: Path, depth: int) -> None:
    here = os.open(place, os.O_RDONLY)
    for level in range(depth):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir(f"moved-{level}", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_a_tree_of_any_depth_goes_and_links_are_not_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "precious").write_text("x")
    nest(home, 3000)
    (home / "d" / "link").symlink_to(outside)
    (home / "link").symlink_to(outside)
    os.mkfifo(home / "d" / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    remove_tree(str(home))
    assert len(os.listdir("/proc/self/fd")) == before
    assert not home.exists()
    assert (outside / "precious").read_text() == "x"


def test_rights_that_were_taken_away_are_taken_back() -> None:
    async def body() -> bool:
        import tempfile

        home = Path(tempfile.mkdtemp())
        (home / "closed" / "inner").mkdir(parents=True)
        (home / "closed" / "inner" / "file").write_text("")
        (home / "closed" / "inner").chmod(0)
        (home / "closed").chmod(0)
        remove_tree(str(home))
        return home.exists()

    assert as_ordinary_user(body) is False


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "nothing"))
    (tmp_path / "file").write_text("")
    remove_tree(str(tmp_path / "file"))
    assert (tmp_path / "file").exists()
