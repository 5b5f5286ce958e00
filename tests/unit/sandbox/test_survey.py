"""The look through a workspace: what it finds, what it does not follow, and what it says when it is cut short."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.sandbox import limits
from palyra.sandbox.host_facts import Kind
from palyra.sandbox.protected_match import ProtectedMachine
from palyra.sandbox.survey import Survey, survey

PATTERNS = (".git/hooks", ".git/config", ".env*", ".vscode")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def look(opened: int) -> Survey:
    before = len(os.listdir("/proc/self/fd"))
    seen = survey(opened, ProtectedMachine(PATTERNS))
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


def test_the_bounds_are_said(tmp_path: Path, opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["d"] * 10)
    deep.mkdir(parents=True)
    monkeypatch.setattr(limits, "MAX_SURVEY_DEPTH", 5)
    assert "deeper" in look(opened).shortfall
    monkeypatch.setattr(limits, "MAX_SURVEYED_ENTRIES", 2)
    assert "more than 2 files" in look(opened).shortfall
    for number in range(3):
        (tmp_path / f".env{number}").symlink_to("d")
    monkeypatch.setattr(limits, "MAX_SURVEYED_ENTRIES", 100)
    monkeypatch.setattr(limits, "MAX_FOLLOWED_LINKS", 2)
    assert "links" in look(opened).shortfall


def test_without_patterns_nothing_is_walked(tmp_path: Path, opened: int) -> None:
    (tmp_path / ".env").write_text("")
    assert survey(opened, ProtectedMachine(())).entries == 0
