"""Restore of an archive: staged and checked beside the state directory, then put in its place in one step."""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from palyra.backup.archive import BackupFailed
from palyra.backup.manifest import PUBLIC_KEY
from palyra.errors import InvalidInput
from palyra.signing.dsse import Verifier

DIR_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# The file system, the kernel or the C library cannot exchange: then two renames must do.
_CANNOT_EXCHANGE: Final = (errno.ENOSYS, errno.EINVAL)


class StateInTheWay(InvalidInput):
    code = "backup.state_in_the_way"
    hint = "restore into another --state-dir, or say --replace: the present state is kept beside it"


class NotReplaceable(InvalidInput):
    code = "backup.not_replaceable"
    hint = "a mounted directory cannot be exchanged: make the state directory one below it"


class Staging:
    """Temporary directory for the files of an archive, removed with them if not used."""

    def __init__(self, folder: Path, read_key: Callable[[Path], Verifier], only: frozenset[str] | None = None) -> None:
        """Keep ``only`` these names; None keeps all."""
        self._read_key = read_key
        self.path = folder / f".palyra-restoring-{secrets.token_hex(8)}"
        self._only = only

    def __enter__(self) -> "Staging":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(DIR_MODE)
        except OSError as error:
            raise BackupFailed(f"cannot write beside the state directory: {error.strerror}") from error
        return self

    def __exit__(self, *exc_info: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def take(self, name: str, chunks: Iterator[bytes]) -> None:
        if self._only is not None and name not in self._only:
            for _ in chunks:
                pass
            return
        target = self.path / name
        for parent in reversed(target.relative_to(self.path).parents[:-1]):
            (self.path / parent).mkdir(DIR_MODE, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(target, flags, FILE_MODE), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())

    def own_keys(self) -> Sequence[Verifier]:
        return [self._read_key(self.path / PUBLIC_KEY)]


def require_place(target: Path, *, replace: bool) -> None:
    if not replace and target.exists() and any(target.iterdir()):
        raise StateInTheWay(f"{target} is not empty")


def put_in_place(staged: Path, target: Path) -> Path | None:
    """Exchange ``target`` for the staged directory at once. Return where the old content is kept, if there was any."""
    try:
        if not target.exists():
            os.rename(staged, target)
            return None
        if not any(target.iterdir()):
            # A rename replaces an empty directory.
            os.rename(staged, target)
            return None
        kept = target.with_name(f"{target.name}.before-restore-{secrets.token_hex(4)}")
        _exchange(staged, target, kept)
        return kept
    except OSError as error:
        kind = NotReplaceable if error.errno in (errno.EBUSY, errno.EXDEV) else BackupFailed
        raise kind(f"{target} could not be replaced: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.fsync(descriptor)
            os.close(descriptor)


def _exchange(staged: Path, target: Path, kept: Path) -> None:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    code = errno.ENOSYS
    if renameat2 is not None:
        if renameat2(_AT_FDCWD, os.fsencode(staged), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
            os.rename(staged, kept)
            return
        code = ctypes.get_errno()
    if code not in _CANNOT_EXCHANGE:
        raise OSError(code, os.strerror(code))
    os.rename(target, kept)
    try:
        os.rename(staged, target)
    except OSError:
        os.rename(kept, target)
        raise
