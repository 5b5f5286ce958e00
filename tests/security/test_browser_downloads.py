"""Twenty downloads, honest and hostile, and what a taken-over browser leaves in its folder instead of a file.

Each is performed on real files through the folders of a session, and must end in the right one for the right reason.
"""

import io
import os
import socket
import zipfile
from pathlib import Path

import pytest

from fakes.download_scene import DownloadScene
from palyra.browser.download import Folder, Reason
from palyra.browser.download_record import DownloadRefused, Quarantined
from palyra.limits import MIB


def _jar() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Main-Class: Evil\n")
    return buffer.getvalue()


CSV = b"order,total\n1001,19.90\n"
PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\nstartxref\n9\n%%EOF\n"
PROGRAM = b"MZ\x90\x00\x03" + bytes(200)
ALLOWED: tuple[Reason, ...] = ()

# name suggested, type declared, content, name shown, reasons
FILES = {
    "honest csv": ("orders.csv", "text/csv; charset=utf-8", CSV, "orders.csv", ALLOWED),
    "honest pdf": ("invoice.pdf", "application/pdf", PDF, "invoice.pdf", ALLOWED),
    "honest json": ("data.json", "application/json", b'{"html": "<script>"}', "data.json", ALLOWED),
    "honest text, nothing declared": ("notes v1.2.txt", None, "Grüße\n".encode(), "notes v1.2.txt", ALLOWED),
    "honest csv declared as just a file": ("a.csv", "application/octet-stream", CSV, "a.csv", ALLOWED),
    "program as pdf": (
        "invoice.pdf",
        "application/pdf",
        PROGRAM,
        "invoice.pdf",
        (Reason.EXECUTABLE, Reason.CONTENT),
    ),
    "elf as text": (
        "notes.txt",
        "text/plain",
        b"\x7fELF\x02\x01\x01" + bytes(64),
        "notes.txt",
        (Reason.EXECUTABLE, Reason.CONTENT),
    ),
    "script as text": ("notes.txt", "text/plain", b"#!/bin/sh\nid\n", "notes.txt", (Reason.SCRIPT, Reason.CONTENT)),
    "html as text": (
        "notes.txt",
        "text/plain",
        b" \n<!DOCTYPE html><script>1</script>",
        "notes.txt",
        (Reason.MARKUP, Reason.CONTENT),
    ),
    "svg as csv": (
        "a.csv",
        "text/csv",
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='x()'/>",
        "a.csv",
        (Reason.MARKUP, Reason.CONTENT),
    ),
    "jar behind a pdf": ("invoice.pdf", "application/pdf", PDF + _jar(), "invoice.pdf", (Reason.POLYGLOT,)),
    "program by its honest name": (
        "setup.exe",
        "application/octet-stream",
        PROGRAM,
        "setup.exe",
        (Reason.EXECUTABLE, Reason.EXTENSION),
    ),
    "double extension, program last": (
        "bill.pdf.exe",
        "application/pdf",
        PDF,
        "bill.pdf.exe",
        (Reason.DOUBLE_EXTENSION, Reason.EXTENSION),
    ),
    "double extension, program first": (
        "bill.exe.pdf",
        "application/pdf",
        PDF,
        "bill.exe.pdf",
        (Reason.DOUBLE_EXTENSION,),
    ),
    "name that turns around": ("bill\u202efdp.txt", "text/plain", b"hello", "billfdp.txt", (Reason.MISLEADING_NAME,)),
    "csv declared as html": ("orders.csv", "text/html", CSV, "orders.csv", (Reason.DECLARED,)),
    "json that is none": ("data.json", "application/json", b"{not json", "data.json", (Reason.CONTENT,)),
    "traversal": ("../../../../etc/cron.d/job.txt", "text/plain", b"* * * * *", "job.txt", ALLOWED),
    "traversal the other way": (
        "..\\..\\Startup\\run.bat",
        "text/plain",
        b"@echo off\r\n",
        "run.bat",
        (Reason.SCRIPT, Reason.EXTENSION),
    ),
    "oversized": ("big.csv", "text/csv", b"1,2\n" * (2 * MIB + 1), "big.csv", (Reason.TOO_LARGE, Reason.INCOMPLETE)),
}


def test_the_set_is_complete() -> None:
    assert len(FILES) == 20


