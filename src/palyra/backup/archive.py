"""Backup archive: a compressed tar with a header first and a signed list of the files last."""

import contextlib
import gzip
import hashlib
import os
import secrets
import sqlite3
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Final, Protocol
from urllib.parse import quote

import msgspec

from palyra.backup.manifest import (
    CHECKPOINT,
    DATABASE,
    FORMAT,
    HEADER_NAME,
    MANIFEST_NAME,
    PAYLOAD_TYPE,
    SIGNATURE_NAME,
    BackupFile,
    BackupIncomplete,
    BadEntry,
    Manifest,
    Part,
    check_name,
    parse_manifest,
    part_of,
    require_format,
    require_same,
    require_signed,
    statement_about,
)
from palyra.errors import InvalidInput, Unavailable
from palyra.limits import MIB
from palyra.signing.dsse import Signer, Verifier, open_envelope, sign_envelope

_SQLITE_MAGIC: Final = b"SQLite format 3\0"
# All pages are copied under one read lock, which in WAL mode does not block writers.
_ALL_PAGES: Final = -1


class BackupFailed(Unavailable):
    code = "backup.failed"
    hint = "check the free space and the permissions, then try again"


class NothingToBackUp(Unavailable):
    code = "backup.nothing_there"
    hint = "name the state directory with --state-dir; `palyra config show` tells which one is used"


def names_to_take(root: Path, *, keys: bool, never: frozenset[Path] = frozenset()) -> Iterator[str]:
    """Yield names in order: the copy of the checkpoint, the database, then everything else. Skip files in ``never``."""
    if not (root / DATABASE).is_file():
        raise NothingToBackUp(f"there is no {DATABASE} in {root}")
    if (root / CHECKPOINT).is_file():
        yield CHECKPOINT
    yield DATABASE
    wanted = {Part.STATE, Part.KEY} if keys else {Part.STATE}
    for folder, folders, files in os.walk(root):
        folders.sort()
        for file in sorted(files):
            path = Path(folder, file)
            name = path.relative_to(root).as_posix()
            if name not in (CHECKPOINT, DATABASE) and part_of(name) in wanted and path not in never:
                yield name
        if Path(folder) == root:
            folders[:] = [one for one in folders if part_of(f"{one}/any") in wanted]


