"""Which Palyra processes are alive on one state directory.

Each holds a lock on a file of its own. The kernel lets go of the lock when the process ends, however it ends, so a lock
that can be taken belongs to the dead.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from palyra.errors import Unavailable
from palyra.ids import InstanceId

LOCK_FILE = "daemon.lock"


class DaemonRunning(Unavailable):
    code = "daemon.already_running"
    hint = "stop the other one first, or choose another --state-dir"


class HeldLock:
    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Raises BlockingIOError when somebody else holds it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def release(self, *, remove: bool) -> None:
        if remove:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        os.close(self.descriptor)


class InstanceRegistry:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def enter(self) -> tuple[InstanceId, HeldLock]:
        while True:
            instance = InstanceId.new()
            path = self._folder / instance
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                lock = HeldLock.take(path)
                # Between the making of the file and the lock on it, another process may have taken it for a dead one's.
                if os.path.samestat(path.stat(), os.fstat(lock.descriptor)):
                    return instance, lock

    def live(self) -> frozenset[str]:
        """The living; what the dead left behind is removed."""
        alive = set()
        for path in self._folder.iterdir():
            try:
                lock = HeldLock.take(path)
            except BlockingIOError:
                alive.add(path.name)
            except OSError:
                continue
            else:
                lock.release(remove=True)
        return frozenset(alive)


def take_daemon_lock(path: Path) -> HeldLock:
    try:
        return HeldLock.take(path)
    except BlockingIOError:
        raise DaemonRunning(f"a daemon already runs on {path.parent}") from None
