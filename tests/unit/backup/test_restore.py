"""A staged directory takes the place of another."""

from pathlib import Path

import pytest

from palyra.backup import restore
from palyra.backup.restore import Staging, StateInTheWay, put_in_place, require_place
from palyra.signing.dsse import Verifier


def no_key(path: Path) -> Verifier:
    raise AssertionError(path)


def stage(folder: Path, content: str) -> Path:
    staged = folder / f"staged-{content}"
    staged.mkdir()
    (staged / "file").write_text(content)
    return staged


def test_files_are_written_below_it_for_the_owner_alone_and_removed_with_it(tmp_path: Path) -> None:
    with Staging(tmp_path, no_key) as staging:
        staging.take("a/b/c", iter([b"one", b"two"]))
        written = staging.path / "a" / "b" / "c"
        assert (written.read_bytes(), written.stat().st_mode & 0o777) == (b"onetwo", 0o600)
        assert written.parent.stat().st_mode & 0o777 == staging.path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_wanted_is_written(tmp_path: Path) -> None:
    with Staging(tmp_path, no_key, frozenset({"a"})) as staging:
        for name in ("a", "b"):
            staging.take(name, iter([b"x"]))
        assert [one.name for one in staging.path.iterdir()] == ["a"]


def test_a_directory_with_something_in_it_is_not_taken_unasked(tmp_path: Path) -> None:
    require_place(tmp_path / "none", replace=False)
    require_place(tmp_path, replace=False)
    (tmp_path / "x").touch()
    with pytest.raises(StateInTheWay):
        require_place(tmp_path, replace=False)
    require_place(tmp_path, replace=True)


@pytest.mark.promise("P-backup")
@pytest.mark.parametrize("can_exchange", [True, False])
def test_what_was_there_is_kept_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool) -> None:
    if not can_exchange:
        monkeypatch.setattr(restore.ctypes, "CDLL", lambda *_args, **_more: object())
    target = tmp_path / "state"
    assert put_in_place(stage(tmp_path, "one"), target) is None
    assert (target / "file").read_text() == "one"
    kept = put_in_place(stage(tmp_path, "two"), target)
    assert kept is not None and kept.name.startswith("state.before-restore-")
    assert ((kept / "file").read_text(), (target / "file").read_text()) == ("one", "two")
    assert {one.name for one in tmp_path.iterdir()} == {"state", kept.name}


def test_an_empty_directory_is_simply_taken(tmp_path: Path) -> None:
    target = tmp_path / "state"
    target.mkdir()
    assert put_in_place(stage(tmp_path, "one"), target) is None and (target / "file").exists()
