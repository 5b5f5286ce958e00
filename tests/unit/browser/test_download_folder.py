"""One session's download folders on a real disk."""

import asyncio
import hashlib
import os
import stat
from pathlib import Path

import pytest

from fakes.download_harness import DownloadHarness
from palyra.browser.domain.download import (
    MAX_REFUSALS_KEPT,
    DownloadChanged,
    DownloadRefused,
    DownloadsUnusable,
    Folder,
    NoSuchDownload,
    NotReleasable,
    Quarantined,
    Reason,
)
from palyra.browser.tabs.download_folder import Announced


@pytest.fixture
def harness(tmp_path: Path) -> DownloadHarness:
    return DownloadHarness(
        tmp_path, max_download_bytes=1_000, max_session_download_bytes=3_000, max_session_downloads=5
    )


def test_an_honest_file_is_kept_under_its_id_and_served(harness: DownloadHarness) -> None:
    record = harness.download("orders.csv", b"a,b\n1,2\n", "text/csv")
    assert (record.folder, record.reasons, record.name) == (Folder.ALLOWLIST, (), "orders.csv")
    assert harness.session.read(record.id) == b"a,b\n1,2\n"
    assert record.digest == hashlib.sha256(b"a,b\n1,2\n").hexdigest()
    assert harness.files() == {"allowlist": [record.id], "quarantine": []}
    assert list(harness.incoming.iterdir()) == []