def test_twenty_files_end_where_they_belong(tmp_path: Path) -> None:
    """In one session and in one run, so that no file hides behind another."""
    scene = DownloadScene(tmp_path)
    expected: dict[str, list[str]] = {"allowlist": [], "quarantine": []}
    for what, (name, declared, content, shown, reasons) in FILES.items():
        record = scene.download(name, content, declared)
        folder = Folder.QUARANTINE if reasons else Folder.ALLOWLIST
        assert (what, record.folder, record.reasons, record.name) == (what, folder, reasons, shown)
        expected[folder].append(record.id)
        if reasons:
            with pytest.raises(Quarantined):
                scene.session.read(record.id)
        else:
            assert scene.session.read(record.id) == content
    assert scene.files() == {folder: sorted(ids) for folder, ids in expected.items()}
    # Nothing anywhere else: not beside the session, not in the browser's folder.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["incoming", "session"]
    assert list(scene.incoming.iterdir()) == []
    # No name of a file comes from the site, and the cut one is no longer than its limit.
    every = [path for path in scene.root.rglob("*") if path.is_file()]
    assert all(len(path.name.removesuffix(".json")) == 26 for path in every)
    assert max(path.stat().st_size for path in every) == 8 * MIB


@pytest.mark.parametrize("what", ["link", "link to a folder", "pipe", "socket", "folder", "second name", "nothing"])
def test_what_is_not_a_file_of_its_own_is_never_taken(tmp_path: Path, what: str) -> None:
    scene = DownloadScene(tmp_path)
    secret = tmp_path / "secret.txt"
    secret.write_text("the daemon's own")
    guid = scene.begin("a.txt", "text/plain")
    place = scene.incoming / guid
    server = socket.socket(socket.AF_UNIX)
    match what:
        case "link":
            place.symlink_to(secret)
        case "link to a folder":
            place.symlink_to(tmp_path)
        case "pipe":
            os.mkfifo(place)
        case "socket":
            server.bind(str(place))
        case "folder":
            place.mkdir()
        case "second name":
            os.link(secret, place)
    record = scene.session.finish(guid, complete=True)
    server.close()
    assert (record.folder, record.reasons) == (Folder.REFUSED, (Reason.NOT_A_FILE,))
    assert scene.files() == {"allowlist": [], "quarantine": []}
    assert secret.read_text() == "the daemon's own"


def test_the_browsers_folder_as_a_link_leads_nowhere(tmp_path: Path) -> None:
    scene = DownloadScene(tmp_path)
    guid = scene.begin("a.txt")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / guid).write_text("the daemon's own")
    scene.incoming.rmdir()
    scene.incoming.symlink_to(elsewhere)
    assert scene.session.finish(guid, complete=True).folder is Folder.REFUSED
    assert (elsewhere / guid).read_text() == "the daemon's own"


def test_a_browser_that_goes_on_writing_changes_nothing_that_was_judged(tmp_path: Path) -> None:
    scene = DownloadScene(tmp_path)
    guid = scene.begin("a.txt", "text/plain")
    with open(scene.incoming / guid, "w+b") as still_open:
        still_open.write(b"harmless")
        still_open.flush()
        record = scene.session.finish(guid, complete=True)
        still_open.seek(0)
        still_open.write(PROGRAM)
        still_open.flush()
    assert scene.session.read(record.id) == b"harmless"


def test_a_sparse_giant_costs_neither_memory_nor_disk(tmp_path: Path) -> None:
    scene = DownloadScene(tmp_path, max_download_bytes=1_000)
    guid = scene.begin("a.txt")
    with open(scene.incoming / guid, "wb") as file:
        file.truncate(2**40)
    assert scene.session.overgrown() == [guid]
    record = scene.session.finish(guid, complete=False)
    assert record.size == 1_000
    assert Reason.TOO_LARGE in record.reasons


def test_a_flood_ends_at_the_quota(tmp_path: Path) -> None:
    scene = DownloadScene(tmp_path, max_session_downloads=10)
    for _ in range(10):
        scene.download("a.txt", b"x")
    for _ in range(200):
        with pytest.raises(DownloadRefused):
            scene.begin("a.txt")
    assert len(scene.files()["allowlist"]) == 10
