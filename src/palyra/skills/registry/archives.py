"""Archives on disk, named by their digest. An archive is hashed before it is used.

Several processes write and delete here. A writer holds a shared lock on the folder until the row exists that needs the
archive. A process that deletes holds an exclusive one while it looks which archives are needed. The kernel releases the
lock of a process that dies.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Final

from palyra.config.state_dir import replace_file
from palyra.errors import Tampered, Unavailable
from palyra.skills.limits import MAX_ARTIFACT_BYTES
from palyra.skills.package.artifact import SkillArtifact, read_artifact
from palyra.skills.registry.skill_tables import InstalledSkillsIndex

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = ".skill"
_ARCHIVE: Final = re.compile(r"([0-9a-f]{64})\.skill")
_HALF_WRITTEN: Final = re.compile(r"\.(?:[0-9a-f]{64}\.)?[0-9a-f]{16}\.new")
# Others hold the folder for as long as a transaction takes.
HELD_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 0.005
_DIR_MODE: Final = 0o700


class ArtifactChanged(Tampered):
    code = "skill.artifact_changed"
    hint = "the file on disk is not what was approved: find out who changed it, then install and approve it again"


class ArtifactsUnusable(Unavailable):
    code = "skill.store_unusable"
    hint = "check the folder `skills` in the state directory: it has to be yours alone, on a disk with space"


class ArtifactFiles:
    """The folder is made at the first write. Names are digests, so that a path never comes from an archive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, raw: bytes) -> str:
        """Write an archive unless it exists, whole and durable, before returning. Its digest names it."""
        digest = hashlib.sha256(raw).hexdigest()
        try:
            self._folder.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            with self._hold_folder() as folder:
                if not _holds(folder, digest, len(raw)):
                    replace_file(folder, digest + _SUFFIX, raw)
        except OSError as error:
            raise ArtifactsUnusable(f"cannot write an archive: {error.strerror}") from error
        return digest

    def read(self, digest: str) -> SkillArtifact:
        """Read the archive with this digest. Raises ``ArtifactChanged`` if the file is another one, or missing."""
        if not _DIGEST.fullmatch(digest):
            raise ArtifactChanged("an archive is named by its SHA-256", digest=digest[:80])
        try:
            with self._hold_folder() as folder:
                raw = _read(folder, digest + _SUFFIX)
        except FileNotFoundError:
            raise ArtifactChanged(f"the archive {digest} is gone", digest=digest) from None
        except OSError as error:
            raise ArtifactChanged(f"the archive {digest} cannot be read: {error.strerror}", digest=digest) from error
        found = hashlib.sha256(raw).hexdigest()
        if found != digest:
            raise ArtifactChanged(f"the file of the archive {digest} holds another one: {found}", digest=digest)
        return read_artifact(raw)

    @contextlib.asynccontextmanager
    async def lock(self, *, alone: bool = False, patience: float = HELD_SECONDS) -> AsyncIterator[None]:
        """Lock the folder. Raises ``ArtifactsUnusable`` if that takes too long. Only a writer makes the folder."""
        try:
            if not alone:
                self._folder.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            folder = self._open_folder()
        except OSError as error:
            raise ArtifactsUnusable(f"cannot open the folder of archives: {error.strerror}") from error
        try:
            await _lock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, patience)
            yield
        finally:
            os.close(folder)

    def sweep(self, needed: Collection[str]) -> None:
        """Delete other archives and half-written files. The caller holds the exclusive lock."""
        with self._hold_folder() as folder:
            names = os.listdir(folder)
            gone = [name for name in names if _HALF_WRITTEN.fullmatch(name)]
            gone += [name for name in names if (found := _ARCHIVE.fullmatch(name)) and found[1] not in needed]
            for name in gone:
                # What cannot be deleted is no file of ours.
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    def is_there(self) -> bool:
        return self._folder.exists()

    def delete(self, digest: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._hold_folder() as folder:
            os.unlink(digest + _SUFFIX, dir_fd=folder)

    @contextlib.contextmanager
    def _hold_folder(self) -> Iterator[int]:
        folder = self._open_folder()
        try:
            yield folder
        finally:
            os.close(folder)

    def _open_folder(self) -> int:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.close(folder)
            raise ArtifactsUnusable(f"{self._folder} is open to others")
        return folder


async def _lock(folder: int, how: int, patience: float) -> None:
    """Poll the lock, so that no thread is left with it when the waiting task is cancelled."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(folder, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise ArtifactsUnusable(
                    "other processes keep the folder of archives busy", hint="try again; see which of them hangs"
                ) from None
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except OSError as error:
            raise ArtifactsUnusable(f"cannot lock the folder of archives: {error.strerror}") from error
        else:
            return


def _holds(folder: int, digest: str, size: int) -> bool:
    """Tell whether the file exists and is good: a damaged one is written again."""
    try:
        raw = _read(folder, digest + _SUFFIX)
    except OSError:
        return False
    return len(raw) == size and hashlib.sha256(raw).hexdigest() == digest


def _read(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        # One byte beyond the limit is enough to have another digest.
        return file.read(MAX_ARTIFACT_BYTES + 1)


_LOG = logging.getLogger("palyra.skills")


class Sweeping:
    """Deletes archives that no version needs, and half-written files of killed processes.

    Another process may be writing an archive whose row comes next. So the lock is exclusive, from the query of the
    tables to the last deletion.
    """

    def __init__(self, files: ArtifactFiles, index: InstalledSkillsIndex) -> None:
        self._files = files
        self._index = index
        self._swept = False

    async def one(self, digest: str) -> None:
        """Delete an archive that no version needs (any more)."""
        if not self._files.is_there():
            return
        try:
            async with self._files.lock(alone=True):
                if digest not in await asyncio.to_thread(self._index.digests_kept):
                    await asyncio.to_thread(self._files.delete, digest)
        except ArtifactsUnusable as error:
            # The next process that opens the registry will find it.
            _LOG.warning("an archive that no version needs stays: %s", error.message)

    async def everything(self, patience: float = HELD_SECONDS) -> bool:
        """Delete what no version needs and what was half written. Returns False if the lock was not free in time."""
        if not self._files.is_there():
            return True
        try:
            async with self._files.lock(alone=True, patience=patience):
                needed = await asyncio.to_thread(self._index.digests_known)
                await asyncio.to_thread(self._files.sweep, needed)
        except (ArtifactsUnusable, OSError) as error:
            _LOG.info("archives that no version needs may stay: %s", error)
            return False
        return True

    async def at_first(self) -> None:
        """Delete what a killed process left. If another process writes, the next call does it."""
        if not self._swept:
            self._swept = await self.everything(0)
