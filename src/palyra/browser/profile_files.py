"""The folder of profiles: files that are whole or not there, and a place for what is not believed any more."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from palyra.browser.profile_errors import ProfilesUnusable
from palyra.ids import Ulid

ASIDE: Final = "aside"
# Enough to find out what happened; the oldest goes when another comes.
MAX_ASIDE: Final = 64
_LOCK: Final = "lock"
_TEMPORARY: Final = ".new"
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
# A link or a socket in a file's place: somebody's doing, and damage like any other.
_NO_FILE: Final = (errno.ELOOP, errno.ENXIO)
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ProfileFiles:
    """One process has it at a time, from here to ``close`` or its death."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = self._aside = self._lock = -1
        try:
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self._folder = os.open(path, _DIRECTORY)
            status = os.fstat(self._folder)
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ProfilesUnusable(f"{path} is open to others")
            self._take_lock()
            with contextlib.suppress(FileExistsError):
                os.mkdir(ASIDE, _FOLDER_MODE, dir_fd=self._folder)
            self._aside = os.open(ASIDE, _DIRECTORY, dir_fd=self._folder)
            for name in os.listdir(self._folder):
                if name.endswith(_TEMPORARY):
                    os.unlink(name, dir_fd=self._folder)
        except OSError as error:
            self.close()
            raise self._unusable("use", "its folder", error) from error
        except ProfilesUnusable:
            self.close()
            raise

    def close(self) -> None:
        for descriptor in (self._lock, self._aside, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._folder = self._aside = self._lock = -1

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self._folder) if name not in (ASIDE, _LOCK))

    def read(self, name: str, most: int) -> bytes | None:
        """At most one byte more than ``most``; None where there is nothing, and nothing where there is no file."""
        try:
            descriptor = os.open(name, _READ, dir_fd=self._folder)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return b""
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read(most + 1)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return b""
            raise self._unusable("read", name, error) from error

    def write(self, name: str, content: bytes) -> None:
        """Durable when it returns; after a crash either the old or the new one is there."""
        temporary = f".{secrets.token_hex(8)}{_TEMPORARY}"
        try:
            descriptor = os.open(temporary, _CREATE, _FILE_MODE, dir_fd=self._folder)
            try:
                with open(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(descriptor)
                os.replace(temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=self._folder)
                raise
            os.fsync(self._folder)
        except OSError as error:
            raise self._unusable("write", name, error) from error

    def remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unusable("remove", name, error) from error

    def set_aside(self, name: str) -> None:
        """Out of the way and kept, under a name that says when it was and what it had been."""
        try:
            os.rename(name, f"{Ulid.new()}-{name}"[:200], src_dir_fd=self._folder, dst_dir_fd=self._aside)
            for old in sorted(os.listdir(self._aside))[:-MAX_ASIDE]:
                # A folder that somebody made here stays.
                with contextlib.suppress(OSError):
                    os.unlink(old, dir_fd=self._aside)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unusable("set aside", name, error) from error

    def _take_lock(self) -> None:
        self._lock = os.open(
            _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE, dir_fd=self._folder
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProfilesUnusable(f"another daemon uses {self._path}") from None

    def _unusable(self, verb: str, name: str, error: OSError) -> ProfilesUnusable:
        return ProfilesUnusable(f"cannot {verb} {name} in {self._path}: {error.strerror}")
