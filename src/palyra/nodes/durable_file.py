"""Files of one folder: written durably, put in place atomically, the one before kept as a backup."""

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palyra.errors import Unavailable

FILE_MODE: Final = 0o600
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class StateFileUnusable(Unavailable):
    code = "nodes.state_unusable"
    hint = "check the state directory's permissions and free space"


class DurableFolder:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        # The file as this process put it: what still is that needs no second look before it becomes the backup.
        self._placed: tuple[int, int, int] | None = None

    def read(self, name: str) -> bytes | None:
        try:
            descriptor = os.open(self.path / name, _READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable("read", name, error) from error
        with open(descriptor, "rb") as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Durable when it returns, name and all."""
        try:
            descriptor = os.open(self.path / name, _CREATE, FILE_MODE)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, FILE_MODE)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            self._sync()
        except OSError as error:
            raise self._unusable("write", name, error) from error

    def replace(self, name: str, staged: str, *, backup: str, is_good: Callable[[bytes], bool]) -> None:
        """The staged file takes the name; what had it becomes the backup, if it is good. Nothing happens without a
        staged file. Any number of threads and processes may do this for one staged file: one of them does it.

        The folder is not synced afterwards: if a power cut loses the step, the staged file is there to take it again.
        """
        target, held = self.path / name, self.path / f".{name}.{secrets.token_hex(8)}.held"
        try:
            if not os.path.lexists(self.path / staged):
                return
            keep = self._good(name, is_good) and _linked(target, held)
            try:
                os.replace(self.path / staged, target)
            except FileNotFoundError:
                if keep:
                    os.unlink(held)
                return
            if keep:
                os.replace(held, self.path / backup)
            self._placed = _signature(target)
        except OSError as error:
            raise self._unusable("replace", name, error) from error

    def set_aside(self, name: str, aside: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path / name, self.path / aside)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path / name)

    def sweep(self, is_waste: Callable[[str], bool]) -> None:
        for name in os.listdir(self.path):
            if is_waste(name):
                self.remove(name)

    def _good(self, name: str, is_good: Callable[[bytes], bool]) -> bool:
        signature = _signature(self.path / name)
        if signature is None or signature == self._placed:
            return signature is not None
        raw = self.read(name)
        return raw is not None and is_good(raw)

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _unusable(self, verb: str, name: str, error: OSError) -> StateFileUnusable:
        return StateFileUnusable(f"cannot {verb} {self.path / name}: {error.strerror}", path=str(self.path / name))


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _linked(source: Path, target: Path) -> bool:
    """Whether there was something to link."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
