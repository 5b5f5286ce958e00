"""What appeared, was replaced or went away during a call, and what becomes of it."""

import errno
import os
from pathlib import Path

import pytest

from palyra.sandbox.domain.profile import Layer, NewProtectedPolicy, ReceiptLine, SandboxProfile
from palyra.sandbox.layers.protected_mounts import gather_workspace
from palyra.sandbox.verify import protected_changes
from palyra.sandbox.verify.protected_changes import Change, ProtectedAppeared, ProtectedUnseen, look_again


def profile(root: Path, policy: NewProtectedPolicy) -> SandboxProfile:
    root.mkdir(exist_ok=True)
    return SandboxProfile(workspace_root=str(root), protected_names=(".git/hooks", ".env*"), appearing_protected=policy)


def test_nothing_new_is_said_to_be_nothing(tmp_path: Path) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.FAIL)
    (tmp_path / "w/.env").write_text("")
    _, before = gather_workspace(wanted)
    (tmp_path / "w/other").write_text("")
    report = look_again(wanted, before)
    report.refuse()
    earlier = ReceiptLine(layer=Layer.PROTECTED_NAMES, asked="2 patterns", got="1 read-only", held=True)
    line = report.line(earlier)
    assert (line.asked, line.got, line.held) == ("2 patterns", "1 read-only; none appeared during the call", True)


def test_kept_names_are_told_and_stay(tmp_path: Path) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.KEEP)
    _, before = gather_workspace(wanted)
    (tmp_path / "w/.git/hooks").mkdir(parents=True)
    report = look_again(wanted, before)
    report.refuse()
    assert report.line().held
    assert ".git/hooks appeared" in report.line().got
    assert (tmp_path / "w/.git/hooks").is_dir()


def test_a_failing_policy_names_them(tmp_path: Path) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.FAIL)
    _, before = gather_workspace(wanted)
    (tmp_path / "w/.env").write_text("")
    report = look_again(wanted, before)
    with pytest.raises(ProtectedAppeared) as refused:
        report.refuse()
    assert refused.value.details["names"] == [".env"]
    assert not report.line().held


def test_moved_aside_they_keep_their_content_and_links_come_back(tmp_path: Path) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.MOVE_ASIDE)
    (tmp_path / "aside").mkdir()
    (tmp_path / "w/.env").symlink_to("first")
    (tmp_path / "w/.env.gone").symlink_to("second")
    _, before = gather_workspace(wanted)
    (tmp_path / "w/.env").unlink()
    (tmp_path / "w/.env").write_text("planted")
    (tmp_path / "w/.env.gone").unlink()
    (tmp_path / "w/.git/hooks").mkdir(parents=True)
    (tmp_path / "w/.git/hooks/x").write_text("evil")
    report = look_again(wanted, before, aside=str(tmp_path / "aside"))
    report.refuse()
    assert [each.change for each in report.changes] == [Change.REPLACED, Change.REMOVED, Change.APPEARED]
    assert os.readlink(tmp_path / "w/.env") == "first"
    assert os.readlink(tmp_path / "w/.env.gone") == "second"
    assert not (tmp_path / "w/.git/hooks").exists()
    assert (tmp_path / "aside/0000").read_text() == "planted"
    assert (tmp_path / "aside/0002/x").read_text() == "evil"


def test_what_cannot_be_moved_fails_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.MOVE_ASIDE)
    _, before = gather_workspace(wanted)
    (tmp_path / "w/.env").write_text("")

    def elsewhere(*arguments: object, **options: object) -> None:
        raise OSError(errno.EXDEV, "other device")

    monkeypatch.setattr(os, "rename", elsewhere)
    (tmp_path / "aside").mkdir()
    report = look_again(wanted, before, aside=str(tmp_path / "aside"))
    assert "another file system" in report.line().got
    with pytest.raises(ProtectedAppeared):
        report.refuse()
    with pytest.raises(ProtectedAppeared):
        look_again(wanted, before).refuse()


def test_many_names_are_told_in_one_short_line(tmp_path: Path) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.KEEP)
    _, before = gather_workspace(wanted)
    for number in range(100):
        (tmp_path / f"w/.env\n{number:03d}").write_text("")
    line = look_again(wanted, before).line()
    assert "100 changed" in line.got
    assert "and 68 more" in line.got
    assert "\n" not in line.got


def test_more_than_can_be_looked_through_fails_the_call_whatever_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.KEEP)
    (tmp_path / "w/there").mkdir()
    (tmp_path / "w/there/.env").write_text("")
    _, before = gather_workspace(wanted)
    monkeypatch.setattr(protected_changes, "MAX_NEW_ENTRIES", 10)
    for number in range(20):
        (tmp_path / "w/there" / f"{number}").write_text("")
    report = look_again(wanted, before)
    assert report.changes == ()
    assert not report.line().held
    assert "cut short: more than" in report.line().got
    with pytest.raises(ProtectedUnseen, match="more than"):
        report.refuse()


def test_a_name_beyond_the_longest_path_is_moved_aside(tmp_path: Path) -> None:
    wanted = profile(tmp_path / "w", NewProtectedPolicy.MOVE_ASIDE)
    (tmp_path / "aside").mkdir()
    _, before = gather_workspace(wanted)
    here = os.open(tmp_path / "w", os.O_RDONLY)
    for _ in range(60):
        os.mkdir(b"d" * 100, dir_fd=here)
        inner = os.open(b"d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open(b".env", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    report = look_again(wanted, before, aside=str(tmp_path / "aside"))
    report.refuse()
    assert os.listdir(here) == []
    os.close(here)
    assert sorted(os.listdir(tmp_path / "aside")) == ["0000", "moved.json"]
