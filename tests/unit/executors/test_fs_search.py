import os
import threading
from pathlib import Path

import pytest

from fakes.workspace_harness import call, refused
from palyra.workspace import limits
from palyra.workspace.root import Workspace, open_workspace


def found(workspace: Workspace, **arguments: object) -> list[tuple[str, int, int]]:
    return [(m["path"], m["line"], m["column"]) for m in call(workspace, "fs.search", **arguments)["matches"]]


def fill(root: Path) -> None:
    for path, text in {
        "a.py": "x = 1\r\nneedle\n",
        "src/b.py": "a NEEDLE\n",
        "src/c.txt": "need1e needle",
        ".git/objects/pack": "needle",
        ".git/HEAD": "needle",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, newline="")
    (root / "binary").write_bytes(b"needle\0")
    (root / "latin").write_bytes(b"\xff needle")


def test_finds_by_text_pattern_glob_and_place(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_workspace(tmp_path, ()) as workspace:
        plain = [(".git/HEAD", 1, 1), ("a.py", 2, 1), ("latin", 1, 3), ("src/c.txt", 1, 8)]
        assert found(workspace, query="needle") == plain
        assert found(workspace, query="needle", regex=True) == plain
        assert found(workspace, query="needle", case_sensitive=False, glob="*.py") == [
            ("a.py", 2, 1),
            ("src/b.py", 1, 3),
        ]
        assert found(workspace, query="need[l1]e", regex=True, path="src") == [("src/c.txt", 1, 1)]
        assert found(workspace, query="^needle$", regex=True, path="a.py") == [("a.py", 2, 1)]
        assert found(workspace, query="NEEDLE", regex=True, case_sensitive=False, glob="src/**") == [
            ("src/b.py", 1, 3),
            ("src/c.txt", 1, 8),
        ]
        assert found(workspace, query=".", glob="a.py") == []
        result = call(workspace, "fs.search", query="needle")
        assert (result["files_searched"], result["files_skipped"], result["truncated"]) == (5, 1, False)


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("limit", "value", "stopped_by"),
    [
        ("MAX_SEARCH_FILES", 2, "files"),
        ("MAX_SEARCH_TOTAL_BYTES", 20, "bytes"),
        ("MAX_MATCH_TEXT_TOTAL_CHARS", 30, "matches"),
        ("SEARCH_SECONDS", 0.0, "time"),
    ],
)
def test_a_limit_ends_a_search_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, stopped_by: str
) -> None:
    fill(tmp_path)
    monkeypatch.setattr(limits, limit, value)
    with open_workspace(tmp_path, ()) as workspace:
        result = call(workspace, "fs.search", query="needle")
        assert (result["truncated"], result["stopped_by"]) == (True, stopped_by)


def test_matches_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("x\n" * 10)
    with open_workspace(tmp_path, ()) as workspace:
        for regex in (False, True):
            some = call(workspace, "fs.search", query="x", max_matches=3, regex=regex)
            assert (len(some["matches"]), some["stopped_by"]) == (3, "matches")
            assert call(workspace, "fs.search", query="x", max_matches=10, regex=regex)["stopped_by"] is None
        monkeypatch.setattr(limits, "MAX_SEARCH_FILE_BYTES", 4)
        assert call(workspace, "fs.search", query="x")["files_skipped"] == 1


def test_refusals(tmp_path: Path) -> None:
    fill(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    cancelled = threading.Event()
    cancelled.set()
    with open_workspace(tmp_path, ()) as workspace:
        for arguments in (
            {"query": "("},
            {"query": "a{2,1}"},
        ):
            assert refused(workspace, "fs.search", regex=True, **arguments) == "workspace.bad_pattern"
        assert refused(workspace, "fs.search", query="a\nb") == "workspace.bad_pattern"
        assert refused(workspace, "fs.search", query="a", glob="../*") == "workspace.bad_pattern"
        assert refused(workspace, "fs.search", query="a", path="fifo") == "workspace.not_regular"
        assert refused(workspace, "fs.search", query="a", path="nope") == "workspace.not_found"
        assert refused(workspace, "fs.search", cancelled, query="a") == "workspace.cancelled"
        assert refused(workspace, "fs.search", cancelled, query="a", regex=True) == "workspace.cancelled"


def test_a_pattern_that_kills_its_process_is_refused_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("a" * 60)
    monkeypatch.setattr("palyra.executors.files.query.REGEX_CPU_SECONDS", 1)
    monkeypatch.setattr(limits, "SEARCH_SECONDS", 3600.0)
    with open_workspace(tmp_path, ()) as workspace:
        assert refused(workspace, "fs.search", query="(a|a)+b", regex=True) == "workspace.bad_pattern"
