"""Disk space held back, so that work which already ran can be recorded as finished when the disk fills up."""

import contextlib
import os
from pathlib import Path

from palyra.clock import Clock

# A full disk is asked again at most this often.
_RETRY_SECONDS = 1.0
_BYTES_PER_BLOCK = 512


class Ballast:
    """A preallocated file beside the database, shared by every process that writes it: the file is the truth."""

    def __init__(self, path: Path, size: int, clock: Clock) -> None:
        self._path = str(path)
        self._size = size
        self._clock = clock
        self._next_attempt = 0.0

    def held(self) -> bool:
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        return status.st_size >= self._size and status.st_blocks * _BYTES_PER_BLOCK >= self._size

    def secure(self) -> bool:
        """Whether the space is held, after trying to take it where it is not."""
        if self.held():
            return True
        now = self._clock.monotonic()
        if now < self._next_attempt:
            return False
        self._next_attempt = now + _RETRY_SECONDS
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError:
            self.release()
            return False
        finally:
            os.close(descriptor)
        return True

    def release(self) -> None:
        """Gives the space back to the disk."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
