import os
import threading
from pathlib import Path

import pytest

from fakes.workspace_harness import call, refused
from palyra.workspace import root as walk_module
from palyra.workspace.errors import BadRoot, Cancelled, Escape, NotRegular, ReadOnly
from palyra.workspace.names import BadProtectedName, WorkspacePath
from palyra.workspace.openat2 import hold
from palyra.workspace.root import OPEN_DIRECTORY, Shortfall, kind_of, open_workspace, read_up_to, walk


def test_the_receipt_says_what_was_asked_and_got(tmp_path: Path) -> None:
    with open_workspace(tmp_path, (".git/hooks",)) as workspace:
        first, second = workspace.receipt()
    assert first == {
        "layer": "openat2",
        "asked": "resolve beneath the workspace",
        "got": "RESOLVE_BENEATH|RESOLVE_NO_MAGICLINKS",
    }
    assert second["asked"] == "refuse writes to 1 protected names"
    with open_workspace(tmp_path, (), read_only=True) as workspace:
        assert workspace.receipt()[1]["got"] == "writes refused"


def test_only_a_directory_is_a_root(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    for bad in (tmp_path / "f", tmp_path / "missing", Path("a\0b")):
        with pytest.raises(BadRoot):
            open_workspace(bad, ())
    with pytest.raises(BadProtectedName):
        open_workspace(tmp_path, ("/",))


def test_a_closed_workspace_refuses(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, ())
    workspace.close()
    workspace.close()
    assert refused(workspace, "fs.list") == "workspace.bad_root"


def test_the_root_may_be_renamed_while_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with open_workspace(tmp_path / "a", (".git/hooks",)) as workspace:
        (tmp_path / "a").rename(tmp_path / "b")
        call(workspace, "fs.write", path="x/f", content="1", create_parents=True)
        assert (tmp_path / "b" / "x" / "f").read_text() == "1"


def test_a_directory_is_found_where_it_really_is(tmp_path: Path) -> None:
    (tmp_path / "w" / "a\n" / "b").mkdir(parents=True)
    (tmp_path / "w" / "l").symlink_to("a\n/b")
    (tmp_path / "w2").mkdir()
    with open_workspace(tmp_path / "w", ()) as workspace:
        with hold(workspace.open(WorkspacePath.parse("l"), os.O_PATH)) as directory:
            assert workspace.names_of(directory, "l") == ("a\n", "b")
            (tmp_path / "w" / "a\n" / "b").rename(tmp_path / "w2" / "b")
            with pytest.raises(Escape):
                workspace.names_of(directory, "l")
        assert workspace.names_of(workspace.descriptor, ".") == ()
    with open_workspace(Path("/"), ()) as whole, hold(os.open("/usr", os.O_PATH)) as directory:
        assert whole.names_of(directory, "usr") == ("usr",)


def test_refusals_by_name(tmp_path: Path) -> None:
    with open_workspace(tmp_path, (), read_only=True) as workspace, pytest.raises(ReadOnly):
        workspace.refuse_write(WorkspacePath.parse("a"))
    with open_workspace(tmp_path, ()) as workspace, pytest.raises(NotRegular):
        workspace.refuse_write(WorkspacePath.parse("."))


def test_reading_stops_at_limits_and_at_cancellation(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    never, now = threading.Event(), threading.Event()
    now.set()
    with hold(os.open(tmp_path / "f", os.O_RDONLY)) as descriptor:
        assert read_up_to(descriptor, 2, 3, shown="f", cancelled=never) == b"234"
        assert read_up_to(descriptor, 8, 99, shown="f", cancelled=never) == b"89"
        assert read_up_to(descriptor, 99, 9, shown="f", cancelled=never) == b""
        with pytest.raises(Cancelled):
            read_up_to(descriptor, 0, 9, shown="f", cancelled=now)


def test_kinds() -> None:
    assert kind_of(os.stat("/dev/null").st_mode) == "device"
    assert kind_of(os.stat("/").st_mode) == "directory"


def names(root: Path, *, recursive: bool = True, skip: str = "") -> tuple[list[str], Shortfall]:
    shortfall = Shortfall()
    with hold(os.open(root, OPEN_DIRECTORY)) as directory:
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
    with hold(os.open(tmp_path, OPEN_DIRECTORY)) as directory:
        entries = walk(directory, recursive=True, shortfall=Shortfall(), keep_going=lambda: None)
        for entry in entries:
            if len(entry.names) == 3:
                break
        entries.close()
    assert len(os.listdir("/proc/self/fd")) == before
