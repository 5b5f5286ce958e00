"""The state directory: private or refused, and every write whole."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palyra.config.state_dir import InvalidStateName, StateDir, StateDirExposed, StateDirUnusable


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


def test_it_is_made_private_with_its_parents(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "a" / "b" / "state")
    assert mode_of(state.root) == 0o700
    assert StateDir.open(state.root).root == state.root


@pytest.mark.promise("P-state-private")
def test_it_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = StateDir.open(tmp_path / "state")
        state.write_atomic("nested/token", b"t")
    finally:
        os.umask(before)
    assert mode_of(state.root) == 0o700
    assert mode_of(state.root / "nested") == 0o700
    assert mode_of(state.root / "nested" / "token") == 0o600


@pytest.mark.promise("P-state-private")
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o710, 0o704])
def test_one_open_to_others_is_refused_and_not_repaired(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(StateDirExposed, match=f"{mode:04o}"):
        StateDir.open(path)
    assert mode_of(path) == mode


@pytest.mark.promise("P-state-private")
def test_one_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(StateDirExposed, match="another user"):
        StateDir.open(path)


@pytest.mark.promise("P-state-private")
def test_a_link_or_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch(0o600)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("link", "file", "dangling"):
        with pytest.raises(StateDirExposed):
            StateDir.open(tmp_path / name)
    with pytest.raises(StateDirUnusable):
        StateDir.open(tmp_path / "file" / "below")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "a\0b"])
def test_names_that_lead_out_are_refused(state: StateDir, name: str) -> None:
    with pytest.raises(InvalidStateName):
        state.path(name)
    with pytest.raises(InvalidStateName):
        state.write_atomic(name, b"x")


@pytest.mark.promise("P-state-private")
def test_a_write_is_private_and_replaces_the_whole_content(state: StateDir) -> None:
    assert state.write_atomic("token", b"first, and longer") == state.root / "token"
    state.write_atomic("token", b"second")
    assert state.path("token").read_bytes() == b"second"
    assert mode_of(state.path("token")) == 0o600
    assert os.listdir(state.root) == ["token"]


def test_a_write_through_a_planted_link_replaces_the_link(state: StateDir, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    state.path("token").symlink_to(victim)
    state.write_atomic("token", b"new")
    assert victim.read_bytes() == b"untouched"
    assert not state.path("token").is_symlink()


def test_a_folder_inside_that_leads_elsewhere_is_refused(state: StateDir, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    state.path("keys").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirExposed):
        state.write_atomic("keys/token", b"x")
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.promise("P-journal-durable")
def test_file_then_name_then_folder_are_made_durable_in_that_order(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        fsync(descriptor)

    def note_replace(*args: object, **kwargs: object) -> None:
        steps.append("rename")
        replace(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    state.write_atomic("token", b"x")
    assert steps == ["sync file", "rename", "sync folder"]


def test_a_failed_write_keeps_the_old_content_and_leaves_no_rest(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.write_atomic("token", b"old")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StateDirUnusable, match="No space left"):
        state.write_atomic("token", b"new")
    assert state.path("token").read_bytes() == b"old"
    assert os.listdir(state.root) == ["token"]


@pytest.mark.promise("P-journal-durable")
def test_readers_beside_many_writers_never_see_a_part(state: StateDir) -> None:
    contents = [bytes([65 + n]) * 20_000 for n in range(8)]
    state.write_atomic("token", contents[0])
    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(state.write_atomic, "token", content) for content in contents * 4]
        seen = {state.path("token").read_bytes() for _ in range(200)}
        for write in writes:
            write.result()
    assert seen <= set(contents)
    assert os.listdir(state.root) == ["token"]
