import hashlib
from pathlib import Path

from fakes.workspace_harness import call, refused
from palyra.workspace.root import open_workspace

DIFF = "--- a/d/f\n+++ b/d/f\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"


def test_applies_diffs_and_edits(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("one\ntwo\n")
    with open_workspace(tmp_path, ()) as workspace:
        done = call(workspace, "fs.patch", path="d/f", diff=DIFF)
        assert done == {
            "path": "d/f",
            "bytes": 8,
            "sha256": hashlib.sha256(b"one\nTWO\n").hexdigest(),
            "applied": 1,
            "kind": "hunks",
        }
        edits = [{"old": "one", "new": "1"}, {"old": "TWO", "new": "2"}]
        done = call(workspace, "fs.patch", path="d/f", edits=edits, expected_sha256=done["sha256"])
        assert (done["applied"], done["kind"]) == (2, "edits")
        assert (tmp_path / "d" / "f").read_text() == "1\n2\n"


def test_refusals_leave_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\ntwo\n")
    (tmp_path / "link").symlink_to("f")
    edits = [{"old": "one", "new": "1"}]
    create = "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n"
    delete = "--- a/f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n"
    with open_workspace(tmp_path, ("*.lock",)) as workspace:
        for code, arguments in (
            ("patch_not_allowed", {"path": "f", "diff": DIFF}),
            ("patch_not_allowed", {"path": "f", "diff": create}),
            ("patch_not_allowed", {"path": "f", "diff": delete}),
            ("patch_malformed", {"path": "f", "diff": "nonsense"}),
            ("patch_mismatch", {"path": "f", "diff": "@@ -1 +1 @@\n-two\n+2\n"}),
            ("patch_mismatch", {"path": "f", "edits": [*edits, {"old": "nope", "new": ""}]}),
            ("changed", {"path": "f", "edits": edits, "expected_sha256": "0" * 64}),
            ("not_found", {"path": "g", "edits": edits}),
            ("symlink", {"path": "link", "edits": edits}),
            ("protected_name", {"path": "a.lock", "edits": edits}),
            ("bad_argument", {"path": "f"}),
            ("bad_argument", {"path": "f", "edits": edits, "diff": DIFF}),
        ):
            assert refused(workspace, "fs.patch", **arguments) == f"workspace.{code}", arguments
    assert (tmp_path / "f").read_text() == "one\ntwo\n"
    assert (tmp_path / "link").is_symlink()
