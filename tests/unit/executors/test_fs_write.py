import hashlib
import os
from pathlib import Path

import pytest

from fakes.workspace_harness import call, refused
from palyra.executors.files import operations
from palyra.workspace.root import open_workspace


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_creates_overwrites_and_appends(tmp_path: Path) -> None:
    with open_workspace(tmp_path, ()) as workspace:
        made = call(workspace, "fs.write", path="./f", content="one")
        assert made == {"path": "f", "bytes": 3, "sha256": sha256("one"), "created": True}
        assert refused(workspace, "fs.write", path="f", content="two") == "workspace.exists"
        assert (tmp_path / "f").read_text() == "one"
        assert not call(workspace, "fs.write", path="f", content="two", mode="overwrite")["created"]
        added = call(workspace, "fs.write", path="f", content="+3", mode="append")
        assert (added["bytes"], added["sha256"]) == (5, sha256("two+3"))
        assert call(workspace, "fs.write", path="g", content="", mode="append")["created"]
        call(workspace, "fs.write", path="h", content="AP8=", encoding="base64")
        assert (tmp_path / "h").read_bytes() == b"\x00\xff"


def test_parents_are_made_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with open_workspace(tmp_path, ()) as workspace:
        assert refused(workspace, "fs.write", path="a/b/c", content="") == "workspace.not_found"
        assert not (tmp_path / "a").exists()
        call(workspace, "fs.write", path="a/b/c", content="", create_parents=True)
        call(workspace, "fs.write", path="link/x/y", content="", create_parents=True)
        assert (tmp_path / "real" / "x" / "y").exists()
        code = refused(workspace, "fs.write", path="a/b/c/d", content="", create_parents=True)
        assert code == "workspace.not_directory"


def test_the_expected_digest_guards_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    with open_workspace(tmp_path, ()) as workspace:
        for path in ("f", "missing"):
            arguments = {"path": path, "content": "new", "mode": "overwrite", "expected_sha256": sha256("other")}
            assert refused(workspace, "fs.write", **arguments) == "workspace.changed"
        assert (tmp_path / "f").read_text() == "old"
        call(workspace, "fs.write", path="f", content="new", mode="overwrite", expected_sha256=sha256("old"))
        assert os.listdir(tmp_path) == ["f"]


@pytest.mark.promise("P-limits")
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    with open_workspace(tmp_path, ()) as workspace:
        assert refused(workspace, "fs.write", path="d", content="", mode="overwrite") == "workspace.not_regular"
        assert refused(workspace, "fs.write", path=".", content="") == "workspace.not_regular"
        for content in ("A", "A===", "é", "AA==\n!"):
            code = refused(workspace, "fs.write", path="f", content=content, encoding="base64")
            assert code == "workspace.bad_argument"
        assert refused(workspace, "fs.write", path="f", content="\ud800") == "workspace.bad_argument"
        monkeypatch.setattr(operations, "MAX_FILE_BYTES", 4)
        assert refused(workspace, "fs.write", path="f", content="12345") == "workspace.file_too_large"
        call(workspace, "fs.write", path="f", content="123")
        assert refused(workspace, "fs.write", path="f", content="45", mode="append") == "workspace.file_too_large"
    with open_workspace(tmp_path, (), read_only=True) as workspace:
        assert refused(workspace, "fs.write", path="new", content="") == "workspace.read_only"
        assert refused(workspace, "fs.patch", path="f", edits=[{"old": "1", "new": "2"}]) == "workspace.read_only"
        assert call(workspace, "fs.read", path="f")["content"] == "123"
