"""A browser's data directory as an archive, and back.

The directory was the browser's, which may have been taken over: nothing in it is followed, waited for or believed.
What is neither a folder nor a file with one name is left out (Chromium's own locks are links), and so are caches. The
browser must have ended, gracefully, before: it writes cookies late.
"""

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from palyra.browser.archive_format import (
    MAX_ARCHIVE_BYTES,
    MAX_ENTRIES,
    ArchiveTooLarge,
    Entry,
    checked_path,
    read_archive,
    write_archive,
)
from palyra.browser.held_folder import opened_folder
from palyra.errors import Unavailable

# Made again by the browser when it needs them; they would be most of the archive. By name, at any depth. Not among
# them is `CacheStorage`, which sites write themselves.
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


class Packed(msgspec.Struct, frozen=True):
    """``left_out`` counts what was neither a folder nor an own file; caches are not counted."""

    archive: bytes
    left_out: int

    def __repr__(self) -> str:
        return f"<Packed {len(self.archive)} bytes, {self.left_out} left out>"


def pack(directory: Path) -> Packed:
    walk = _Walk()
    try:
        with opened_folder(directory) as top:
            walk.folder(top, b"")
    except OSError as error:
        raise DirectoryUnusable(f"cannot read {directory}: {error.strerror}") from error
    return Packed(write_archive(walk.entries), walk.left_out)


def unpack(archive: bytes, directory: Path) -> int:
    """Into a directory that is there, empty, and not yet a running browser's. Returns how many entries were made.

    They belong to whom the calling thread makes files for."""
    entries = read_archive(archive)
    try:
        with opened_folder(directory) as top:
            if os.listdir(top):
                raise DirectoryUnusable(f"{directory} is not empty")
            for entry in entries:
                _make(top, entry)
    except OSError as error:
        raise DirectoryUnusable(f"cannot write {directory}: {error.strerror}") from error
    return len(entries)


class _Walk:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.left_out = 0
        self._bytes = 0

    def folder(self, descriptor: int, above: bytes) -> None:
        for name in sorted(map(os.fsencode, os.listdir(descriptor))):
            if name in CACHES:
                continue
            path = above + b"/" + name if above else name
            checked_path(path)
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                self._add(Entry(path), len(path))
                # Depth is bounded by the check of the path.
                with opened_folder(name, descriptor) as inner:
                    self.folder(inner, path)
            elif stat.S_ISREG(mode):
                self._file(descriptor, name, path)
            else:
                self.left_out += 1

    def _file(self, folder: int, name: bytes, path: bytes) -> None:
        descriptor = os.open(name, _READ, dir_fd=folder)
        try:
            # Judged on what is open: the name may lead elsewhere since it was looked at.
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                self.left_out += 1
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
