import errno
import os
import threading
from pathlib import Path

import pytest

from fakes.workspace_harness import call, refused
from palyra.workspace import root as root_module
from palyra.workspace.errors import BadRoot, Busy, Cancelled, Escape, NotFound, NotRegular, Openat2Missing, ReadOnly
from palyra.workspace.names import BadProtectedName, WorkspacePath
from palyra.workspace.root import (
    CONFINED,
    CONFINED_NAME,
    OPEN_DIRECTORY,
    Shortfall,
    descriptor_path,
    hold,
    kind_of,
    location,
    open_beneath,
    open_workspace,
    probe,
    read_up_to,
    walk,
)


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
        small.setattr(root_module, "MAX_WALK_DEPTH", 2)
        found, shortfall = names(tmp_path)
        assert (found, shortfall.incomplete) == (["a", "a/b"], True)
    (tmp_path / "z").mkdir()
    monkeypatch.setattr(root_module, "MAX_DIRECTORY_ENTRIES", 1)
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


def failing(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
    """The next calls fail with these; after them the real call answers."""
    left, real = list(numbers), root_module.openat2

    def fake(directory: int, path: bytes, flags: int, *, resolve: int) -> int:
        if left:
            raise OSError(left.pop(0), "made up")
        return real(directory, path, flags, resolve=resolve)

    monkeypatch.setattr(root_module, "openat2", fake)
    return left


def test_opens_beneath_and_closes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with hold(os.open(tmp_path, os.O_PATH)) as root:
        with hold(open_beneath(root, b"f", os.O_RDONLY, shown="f")) as descriptor:
            assert os.read(descriptor, 9) == b"x"
            assert not os.get_inheritable(descriptor)
            assert location(descriptor) == os.fsencode(tmp_path.resolve() / "f")
            assert os.readlink(descriptor_path(descriptor)) == location(descriptor)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)
        with pytest.raises(NotFound):
            open_beneath(root, b"g", os.O_RDONLY, shown="g")
        for path in (b"..", b"/etc", b"x/../.."):
            with pytest.raises(OSError, match=r"cross-device|No such file"):
                root_module.openat2(root, path, os.O_PATH, resolve=CONFINED)


def test_races_are_retried_and_then_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hold(os.open(tmp_path, os.O_PATH)) as root:
        left = failing(monkeypatch, *[errno.EAGAIN, errno.EINTR] * 10)
        os.close(open_beneath(root, b".", os.O_PATH, shown="."))
        assert left == []
        failing(monkeypatch, *[errno.EAGAIN] * 1000)
        with pytest.raises(Busy):
            open_beneath(root, b".", os.O_PATH, shown=".")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG])
def test_a_kernel_without_it_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    failing(monkeypatch, number)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Openat2Missing) as caught:
        open_workspace(tmp_path, ())
    assert caught.value.details == {"layer": "openat2"}
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_unknown_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_module, "_NUMBER", None)
    with pytest.raises(Openat2Missing):
        open_workspace(tmp_path, ())


def test_a_kernel_that_ignores_the_flags_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = root_module.openat2
    for kept in (0, root_module.RESOLVE_BENEATH, root_module.RESOLVE_NO_MAGICLINKS):
        monkeypatch.setattr(root_module, "openat2", lambda d, p, f, *, resolve, kept=kept: real(d, p, f, resolve=kept))
        with pytest.raises(Openat2Missing):
            open_workspace(tmp_path, ())


def test_the_probe_says_what_holds(tmp_path: Path) -> None:
    with hold(os.open(tmp_path, os.O_PATH)) as root:
        assert probe(root) == CONFINED_NAME
