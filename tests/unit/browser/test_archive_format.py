"""One tree, one archive; and archives that want to be somewhere else are refused."""

import io
import struct
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.browser.profiles import archive as archive_format
from palyra.browser.profiles.archive import (
    MAGIC,
    MAX_DEPTH,
    ArchiveTooLarge,
    Entry,
    MalformedArchive,
    read_archive,
    write_archive,
)

names = st.binary(min_size=1, max_size=8).filter(lambda name: name not in (b".", b"..") and not {0, 47} & set(name))


def raw(*entries: tuple[bytes, bytes, bytes]) -> bytes:
    """An archive as an attacker writes it, without a look at what it says."""
    parts = [struct.pack(">cHI", kind, len(path), len(content)) + path + content for kind, path, content in entries]
    return MAGIC + b"".join(parts)


@given(st.dictionaries(names, st.dictionaries(names, st.binary(max_size=20), max_size=4), max_size=4), st.randoms())
def test_what_was_written_is_read_and_order_does_not_matter(tree: dict[bytes, dict[bytes, bytes]], random) -> None:
    entries = [Entry(folder) for folder in tree]
    entries += [Entry(folder + b"/" + name, data) for folder, files in tree.items() for name, data in files.items()]
    archive = write_archive(entries)
    assert sorted(read_archive(archive), key=lambda each: each.path) == sorted(entries, key=lambda each: each.path)
    random.shuffle(entries)
    assert write_archive(entries) == archive


def test_an_empty_tree() -> None:
    assert read_archive(write_archive([])) == []


@pytest.mark.parametrize(
    "path",
    [b"/etc/passwd", b"../x", b"a/../x", b"..", b".", b"a/.", b"", b"a//b", b"a/", b"/", b"a\0b", b"./a"],
)
def test_paths_that_lead_elsewhere(path: bytes) -> None:
    for kind in (b"F", b"D"):
        with pytest.raises(MalformedArchive):
            read_archive(raw((b"D", b"a", b""), (kind, path, b"")))
        with pytest.raises(MalformedArchive):
            read_archive(raw((kind, path, b"")))


@pytest.mark.parametrize("kind", [b"L", b"H", b"C", b"B", b"P", b"S", b"f", b"\0"])
def test_links_devices_and_pipes_cannot_be_said(kind: bytes) -> None:
    with pytest.raises(MalformedArchive):
        read_archive(raw((kind, b"a", b"/etc/passwd")))


@pytest.mark.parametrize(
    "entries",
    [
        [(b"F", b"b", b""), (b"F", b"a", b"")],
        [(b"F", b"a", b"1"), (b"F", b"a", b"2")],
        [(b"F", b"a", b""), (b"F", b"a/b", b"")],
        [(b"F", b"a/b", b"")],
        [(b"D", b"a", b"content")],
    ],
    ids=["unsorted", "twice", "file as folder", "no folder", "folder with content"],
)
def test_archives_that_contradict_themselves(entries: list[tuple[bytes, bytes, bytes]]) -> None:
    with pytest.raises(MalformedArchive):
        read_archive(raw(*entries))


def test_other_formats_and_cut_ones() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    good = write_archive([Entry(b"a"), Entry(b"a/b", b"content")])
    for data in (buffer.getvalue(), b"", MAGIC[:-1], *(good[:cut] for cut in range(len(MAGIC) + 1, len(good)))):
        try:
            assert read_archive(data) == [Entry(b"a")]
        except MalformedArchive:
            continue


def test_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MalformedArchive):
        read_archive(MAGIC + struct.pack(">cHI", b"F", 1, 2**32 - 1) + b"a")
    with pytest.raises(ArchiveTooLarge):
        read_archive(raw((b"F", b"/".join([b"a"] * (MAX_DEPTH + 1)), b"")))
    with pytest.raises(ArchiveTooLarge):
        read_archive(raw((b"F", b"a" * 256, b"")))
    monkeypatch.setattr(archive_format, "MAX_ENTRIES", 3)
    with pytest.raises(ArchiveTooLarge):
        read_archive(raw(*((b"F", name, b"") for name in (b"a", b"b", b"c", b"d"))))
    monkeypatch.setattr(archive_format, "MAX_ARCHIVE_BYTES", 100)
    with pytest.raises(ArchiveTooLarge):
        read_archive(raw((b"F", b"a", bytes(100))))
    with pytest.raises(ArchiveTooLarge):
        write_archive([Entry(b"a", bytes(100))])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        entries = read_archive(MAGIC + data)
    except (MalformedArchive, ArchiveTooLarge):
        return
    assert write_archive(entries) == MAGIC + data
