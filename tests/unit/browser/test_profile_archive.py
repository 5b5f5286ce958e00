"""Data directories are packed without following anything, and unpacked into nothing else than an empty folder."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from palyra.browser.profiles import archive as profile_archive
from palyra.browser.profiles.archive import (
    MAX_DEPTH,
    ArchiveTooLarge,
    DirectoryUnusable,
    Entry,
    MalformedArchive,
    pack,
    read_archive,
    unpack,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "Default" / "Local Storage").mkdir(parents=True)
    (folder / "Default" / "Cookies").write_bytes(b"cookies")
    (folder / "Default" / "Local Storage" / "000003.log").write_bytes(b"\x00\xff" * 100)
    (folder / "Local State").write_bytes(b"{}")
    (folder / "Empty").mkdir()
    return folder


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_there_and_back(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    unpack(pack(source), target)
    assert tree(target) == tree(source)
    assert {path.stat().st_mode & 0o777 for path in target.rglob("*")} == {0o700, 0o600}


def test_the_same_tree_gives_the_same_archive_whatever_its_times_and_modes(source: Path) -> None:
    before = pack(source)
    os.utime(source / "Local State", (1, 1))
    os.chmod(source / "Local State", 0o640)
    (source / "Empty").rmdir()
    (source / "Empty").mkdir()
    assert pack(source) == before


def test_caches_stay_behind_and_what_sites_cached_themselves_comes_along(source: Path) -> None:
    for name in ("Default/Cache/f", "Default/Code Cache/f", "GPUCache/f", "Default/Service Worker/CacheStorage/f"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"x")
    paths = [entry.path for entry in read_archive(pack(source))]
    assert b"Default/Service Worker/CacheStorage/f" in paths
    assert not [path for path in paths if b"Cache/f" in path or b"GPUCache" in path]


def test_what_is_no_file_of_its_own_is_left_out(source: Path, tmp_path: Path) -> None:
    before = pack(source)
    secret = tmp_path / "secret"
    secret.write_text("the daemon's own")
    (source / "SingletonLock").symlink_to("host-123")
    (source / "Default" / "out").symlink_to(tmp_path)
    (source / "Default" / "leak").symlink_to(secret)
    os.link(secret, source / "Default" / "second name")
    os.mkfifo(source / "Default" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
        packed = pack(source)
    assert packed == before


def test_the_directory_itself_as_a_link(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(DirectoryUnusable):
        pack(tmp_path / "link")
    with pytest.raises(DirectoryUnusable):
        unpack(pack(source), tmp_path / "link")


def test_a_directory_beyond_the_limits(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(source / "sparse", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(ArchiveTooLarge):
        pack(source)
    (source / "sparse").unlink()
    deep = source.joinpath(*["d"] * (MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    with pytest.raises(ArchiveTooLarge):
        pack(source)
    shutil.rmtree(source / "d")
    monkeypatch.setattr(profile_archive, "MAX_ENTRIES", 5)
    with pytest.raises(ArchiveTooLarge):
        pack(source)


def test_only_into_an_empty_folder(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "there").write_text("before")
    with pytest.raises(DirectoryUnusable):
        unpack(pack(source), target)
    assert tree(target) == {"there": b"before"}


def test_a_hostile_archive_leaves_no_trace(tmp_path: Path) -> None:
    """Good entries first, so that a careless reader would have written them already."""
    target = tmp_path / "target"
    target.mkdir()
    honest = Entry(b"a", b"1")
    for bad in (Entry(b"b/../../escaped", b"x"), Entry(b"/tmp/escaped", b"x")):
        archive = profile_archive.write_archive([honest])
        archive += profile_archive.write_archive([bad])[len(b"PALYRA-DIR/1\n") :]
        with pytest.raises(MalformedArchive):
            unpack(archive, target)
    assert tree(tmp_path) == {"target": None}


def test_folders_held_by_descriptors(source: Path, tmp_path: Path) -> None:
    """As those of a running browser are known."""
    target = tmp_path / "target"
    target.mkdir()
    held = [os.open(place, os.O_RDONLY | os.O_DIRECTORY) for place in (source, target)]
    one, two = (Path(f"/proc/{os.getpid()}/fd/{descriptor}") for descriptor in held)
    unpack(pack(one), two)
    for descriptor in held:
        os.close(descriptor)
    assert tree(target) == tree(source)
