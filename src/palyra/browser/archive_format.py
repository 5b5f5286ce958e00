"""The one archive that a set of files and folders has.

A format of our own, because the usual ones can say too much: here an entry is a folder or a file with its bytes, and
links, devices, owners, modes and times cannot be written down. Entries are sorted, so equal trees give equal archives,
and nothing is compressed, so an archive is as large as what comes out of it.

    "PALYRA-DIR/1\\n", then for each entry: kind (D or F), length of its path, length of its content, path, content
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from palyra.errors import LimitExceeded, Tampered
from palyra.limits import MIB

MAGIC: Final = b"PALYRA-DIR/1\n"
# The same as a stored state may have.
MAX_ARCHIVE_BYTES: Final = 64 * MIB
# A browser's data directory has some hundred.
MAX_ENTRIES: Final = 20_000
MAX_DEPTH: Final = 24
MAX_PATH_BYTES: Final = 1_024
MAX_NAME_BYTES: Final = 255
_ENTRY: Final = struct.Struct(">cHI")
_FOLDER: Final = b"D"
_FILE: Final = b"F"


class MalformedArchive(Tampered):
    code = "browser.archive_malformed"
    hint = "this is not an archive that Palyra wrote: reset the profile, and log in again"


class ArchiveTooLarge(LimitExceeded):
    code = "browser.archive_too_large"
    hint = "the state before this session was kept; clear the site data, or use another profile"


class Entry(msgspec.Struct, frozen=True):
    """``content`` is None for a folder. Paths are bytes with ``/`` between names, relative and without dots."""

    path: bytes
    content: bytes | None = None


def write_archive(entries: Iterable[Entry]) -> bytes:
    archive = bytearray(MAGIC)
    for entry in sorted(entries, key=lambda each: each.path.split(b"/")):
        kind = _FOLDER if entry.content is None else _FILE
        content = entry.content or b""
        if len(archive) + _ENTRY.size + len(entry.path) + len(content) > MAX_ARCHIVE_BYTES:
            raise ArchiveTooLarge(f"the archive would have more than {MAX_ARCHIVE_BYTES} bytes")
        archive += _ENTRY.pack(kind, len(entry.path), len(content)) + entry.path + content
    return bytes(archive)


def read_archive(raw: bytes) -> list[Entry]:
    """Everything is checked before the first entry is given out: half an archive is never unpacked."""
    if len(raw) > MAX_ARCHIVE_BYTES:
        raise ArchiveTooLarge(f"the archive has {len(raw)} bytes; at most {MAX_ARCHIVE_BYTES} are allowed")
    if not raw.startswith(MAGIC):
        raise MalformedArchive("this is no archive of a browser's data")
    entries: list[Entry] = []
    folders: set[tuple[bytes, ...]] = {()}
    last: list[bytes] = []
    for kind, path, content in _entries(raw):
        names = checked_path(path)
        if len(entries) == MAX_ENTRIES:
            raise ArchiveTooLarge(f"the archive has more than {MAX_ENTRIES} entries")
        if names <= last:
            raise MalformedArchive("the entries are not sorted, or one stands there twice")
        if tuple(names[:-1]) not in folders:
            raise MalformedArchive("an entry is in a folder that the archive does not have")
        if kind == _FOLDER:
            if content:
                raise MalformedArchive("a folder has content")
            folders.add(tuple(names))
        entries.append(Entry(path, None if kind == _FOLDER else content))
        last = names
    return entries


def checked_path(path: bytes) -> list[bytes]:
    """The names of a path that stays where it is put."""
    names = path.split(b"/")
    if len(path) > MAX_PATH_BYTES or len(names) > MAX_DEPTH or any(len(name) > MAX_NAME_BYTES for name in names):
        raise ArchiveTooLarge("a path is longer or deeper than a browser makes it")
    if any(name in (b"", b".", b"..") for name in names) or b"\0" in path:
        raise MalformedArchive("a path is absolute, has dots for names, or a zero byte")
    return names


def _entries(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    at = len(MAGIC)
    while at < len(raw):
        if len(raw) - at < _ENTRY.size:
            raise MalformedArchive("the archive is cut short")
        kind, path_bytes, content_bytes = _ENTRY.unpack_from(raw, at)
        at += _ENTRY.size
        end = at + path_bytes + content_bytes
        if kind not in (_FOLDER, _FILE):
            raise MalformedArchive("an entry is neither a folder nor a file")
        if end > len(raw):
            raise MalformedArchive("an entry is longer than the archive")
        yield kind, raw[at : at + path_bytes], raw[at + path_bytes : end]
        at = end
