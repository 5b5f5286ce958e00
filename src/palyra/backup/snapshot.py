"""Copies of a state directory's files while a daemon writes them."""

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from palyra.backup.contents import CHECKPOINT, DATABASE, Part, part_of
from palyra.errors import Unavailable

_SQLITE_MAGIC: Final = b"SQLite format 3\0"
# Pages copied before the lock on the source is let go of; all in one go would be one transaction too, and is what a
# write-ahead log allows without holding up a writer.
_ALL_PAGES: Final = -1


class BackupFailed(Unavailable):
    code = "backup.failed"
    hint = "check the free space and the permissions, then try again"


class NothingToBackUp(Unavailable):
    code = "backup.nothing_there"
    hint = "name the state directory with --state-dir; `palyra config show` tells which one is used"


def names_to_take(root: Path, *, keys: bool, never: frozenset[Path] = frozenset()) -> Iterator[str]:
    """In the order to take them: the copy of the checkpoint, the database, then everything else. ``never`` are files
    that stay out wherever they lie."""
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
def copied(root: Path, name: str, scratch: Path) -> Iterator[IO[bytes] | None]:
    """The file as it is now, open for reading; None if it is gone or is no plain file. ``scratch`` is where a
    database's copy is made."""
    try:
        descriptor = os.open(root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        yield None
        return
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            yield None
        elif file.peek(len(_SQLITE_MAGIC)).startswith(_SQLITE_MAGIC):
            with copied_database(root / name, scratch) as database:
                yield database
        else:
            yield file


@contextlib.contextmanager
def copied_database(path: Path, scratch: Path) -> Iterator[IO[bytes]]:
    """What is committed at this moment, as one file. Writers are not held up."""
    os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    try:
        try:
            with (
                contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as source,
                contextlib.closing(sqlite3.connect(scratch)) as target,
            ):
                source.backup(target, pages=_ALL_PAGES)
                # One file: the copy needs no log beside it until somebody writes.
                target.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise BackupFailed(f"{path.name} could not be copied: {error}") from error
        with scratch.open("rb") as file:
            yield file
    finally:
        scratch.unlink(missing_ok=True)