def test_only_the_daemon_can_enter(harness: DownloadHarness) -> None:
    record = harness.download("a.txt", b"hello")
    for place in (harness.root, harness.root / "allowlist", harness.root / "quarantine"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((harness.root / "allowlist" / record.id).stat().st_mode) == 0o600


def test_a_folder_open_to_others_is_refused(harness: DownloadHarness) -> None:
    os.chmod(harness.root / "quarantine", 0o755)
    with pytest.raises(DownloadsUnusable):
        harness.opened()


def test_quarantined_content_is_not_served_until_released(harness: DownloadHarness) -> None:
    record = harness.download("page.txt", b"<html>hello", "text/plain")
    assert record.folder is Folder.QUARANTINE
    with pytest.raises(Quarantined):
        harness.session.read(record.id)
    released = harness.session.release(record.id, "user:operator")
    assert (released.released_by, released.digest, released.reasons) == (
        "user:operator",
        record.digest,
        record.reasons,
    )
    assert harness.session.read(record.id) == b"<html>hello"
    assert harness.files() == {"allowlist": [record.id], "quarantine": []}
    assert harness.opened().records() == [released]
    with pytest.raises(NotReleasable):
        harness.session.release(record.id, "user:operator")


def test_a_changed_file_is_neither_served_nor_released(harness: DownloadHarness) -> None:
    good, bad = harness.download("a.txt", b"hello"), harness.download("b.txt", b"#!/bin/sh")
    (harness.root / "allowlist" / good.id).write_bytes(b"other")
    (harness.root / "quarantine" / bad.id).write_bytes(b"other")
    with pytest.raises(DownloadChanged):
        harness.session.read(good.id)
    with pytest.raises(DownloadChanged):
        harness.session.release(bad.id, "user:operator")
    os.unlink(harness.root / "allowlist" / good.id)
    os.symlink("/etc/hostname", harness.root / "allowlist" / good.id)
    with pytest.raises(DownloadChanged):
        harness.session.read(good.id)


def test_deleting_takes_file_and_record_and_gives_no_budget_back(harness: DownloadHarness) -> None:
    record = harness.download("a.txt", b"x" * 900)
    assert harness.session.delete(record.id) == record
    assert harness.files() == {"allowlist": [], "quarantine": []}
    assert harness.session.bytes_kept == 900
    with pytest.raises(NoSuchDownload):
        harness.session.read(record.id)


def test_a_part_is_kept_cut_and_not_released(harness: DownloadHarness) -> None:
    record = harness.download("a.txt", b"x" * 5_000, complete=False)
    assert (record.size, record.complete) == (1_000, False)
    assert record.reasons == (Reason.TOO_LARGE, Reason.INCOMPLETE)
    with pytest.raises(NotReleasable):
        harness.session.release(record.id, "user:operator")


def test_a_file_the_browser_calls_complete_is_still_measured(harness: DownloadHarness) -> None:
    assert Reason.TOO_LARGE in harness.download("a.txt", b"x" * 1_001, complete=True).reasons
    assert harness.download("a.txt", b"x" * 1_000, complete=True).reasons == ()


def test_quota_of_bytes(harness: DownloadHarness) -> None:
    for _ in range(3):
        harness.download("a.txt", b"x" * 1_000)
    refused = harness.download("a.txt", b"x")
    assert (refused.folder, refused.reasons) == (Folder.REFUSED, (Reason.BYTES_SPENT,))
    assert len(harness.files()["allowlist"]) == 3
    assert list(harness.incoming.iterdir()) == []


def test_quota_of_files_counts_quarantined_and_deleted_ones(harness: DownloadHarness) -> None:
    for number in range(5):
        record = harness.download("a.txt" if number % 2 else "a.exe", b"x")
        if number % 2:
            harness.session.delete(record.id)
    with pytest.raises(DownloadRefused) as refusal:
        harness.begin()
    assert refusal.value.details["reason"] == Reason.FILES_SPENT


def test_a_declared_length_above_the_limit_is_refused_before_it_arrives(harness: DownloadHarness) -> None:
    with pytest.raises(DownloadRefused):
        harness.begin(length=1_001)
    assert harness.session.records()[-1].reasons == (Reason.TOO_LARGE,)


def test_refusals_are_counted_and_not_hoarded(harness: DownloadHarness) -> None:
    for _ in range(MAX_REFUSALS_KEPT + 9):
        with pytest.raises(DownloadRefused):
            harness.begin(length=1_001)
    assert len(harness.session.records()) == MAX_REFUSALS_KEPT
    assert harness.session.refused == MAX_REFUSALS_KEPT + 9


@pytest.mark.parametrize("guid", ["../../etc/passwd", "", "a/b", ".", "x" * 65, "abcdefgh\n"])
def test_a_guid_is_never_a_path(harness: DownloadHarness, guid: str) -> None:
    with pytest.raises(DownloadRefused):
        harness.session.begin(Announced(guid=guid, suggested_name="a.txt", source=""))
    with pytest.raises(NoSuchDownload):
        harness.session.finish(guid, complete=True)


async def test_a_growing_file_is_stopped_once(harness: DownloadHarness) -> None:
    guid, small = harness.begin(), harness.begin()
    stopped: list[str] = []
    seen = asyncio.Event()

    async def stop(guid: str) -> None:
        stopped.append(guid)
        seen.set()

    task = asyncio.create_task(harness.session.watch(stop))
    (harness.incoming / small).write_bytes(b"x" * 1_000)
    with open(harness.incoming / guid, "wb") as file:
        while not seen.is_set():
            file.write(b"x" * 100)
            file.flush()
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stopped[0] == guid
    assert harness.session.finish(guid, complete=False).size == 1_000


def test_several_small_files_together_are_stopped(harness: DownloadHarness) -> None:
    guids = [harness.begin() for _ in range(4)]
    for guid in guids:
        (harness.incoming / guid).write_bytes(b"x" * 750)
    assert harness.session.find_overgrown() == []
    (harness.incoming / guids[0]).write_bytes(b"x" * 751)
    assert harness.session.find_overgrown() == guids


def test_a_new_life_finds_what_was_kept_and_removes_halves(harness: DownloadHarness) -> None:
    kept, lost = harness.download("a.txt", b"hello"), harness.download("b.txt", b"gone")
    os.unlink(harness.root / "allowlist" / lost.id)
    (harness.root / "quarantine" / "stray").write_bytes(b"no record")
    again = harness.opened()
    assert again.records() == [kept]
    assert (again.files_kept, again.bytes_kept) == (1, 5)
    assert sorted(path.name for path in harness.root.rglob("*") if path.is_file()) == [kept.id, f"{kept.id}.json"]


def test_a_browsers_folder_held_by_a_descriptor(harness: DownloadHarness) -> None:
    """As that of a running browser is known."""
    held = os.open(harness.incoming, os.O_RDONLY | os.O_DIRECTORY)
    harness.incoming = Path(f"/proc/{os.getpid()}/fd/{held}")
    harness.session = harness.opened()
    record = harness.download("a.txt", b"hello")
    assert harness.session.read(record.id) == b"hello"
    assert os.listdir(held) == []
    os.close(held)


def test_a_file_that_is_not_whole_yet_has_another_name_and_is_watched_and_taken_by_it(tmp_path: Path) -> None:
    """Chromium's own way of naming what it still writes."""
    harness = DownloadHarness(tmp_path, max_download_bytes=10)
    guid = harness.begin("a.txt", "text/plain")
    part = harness.incoming / f"{guid}.crdownload"
    part.write_bytes(b"x" * 11)
    assert harness.session.find_overgrown() == [guid]
    record = harness.session.finish(guid, complete=False)
    assert (record.folder, record.size) == (Folder.QUARANTINE, 10) and not part.exists()


def test_what_was_refused_leaves_nothing_and_nothing_else_goes_with_it(tmp_path: Path) -> None:
    harness = DownloadHarness(tmp_path)
    for name in ("a" * 32, "a" * 32 + ".crdownload", "b" * 32):
        (harness.incoming / name).write_bytes(b"x")
    for name in ("a" * 32, "../session", "missing-one"):
        harness.session.discard(name)
    assert [path.name for path in harness.incoming.iterdir()] == ["b" * 32]
