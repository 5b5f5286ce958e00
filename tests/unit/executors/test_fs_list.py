import os
import threading
from pathlib import Path

import pytest

from fakes.workspace_harness import call, refused
from palyra.executors.files import operations
from palyra.workspace.root import open_workspace


def test_describes_entries(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("123")
    os.utime(tmp_path / "d" / "f", ns=(0, 1_700_000_000_123_456_789))
    (tmp_path / "d" / "l").symlink_to("/etc\n")
    with open_workspace(tmp_path, ()) as workspace:
        listed = call(workspace, "fs.list", path="d")
        assert listed["entries"][0] == {
            "name": "f",
            "escaped": False,
            "type": "file",
            "size": 3,
            "mtime": "2023-11-14T22:13:20.123Z",
        }
        assert listed["entries"][1]["target"] == "/etc\\x0a"
        assert (listed["path"], listed["truncated"], listed["unreadable"]) == ("d", False, 0)
        names = [entry["name"] for entry in call(workspace, "fs.list", recursive=True)["entries"]]
        assert names == ["d", "d/f", "d/l"]
        assert refused(workspace, "fs.list", path="d/f") == "workspace.not_directory"
        assert refused(workspace, "fs.list", path="x") == "workspace.not_found"


@pytest.mark.promise("P-limits")
def test_bounds_are_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"name{number}").write_text("")
    with open_workspace(tmp_path, ()) as workspace:
        some = call(workspace, "fs.list", max_entries=3)
        assert ([e["name"] for e in some["entries"]], some["truncated"]) == (["name0", "name1", "name2"], True)
        assert not call(workspace, "fs.list", max_entries=5)["truncated"]
        monkeypatch.setattr(operations, "MAX_LIST_TEXT_CHARS", 12)
        assert len(call(workspace, "fs.list")["entries"]) == 2


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-(2**40), "1000-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.000Z"), (2**40, "9999-12-31T23:59:59.000Z")],
)
def test_times_beyond_the_calendar_are_shown_at_its_edge(tmp_path: Path, seconds: int, shown: str) -> None:
    status = os.stat_result(list(os.stat(tmp_path)), {"st_mtime_ns": seconds * 1_000_000_000})
    assert operations._to_instant(status) == shown


def test_a_cancelled_listing_stops(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    cancelled = threading.Event()
    cancelled.set()
    with open_workspace(tmp_path, ()) as workspace:
        assert refused(workspace, "fs.list", cancelled) == "workspace.cancelled"