@contextlib.contextmanager
def copy_file(root: Path, name: str, scratch: Path) -> Iterator[IO[bytes] | None]:
    """Open the file for reading; yield None if it is gone or not a regular file. Copy a database to ``scratch``."""
    try:
        descriptor = os.open(root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        yield None
        return
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            yield None
        elif file.peek(len(_SQLITE_MAGIC)).startswith(_SQLITE_MAGIC):
            with copy_database(root / name, scratch) as database:
                yield database
        else:
            yield file


@contextlib.contextmanager
def copy_database(path: Path, scratch: Path) -> Iterator[IO[bytes]]:
    """Copy the committed state of a database into one file, without blocking writers."""
    os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    try:
        try:
            with (
                contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as source,
                contextlib.closing(sqlite3.connect(scratch)) as target,
            ):
                source.backup(target, pages=_ALL_PAGES)
                # The copy is one file: it needs no log beside it until a process writes to it.
                target.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise BackupFailed(f"{path.name} could not be copied: {error}") from error
        with scratch.open("rb") as file:
            yield file
    finally:
        scratch.unlink(missing_ok=True)


FILE_MODE: Final = 0o600
_CHUNK: Final = MIB
# The fastest that still halves a journal.
_COMPRESSION: Final = 3
# A list of a hundred thousand files has about ten million bytes.
_MAX_MANIFEST_BYTES: Final = 64 * MIB
_MAX_HEADER_BYTES: Final = 256


class UnreadableBackup(InvalidInput):
    code = "backup.unreadable"
    hint = "check the path and its permissions"


class BackupExists(InvalidInput):
    code = "backup.exists"
    hint = "choose another name: a backup does not replace one"


def write_backup(
    root: Path,
    target: Path,
    *,
    keys: bool,
    palyra_version: str,
    created_at: str,
    journal_seq: Callable[[Path], int],
    signer: Signer,
    never: frozenset[Path] = frozenset(),
) -> Manifest:
    """Write a backup. ``journal_seq`` reads the newest event's number from a copy of the database."""
    if target.exists():
        raise BackupExists(f"{target} is there already")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    scratch = temporary.with_name(temporary.name + ".db")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with open(descriptor, "wb") as file:
            with (
                gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION, mtime=0) as compressed,
                tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                _add(tar, HEADER_NAME, FORMAT.encode())
                files, seq = [], 0
                for name in names_to_take(root, keys=keys, never=never):
                    with copy_file(root, name, scratch) as content:
                        if content is None:
                            continue
                        if name == DATABASE:
                            seq = journal_seq(scratch)
                        files.append(_add_file(tar, check_name(name), content))
                manifest = Manifest(
                    format=FORMAT,
                    palyra_version=palyra_version,
                    created_at=created_at,
                    journal_seq=seq,
                    keys=keys,
                    files=tuple(files),
                )
                listed = msgspec.json.encode(manifest)
                _add(tar, MANIFEST_NAME, listed)
                _add(tar, SIGNATURE_NAME, sign_envelope(PAYLOAD_TYPE, statement_about(listed), [signer]).to_json())
            file.flush()
            os.fsync(descriptor)
        # Unlike `replace`, this fails if a file of that name has come meanwhile.
        os.link(temporary, target)
        _sync_folder(target.parent)
    except FileExistsError as error:
        raise BackupExists(f"{target} is there already") from error
    except OSError as error:
        raise BackupFailed(f"the backup could not be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return manifest


def read_backup(path: Path, sink: "Sink", verifiers: Sequence[Verifier] | None) -> Manifest:
    """Pass every file to ``sink`` and return the manifest after it was checked.

    ``verifiers`` are the keys to trust; None trusts the archive's own public key, which ``sink`` returns.
    """
    found: dict[str, BackupFile] = {}
    ending: dict[str, bytes] = {}
    try:
        with gzip.open(path) as compressed, tarfile.open(fileobj=compressed, mode="r|") as tar:
            entries = iter(tar)
            first = next(entries, None)
            if first is None or first.name != HEADER_NAME or not first.isreg() or first.size > _MAX_HEADER_BYTES:
                raise BadEntry("the file does not begin as a backup does")
            require_format(_content(tar, first).read().decode("ascii", "replace"))
            for entry in entries:
                if not entry.isreg():
                    raise BadEntry(f"{entry.name[:64]!r} is not a plain file")
                if entry.name in (MANIFEST_NAME, SIGNATURE_NAME):
                    if entry.size > _MAX_MANIFEST_BYTES or entry.name in ending:
                        raise BadEntry("the list of contents is too long, or there are two")
                    ending[entry.name] = _content(tar, entry).read()
                    continue
                name = check_name(entry.name)
                if name in found:
                    raise BadEntry(f"{name} is in the archive twice")
                found[name] = _pass_on(name, _content(tar, entry), sink)
            # Read to the end, where the checksum is: any cut file is refused.
            while compressed.read(_CHUNK):
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BackupIncomplete(f"{path} cannot be read to its end: {error}") from error
    except OSError as error:
        raise UnreadableBackup(f"{path} cannot be read: {error.strerror or error}") from error
    if ending.keys() != {MANIFEST_NAME, SIGNATURE_NAME}:
        raise BackupIncomplete(f"{path} ends before its signed list of contents")
    trusted = sink.own_keys() if verifiers is None else verifiers
    require_signed(ending[MANIFEST_NAME], open_envelope(ending[SIGNATURE_NAME], PAYLOAD_TYPE, trusted))
    manifest = parse_manifest(ending[MANIFEST_NAME])
    require_same(manifest, found)
    return manifest


class Sink(Protocol):
    """Receiver of an archive's files. They are untrusted until the manifest was checked."""

    def take(self, name: str, chunks: Iterator[bytes]) -> None: ...

    def own_keys(self) -> Sequence[Verifier]:
        """Return the archive's own public key."""


def _pass_on(name: str, content: IO[bytes], sink: Sink) -> BackupFile:
    digest, size = hashlib.sha256(), 0

    def chunks() -> Iterator[bytes]:
        nonlocal size
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            yield chunk

    sink.take(name, chunks())
    return BackupFile(name=name, size=size, sha256=digest.hexdigest())


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(entry)
    if content is None:
        raise BadEntry(f"{entry.name[:64]!r} has no content")
    return content


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, len(content)), BytesIO(content))


def _add_file(tar: tarfile.TarFile, name: str, content: IO[bytes]) -> BackupFile:
    """Add a file with its present size. Bytes appended meanwhile are not part of it."""
    size = os.fstat(content.fileno()).st_size
    measured = _Measured(content, size)
    tar.addfile(_entry(name, size), measured)  # type: ignore[arg-type]
    return BackupFile(name=name, size=size, sha256=measured.digest.hexdigest())


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, FILE_MODE
    return entry


class _Measured:
    def __init__(self, content: IO[bytes], size: int) -> None:
        self._content = content
        self._left = size
        self.digest = hashlib.sha256()

    def read(self, wanted: int) -> bytes:
        chunk = self._content.read(min(wanted, self._left))
        if not chunk and self._left:
            raise OSError("a file became shorter while it was copied")
        self._left -= len(chunk)
        self.digest.update(chunk)
        return chunk


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
