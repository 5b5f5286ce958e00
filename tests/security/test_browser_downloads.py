"""Twenty downloads, honest and hostile, and what a taken-over browser leaves in its folder instead of a file.

Each is performed on real files through the folders of a session, and must end in the right one for the right reason.
"""

import os
import socket
from pathlib import Path

import pytest

from fakes.download_harness import DownloadHarness
from fakes.download_set import FILES, PROGRAM
from palyra.browser.domain.download import DownloadRefused, Folder, Quarantined, Reason
from palyra.limits import MIB

pytestmark = pytest.mark.promise("P-browser-approval")


def test_the_set_is_complete() -> None:
    assert len(FILES) == 20


def test_twenty_files_end_where_they_belong(tmp_path: Path) -> None:
    """In one session and in one run, so that no file hides behind another."""
    harness = DownloadHarness(tmp_path)
    expected: dict[str, list[str]] = {"allowlist": [], "quarantine": []}
    for what, (name, declared, content, shown, reasons) in FILES.items():
        record = harness.download(name, content, declared)
        folder = Folder.QUARANTINE if reasons else Folder.ALLOWLIST
        assert (what, record.folder, record.reasons, record.name) == (what, folder, reasons, shown)
        expected[folder].append(record.id)
        if reasons:
            with pytest.raises(Quarantined):
                harness.session.read(record.id)
        else:
            assert harness.session.read(record.id) == content
    assert harness.files() == {folder: sorted(ids) for folder, ids in expected.items()}
    # Nothing anywhere else: not beside the session, not in the browser's folder.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["incoming", "session"]
    assert list(harness.incoming.iterdir()) == []
    # No name of a file comes from the site, and the cut one is no longer than its limit.
    every = [path for path in harness.root.rglob("*") if path.is_file()]
    assert all(len(path.name.removesuffix(".json")) == 26 for path in every)
    assert max(path.stat().st_size for path in every) == 8 * MIB


@pytest.mark.parametrize("what", ["link", "link to a folder", "pipe", "socket", "folder", "second name", "nothing"])
def test_what_is_not_a_file_of_its_own_is_never_taken(tmp_path: Path, what: str) -> None:
    harness = DownloadHarness(tmp_path)
    secret = tmp_path / "secret.txt"
    secret.write_text("the daemon's own")
    guid = harness.begin("a.txt", "text/plain")
    place = harness.incoming / guid
    server = socket.socket(socket.AF_UNIX)
    match what:
        case "link":
            place.symlink_to(secret)
        case "link to a folder":
            place.symlink_to(tmp_path)
        case "pipe":
            os.mkfifo(place)
        case "socket":
            # By a short name: the address of a socket has few bytes.
            folder = os.open(place.parent, os.O_PATH)
            server.bind(f"/proc/self/fd/{folder}/{place.name}")
            os.close(folder)
        case "folder":
            place.mkdir()
        case "second name":
            os.link(secret, place)
    record = harness.session.finish(guid, complete=True)
    server.close()
    assert (record.folder, record.reasons) == (Folder.REFUSED, (Reason.NOT_A_FILE,))
    assert harness.files() == {"allowlist": [], "quarantine": []}
    assert secret.read_text() == "the daemon's own"


def test_the_browsers_folder_as_a_link_leads_nowhere(tmp_path: Path) -> None:
    harness = DownloadHarness(tmp_path)
    guid = harness.begin("a.txt")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / guid).write_text("the daemon's own")
    harness.incoming.rmdir()
    harness.incoming.symlink_to(elsewhere)
    assert harness.session.finish(guid, complete=True).folder is Folder.REFUSED
    assert (elsewhere / guid).read_text() == "the daemon's own"


def test_a_browser_that_goes_on_writing_changes_nothing_that_was_judged(tmp_path: Path) -> None:
    harness = DownloadHarness(tmp_path)
    guid = harness.begin("a.txt", "text/plain")
    with open(harness.incoming / guid, "w+b") as still_open:
        still_open.write(b"harmless")
        still_open.flush()
        record = harness.session.finish(guid, complete=True)
        still_open.seek(0)
        still_open.write(PROGRAM)
        still_open.flush()
    assert harness.session.read(record.id) == b"harmless"


def test_a_sparse_giant_costs_neither_memory_nor_disk(tmp_path: Path) -> None:
    harness = DownloadHarness(tmp_path, max_download_bytes=1_000)
    guid = harness.begin("a.txt")
    with open(harness.incoming / guid, "wb") as file:
        file.truncate(2**40)
    assert harness.session.find_overgrown() == [guid]
    record = harness.session.finish(guid, complete=False)
    assert record.size == 1_000
    assert Reason.TOO_LARGE in record.reasons


def test_a_flood_ends_at_the_quota(tmp_path: Path) -> None:
    harness = DownloadHarness(tmp_path, max_session_downloads=10)
    for _ in range(10):
        harness.download("a.txt", b"x")
    for _ in range(200):
        with pytest.raises(DownloadRefused):
            harness.begin("a.txt")
    assert len(harness.files()["allowlist"]) == 10
