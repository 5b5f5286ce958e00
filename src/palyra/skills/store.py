"""Archives on disk, named by their digest. What is read is hashed before anything believes it."""

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from palyra.errors import Tampered, Unavailable
from palyra.skills.artifact import SkillArtifact, read_artifact
from palyra.skills.limits import MAX_ARTIFACT_BYTES

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = ".skill"
_DIR_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


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
        """Writes an archive unless it is there, whole and durable, before it returns. Its digest names it."""
        digest = hashlib.sha256(raw).hexdigest()
        try:
            self._folder.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            with self._opened_folder() as folder:
                if not _holds(folder, digest, len(raw)):
                    _write(folder, digest + _SUFFIX, raw)
        except OSError as error:
            raise ArtifactsUnusable(f"cannot write an archive: {error.strerror}") from error
        return digest

    def read(self, digest: str) -> SkillArtifact:
        """The archive with this digest; raises ``ArtifactChanged`` for a file that is another, or is gone."""
        if not _DIGEST.fullmatch(digest):
            raise ArtifactChanged("an archive is named by its SHA-256", digest=digest[:80])
        try:
            with self._opened_folder() as folder:
                raw = _read(folder, digest + _SUFFIX)
        except FileNotFoundError:
            raise ArtifactChanged(f"the archive {digest} is gone", digest=digest) from None
        except OSError as error:
            raise ArtifactChanged(f"the archive {digest} cannot be read: {error.strerror}", digest=digest) from error
        found = hashlib.sha256(raw).hexdigest()
        if found != digest:
            raise ArtifactChanged(f"the file of the archive {digest} holds another one: {found}", digest=digest)
        return read_artifact(raw)

    def delete(self, digest: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._opened_folder() as folder:
            os.unlink(digest + _SUFFIX, dir_fd=folder)

    @contextlib.contextmanager
    def _opened_folder(self) -> Iterator[int]:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ArtifactsUnusable(f"{self._folder} is open to others")
            yield folder
        finally:
            os.close(folder)


def _holds(folder: int, digest: str, size: int) -> bool:
    """Whether the file is there and good: a damaged one is written again."""
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


def _write(folder: int, name: str, raw: bytes) -> None:
    temporary = f".{secrets.token_hex(8)}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _FILE_MODE, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)
