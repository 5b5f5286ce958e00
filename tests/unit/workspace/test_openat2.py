import errno
import os
from pathlib import Path

import pytest

from palyra.workspace import openat2
from palyra.workspace.errors import Busy, NotFound, Openat2Missing
from palyra.workspace.openat2 import CONFINED, CONFINED_NAME, descriptor_path, hold, location, open_beneath, probe
from palyra.workspace.root import open_workspace


def failing(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
    """The next calls fail with these; after them the real call answers."""
    left, real = list(numbers), openat2.openat2

    def fake(directory: int, path: bytes, flags: int, *, resolve: int) -> int:
        if left:
            raise OSError(left.pop(0), "made up")
        return real(directory, path, flags, resolve=resolve)

    monkeypatch.setattr(openat2, "openat2", fake)
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
                openat2.openat2(root, path, os.O_PATH, resolve=CONFINED)


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
    monkeypatch.setattr(openat2, "_NUMBER", None)
    with pytest.raises(Openat2Missing):
        open_workspace(tmp_path, ())


def test_a_kernel_that_ignores_the_flags_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = openat2.openat2
    for kept in (0, openat2.RESOLVE_BENEATH, openat2.RESOLVE_NO_MAGICLINKS):
        monkeypatch.setattr(openat2, "openat2", lambda d, p, f, *, resolve, kept=kept: real(d, p, f, resolve=kept))
        with pytest.raises(Openat2Missing):
            open_workspace(tmp_path, ())


def test_the_probe_says_what_holds(tmp_path: Path) -> None:
    with hold(os.open(tmp_path, os.O_PATH)) as root:
        assert probe(root) == CONFINED_NAME
