import os
from pathlib import Path

import pytest

from palyra.sandbox import limits
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.layers.protected_mounts import TooManyForNow, gather_workspace
from palyra.sandbox.layers.workspace_scan import Survey


def look(root: Path) -> Survey:
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
    seen = look(tmp_path)
    assert seen.second_names == {(b"a", b"b", b"one"), (b"two",), (b"a", b"three"), (b"a", b"four")}
    assert seen.shortfall == ""


def test_a_second_name_outside_the_workspace_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.env").write_text("")
    os.link(tmp_path / "w/.env", tmp_path / "outside")
    assert look(tmp_path / "w").second_names == frozenset()


def test_without_second_names_nothing_is_walked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/hooks/pre-commit").write_text("")
    (tmp_path / ".env").write_text("")
    monkeypatch.setattr("palyra.sandbox.layers.protected_mounts._Finder", None)
    assert look(tmp_path).second_names == frozenset()


def test_what_was_not_walked_again_is_told_as_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("")
    os.link(tmp_path / ".env", tmp_path / "alias")
    (tmp_path / "many").mkdir()
    for number in range(20):
        (tmp_path / "many" / f"{number}").write_text("")
    monkeypatch.setattr(limits, "MAX_SURVEYED_ENTRIES", 30)
    (tmp_path / ".vscode").mkdir()
    for number in range(7):
        (tmp_path / "many" / f".env{number}").symlink_to("nowhere")
    seen = look(tmp_path)
    assert (b"many",) in seen.unseen
    assert "more than 30" in seen.shortfall


def test_a_large_protected_directory_is_too_much_for_a_quick_look(tmp_path: Path) -> None:
    """Such a look keeps the event loop: what is in protected directories counts for it too."""
    (tmp_path / ".vscode").mkdir()
    for number in range(50):
        (tmp_path / ".vscode" / f"{number}").write_text("")
    profile = SandboxProfile(workspace_root=str(tmp_path), protected_names=(".vscode",))
    with pytest.raises(TooManyForNow):
        gather_workspace(profile, most=20)
    _, seen = gather_workspace(profile, most=100)
    assert (seen.entries, seen.unseen) == (51, frozenset())
