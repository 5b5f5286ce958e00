"""The one archive that a set of files and folders has.

The usual formats can say too much. Here an entry is a folder or a file with its bytes; links, devices, owners, modes
and times cannot be written. Entries are sorted, so equal trees give equal archives. Nothing is compressed, so an
archive is as large as its content.

Format: "PALYRA-DIR/1\\n", then for each entry: kind (D or F), length of its path, length of its content, path,
content
"""

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.engine.browser_folders import open_folder
from palyra.errors import LimitExceeded, Tampered, Unavailable
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
    """Check the whole archive before the first entry is returned: half an archive is never unpacked."""
    if len(raw) > MAX_ARCHIVE_BYTES:
        raise ArchiveTooLarge(f"the archive has {len(raw)} bytes; at most {MAX_ARCHIVE_BYTES} are allowed")
    if not raw.startswith(MAGIC):
        raise MalformedArchive("this is not an archive of a browser's data")
    entries: list[Entry] = []
    folders: set[tuple[bytes, ...]] = {()}
    last: list[bytes] = []
    for kind, path, content in _entries(raw):
        names = check_path(path)
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


def check_path(path: bytes) -> list[bytes]:
    """Split a path into names, and refuse one that could lead outside."""
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


# A browser's data directory as an archive, and back.
#
# The directory was the browser's, which may have been taken over: nothing in it is followed, waited for or believed.
# Only folders and files with one name are packed (Chromium's own locks are links), without caches. The browser must
# have ended gracefully before: it writes cookies late.

# The browser makes these again. They would be most of the archive. By name, at any depth. `CacheStorage` is not among
# them: sites write it themselves.
CACHES: Final = frozenset(
    (
        b"Cache",
        b"Code Cache",
        b"GPUCache",
        b"DawnCache",
        b"DawnGraphiteCache",
        b"DawnWebGPUCache",
        b"GrShaderCache",
        b"GraphiteDawnCache",
        b"ShaderCache",
        b"ScriptCache",
        b"Crashpad",
        b"BrowserMetrics",
        b"component_crx_cache",
        b"blob_storage",
        b"Safe Browsing",
        b"optimization_guide_model_store",
    )
)
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class DirectoryUnusable(Unavailable):
    code = "browser.data_directory_unusable"
    hint = "check the space and the permissions where the browser's data directories are"


def pack(directory: Path) -> bytes:
    walk = _Walk()
    try:
        with open_folder(directory) as top:
            walk.folder(top, b"")
    except OSError as error:
        raise DirectoryUnusable(f"cannot read {directory}: {error.strerror}") from error
    return write_archive(walk.entries)


def unpack(archive: bytes, directory: Path) -> None:
    """Unpack into an empty directory. The files belong to the account for which the thread makes files."""
    entries = read_archive(archive)
    try:
        with open_folder(directory) as top:
            if os.listdir(top):
                raise DirectoryUnusable(f"{directory} is not empty")
            for entry in entries:
                _make(top, entry)
    except OSError as error:
        raise DirectoryUnusable(f"cannot write {directory}: {error.strerror}") from error


class _Walk:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._bytes = 0

    def folder(self, descriptor: int, above: bytes) -> None:
        for name in sorted(map(os.fsencode, os.listdir(descriptor))):
            if name in CACHES:
                continue
            path = above + b"/" + name if above else name
            check_path(path)
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                self._add(Entry(path), len(path))
                # Depth is bounded by the check of the path.
                with open_folder(name, descriptor) as inner:
                    self.folder(inner, path)
            elif stat.S_ISREG(mode):
                self._file(descriptor, name, path)

    def _file(self, folder: int, name: bytes, path: bytes) -> None:
        descriptor = os.open(name, _READ, dir_fd=folder)
        try:
            # The check uses the open file: the name may lead elsewhere by now.
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                return
            room = MAX_ARCHIVE_BYTES - self._bytes
            if status.st_size > room:
                raise ArchiveTooLarge(f"the browser's data has more than {MAX_ARCHIVE_BYTES} bytes")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(room + 1)
        finally:
            os.close(descriptor)
        self._add(Entry(path, content), len(path) + len(content))

    def _add(self, entry: Entry, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_ARCHIVE_BYTES or len(self.entries) >= MAX_ENTRIES:
            raise ArchiveTooLarge(f"the browser's data has more than {MAX_ARCHIVE_BYTES} bytes or {MAX_ENTRIES} files")
        self.entries.append(entry)


def _make(top: int, entry: Entry) -> None:
    if entry.content is None:
        os.mkdir(entry.path, _FOLDER_MODE, dir_fd=top)
    else:
        with open(os.open(entry.path, _CREATE, _FILE_MODE, dir_fd=top), "wb") as file:
            file.write(entry.content)
