"""One session's download folders on a real disk."""

import asyncio
import hashlib
import os
import stat
from pathlib import Path

import pytest

from fakes.download_scene import DownloadScene
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
def scene(tmp_path: Path) -> DownloadScene:
    return DownloadScene(tmp_path, max_download_bytes=1_000, max_session_download_bytes=3_000, max_session_downloads=5)


def test_an_honest_file_is_kept_under_its_id_and_served(scene: DownloadScene) -> None:
    record = scene.download("orders.csv", b"a,b\n1,2\n", "text/csv")
    assert (record.folder, record.reasons, record.name) == (Folder.ALLOWLIST, (), "orders.csv")
    assert scene.session.read(record.id) == b"a,b\n1,2\n"
    assert record.digest == hashlib.sha256(b"a,b\n1,2\n").hexdigest()
    assert scene.files() == {"allowlist": [record.id], "quarantine": []}
    assert list(scene.incoming.iterdir()) == []


def test_only_the_daemon_can_enter(scene: DownloadScene) -> None:
    record = scene.download("a.txt", b"hello")
    for place in (scene.root, scene.root / "allowlist", scene.root / "quarantine"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((scene.root / "allowlist" / record.id).stat().st_mode) == 0o600


def test_a_folder_open_to_others_is_refused(scene: DownloadScene) -> None:
    os.chmod(scene.root / "quarantine", 0o755)
    with pytest.raises(DownloadsUnusable):
        scene.opened()


def test_quarantined_content_is_not_served_until_released(scene: DownloadScene) -> None:
    record = scene.download("page.txt", b"<html>hello", "text/plain")
    assert record.folder is Folder.QUARANTINE
    with pytest.raises(Quarantined):
        scene.session.read(record.id)
    released = scene.session.release(record.id, "user:operator")
    assert (released.released_by, released.digest, released.reasons) == (
        "user:operator",
        record.digest,
        record.reasons,
    )
    assert scene.session.read(record.id) == b"<html>hello"
    assert scene.files() == {"allowlist": [record.id], "quarantine": []}
    assert scene.opened().records() == [released]
    with pytest.raises(NotReleasable):
        scene.session.release(record.id, "user:operator")


def test_a_changed_file_is_neither_served_nor_released(scene: DownloadScene) -> None:
    good, bad = scene.download("a.txt", b"hello"), scene.download("b.txt", b"#!/bin/sh")
    (scene.root / "allowlist" / good.id).write_bytes(b"other")
    (scene.root / "quarantine" / bad.id).write_bytes(b"other")
    with pytest.raises(DownloadChanged):
        scene.session.read(good.id)
    with pytest.raises(DownloadChanged):
        scene.session.release(bad.id, "user:operator")
    os.unlink(scene.root / "allowlist" / good.id)
    os.symlink("/etc/hostname", scene.root / "allowlist" / good.id)
    with pytest.raises(DownloadChanged):
        scene.session.read(good.id)


def test_deleting_takes_file_and_record_and_gives_no_budget_back(scene: DownloadScene) -> None:
    record = scene.download("a.txt", b"x" * 900)
    assert scene.session.delete(record.id) == record
    assert scene.files() == {"allowlist": [], "quarantine": []}
    assert scene.session.bytes_kept == 900
    with pytest.raises(NoSuchDownload):
        scene.session.read(record.id)


def test_a_part_is_kept_cut_and_not_released(scene: DownloadScene) -> None:
    record = scene.download("a.txt", b"x" * 5_000, complete=False)
    assert (record.size, record.complete) == (1_000, False)
    assert record.reasons == (Reason.TOO_LARGE, Reason.INCOMPLETE)
    with pytest.raises(NotReleasable):
        scene.session.release(record.id, "user:operator")


def test_a_file_the_browser_calls_complete_is_still_measured(scene: DownloadScene) -> None:
    assert Reason.TOO_LARGE in scene.download("a.txt", b"x" * 1_001, complete=True).reasons
    assert scene.download("a.txt", b"x" * 1_000, complete=True).reasons == ()


def test_quota_of_bytes(scene: DownloadScene) -> None:
    for _ in range(3):
        scene.download("a.txt", b"x" * 1_000)
    refused = scene.download("a.txt", b"x")
    assert (refused.folder, refused.reasons) == (Folder.REFUSED, (Reason.BYTES_SPENT,))
    assert len(scene.files()["allowlist"]) == 3
    assert list(scene.incoming.iterdir()) == []


def test_quota_of_files_counts_quarantined_and_deleted_ones(scene: DownloadScene) -> None:
    for number in range(5):
        record = scene.download("a.txt" if number % 2 else "a.exe", b"x")
        if number % 2:
            scene.session.delete(record.id)
    with pytest.raises(DownloadRefused) as refusal:
        scene.begin()
    assert refusal.value.details["reason"] == Reason.FILES_SPENT


def test_a_declared_length_above_the_limit_is_refused_before_it_arrives(scene: DownloadScene) -> None:
    with pytest.raises(DownloadRefused):
        scene.begin(length=1_001)
    assert scene.session.records()[-1].reasons == (Reason.TOO_LARGE,)


def test_refusals_are_counted_and_not_hoarded(scene: DownloadScene) -> None:
    for _ in range(MAX_REFUSALS_KEPT + 9):
        with pytest.raises(DownloadRefused):
            scene.begin(length=1_001)
    assert len(scene.session.records()) == MAX_REFUSALS_KEPT
    assert scene.session.refused == MAX_REFUSALS_KEPT + 9


@pytest.mark.parametrize("guid", ["../../etc/passwd", "", "a/b", ".", "x" * 65, "abcdefgh\n"])
def test_a_guid_is_never_a_path(scene: DownloadScene, guid: str) -> None:
    with pytest.raises(DownloadRefused):
        scene.session.begin(Announced(guid=guid, suggested_name="a.txt", source=""))
    with pytest.raises(NoSuchDownload):
        scene.session.finish(guid, complete=True)


async def test_a_growing_file_is_stopped_once(scene: DownloadScene) -> None:
    guid, small = scene.begin(), scene.begin()
    stopped: list[str] = []
    seen = asyncio.Event()

    async def stop(guid: str) -> None:
        stopped.append(guid)
        seen.set()

    task = asyncio.create_task(scene.session.watch(stop))
    (scene.incoming / small).write_bytes(b"x" * 1_000)
    with open(scene.incoming / guid, "wb") as file:
        while not seen.is_set():
            file.write(b"x" * 100)
            file.flush()
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stopped[0] == guid
    assert scene.session.finish(guid, complete=False).size == 1_000


def test_several_small_files_together_are_stopped(scene: DownloadScene) -> None:
    guids = [scene.begin() for _ in range(4)]
    for guid in guids:
        (scene.incoming / guid).write_bytes(b"x" * 750)
    assert scene.session.overgrown() == []
    (scene.incoming / guids[0]).write_bytes(b"x" * 751)
    assert scene.session.overgrown() == guids


def test_a_new_life_finds_what_was_kept_and_removes_halves(scene: DownloadScene) -> None:
    kept, lost = scene.download("a.txt", b"hello"), scene.download("b.txt", b"gone")
    os.unlink(scene.root / "allowlist" / lost.id)
    (scene.root / "quarantine" / "stray").write_bytes(b"no record")
    again = scene.opened()
    assert again.records() == [kept]
    assert (again.files_kept, again.bytes_kept) == (1, 5)
    assert sorted(path.name for path in scene.root.rglob("*") if path.is_file()) == [kept.id, f"{kept.id}.json"]


def test_a_browsers_folder_held_by_a_descriptor(scene: DownloadScene) -> None:
    """As that of a running browser is known."""
    held = os.open(scene.incoming, os.O_RDONLY | os.O_DIRECTORY)
    scene.incoming = Path(f"/proc/{os.getpid()}/fd/{held}")
    scene.session = scene.opened()
    record = scene.download("a.txt", b"hello")
    assert scene.session.read(record.id) == b"hello"
    assert os.listdir(held) == []
    os.close(held)


def test_a_file_that_is_not_whole_yet_has_another_name_and_is_watched_and_taken_by_it(tmp_path: Path) -> None:
    """Chromium's own way of naming what it still writes."""
    scene = DownloadScene(tmp_path, max_download_bytes=10)
    guid = scene.begin("a.txt", "text/plain")
    part = scene.incoming / f"{guid}.crdownload"
    part.write_bytes(b"x" * 11)
    assert scene.session.overgrown() == [guid]
    record = scene.session.finish(guid, complete=False)
    assert (record.folder, record.size) == (Folder.QUARANTINE, 10) and not part.exists()


def test_what_was_refused_leaves_nothing_and_nothing_else_goes_with_it(tmp_path: Path) -> None:
    scene = DownloadScene(tmp_path)
    for name in ("a" * 32, "a" * 32 + ".crdownload", "b" * 32):
        (scene.incoming / name).write_bytes(b"x")
    for name in ("a" * 32, "../session", "missing-one"):
        scene.session.discard(name)
    assert [path.name for path in scene.incoming.iterdir()] == ["b" * 32]
