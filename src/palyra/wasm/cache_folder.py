"""The folder of compiled modules: who writes there, and what goes when it holds too much.

Several processes share it. Who writes holds the folder, with others; who makes room holds it alone, so that nothing
goes that was written meanwhile. Files say by their time when they were last loaded. A process that dies lets go.
"""

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

_DIR_MODE: Final = 0o700
_COMPILED: Final = re.compile(r"[0-9a-f]{64}\.cwasm")
_HALF_WRITTEN: Final = re.compile(r"[0-9a-f]{64}\.[0-9]+\.[0-9a-f]{16}")
# Making room takes milliseconds: who waits longer than this waits for a process that hangs.
_HELD_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.005
# What was written or loaded so recently may be on its way into a worker, also of another process.
REST_SECONDS: Final = 60.0


class Removed(msgspec.Struct, frozen=True):
    """What went to make room. Nothing where the folder was ``busy``: then trying again later is worth it."""

    files: int = 0
    size: int = 0
    busy: bool = False


class _Entry(msgspec.Struct, frozen=True):
    name: str
    size: int
    used: float


class CacheFolder:
    """Blocking throughout. The folder is made at the first write."""

    def __init__(self, directory: Path, *, most_bytes: int, now: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self._most = most_bytes
        self._now = now

    @contextlib.contextmanager
    def written_to(self) -> Iterator[None]:
        """Nobody makes room meanwhile. Raises ``OSError`` where that cannot be had in time."""
        self.directory.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
        folder = self._opened()
        try:
            _held(folder, fcntl.LOCK_SH, _HELD_SECONDS)
            yield
        finally:
            os.close(folder)

    def make_room(self, in_use: Collection[str] = ()) -> Removed:
        """Removes what was not used for longest until the rest is within the bound, and what a process that was killed
        left half written. ``in_use`` counts as used now.

        Nothing goes while somebody writes: who writes makes room afterwards, unless it dies or hangs before.
        """
        try:
            folder = self._opened()
        except FileNotFoundError:
            return Removed()
        try:
            _held(folder, fcntl.LOCK_EX, 0)
            for name in in_use:
                # Some of it was never written, or went before.
                with contextlib.suppress(OSError):
                    os.utime(name, dir_fd=folder, follow_symlinks=False)
            return self._remove(folder)
        except BlockingIOError:
            return Removed(busy=True)
        finally:
            os.close(folder)

    def _remove(self, folder: int) -> Removed:
        entries = _entries(folder)
        left = sum(entry.size for entry in entries)
        files = size = 0
        now = self._now()
        for entry in sorted(entries, key=lambda each: (_COMPILED.fullmatch(each.name) is not None, each.used)):
            if 0 <= now - entry.used < REST_SECONDS or (_COMPILED.fullmatch(entry.name) and left <= self._most):
                continue
            # What cannot be deleted is no file of ours.
            with contextlib.suppress(OSError):
                os.unlink(entry.name, dir_fd=folder)
                left -= entry.size
                files += 1
                size += entry.size
        return Removed(files, size)

    def _opened(self) -> int:
        # A link to another disk is its owner's to make: the folder around it is the owner's alone.
        return os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _entries(folder: int) -> list[_Entry]:
    """Files of other names are not ours, neither to count nor to delete."""
    found = []
    for name in os.listdir(folder):
        if not _COMPILED.fullmatch(name) and not _HALF_WRITTEN.fullmatch(name):
            continue
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                found.append(_Entry(name, status.st_size, status.st_mtime))
    return found


def _held(folder: int, how: int, patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(folder, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)
