"""The storage of a skill: small values under paths, in a directory of its own for each principal that calls it.

No text of a guest becomes a file name: the file of a value is named by the digest of its path and begins with the path.
So no path leaves the directory, no two spellings name one file, and there is no link to follow.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import io
import os
import stat
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from palyra.config.state_dir import StateDir, replace_file
from palyra.errors import LimitExceeded, PalyraError, Unavailable
from palyra.ids import Principal
from palyra.skills.registry.records import StoredValues

_OF_PRINCIPALS: Final = "skills/{skill_id}/principals"
# Before principals had folders of their own, all calls of a skill shared this one. Nobody gets it now.
_SHARED: Final = "skills/{skill_id}/data"
# The bytes before the path: the format, then the path's length.
_MAGIC: Final = b"palyra.stored.v1"
_HEAD: Final = struct.Struct(f">{len(_MAGIC)}sH")
_MAX_PATH_BYTES: Final = 2**16 - 1
_DIR_MODE: Final = 0o700
_NAME_CHARS: Final = 64
# A listing reads the head of every file: for this many it takes some hundredths of a second.
MAX_STORED_VALUES: Final = 4_096


class StorageFull(LimitExceeded):
    code = "skill.storage_full"
    hint = "the skill keeps as much as its quota allows: it has to delete something first"


class StorageUnusable(Unavailable):
    code = "skill.storage_unusable"
    hint = "check the folder of the skill in the state directory: it has to be yours alone, on a disk with space"


def _permit() -> None:
    """Let every skill store values."""


class SkillStorage:
    """The values of one skill for one principal. Methods block: call them on a thread.

    Several processes may use one directory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int,
        most_values: int = MAX_STORED_VALUES,
        require_kept: Callable[[], None] = _permit,
    ) -> None:
        """Take ``require_kept``, which raises if the skill was removed: a call may outlive its skill."""
        self._folder = folder
        self._require_kept = require_kept
        self._most_bytes = most_bytes
        self._most_values = most_values

    def get(self, path: str) -> bytes | None:
        with self._open(create=False, shared=True) as folder:
            return None if folder is None else _value(folder, path)

    def put(self, path: str, value: bytes) -> None:
        """Store the whole value durably, or nothing."""
        head = _head(path)
        with self._open(create=True) as folder:
            assert folder is not None
            self._require_still_kept()
            sizes = _sizes(folder)
            sizes[_name(path)] = len(head) + len(value)
            if sum(sizes.values()) > self._most_bytes or len(sizes) > self._most_values:
                raise StorageFull(f"{self._most_bytes} bytes in {self._most_values} values are allowed")
            replace_file(folder, _name(path), head + value)

    def _require_still_kept(self) -> None:
        """Check under the folder's lock: a purge erases values stored before it, and none is stored after it."""
        try:
            self._require_kept()
        except PalyraError:
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)
            raise

    def delete(self, path: str) -> None:
        with self._open(create=False) as folder:
            if folder is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(_name(path), dir_fd=folder)

    def paths(self, prefix: str) -> tuple[str, ...]:
        with self._open(create=False, shared=True) as folder:
            if folder is None:
                return ()
            found = (_path(folder, name) for name in _sizes(folder))
            return tuple(sorted(path for path in found if path is not None and path.startswith(prefix)))

    def stored(self) -> StoredValues:
        with self._open(create=False, shared=True) as folder:
            sizes = {} if folder is None else _sizes(folder)
            return StoredValues(values=len(sizes), bytes=sum(sizes.values()))

    def erase(self) -> None:
        with self._open(create=False) as folder:
            if folder is not None:
                for name in os.listdir(folder):
                    os.unlink(name, dir_fd=folder)
                os.rmdir(self._folder)

    @contextlib.contextmanager
    def _open(self, *, create: bool, shared: bool = False) -> Iterator[int | None]:
        """Lock and give the directory, or None if it does not exist. A shared lock excludes only writers."""
        try:
            if create:
                self._folder.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if create:
                raise StorageUnusable("the storage of a skill was erased meanwhile") from None
            yield None
            return
        except OSError as error:
            raise StorageUnusable(f"cannot open the storage of a skill: {error.strerror}") from error
        try:
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise StorageUnusable(f"{self._folder} is open to others")
            fcntl.flock(folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield folder
        except OSError as error:
            raise StorageUnusable(f"cannot use the storage of a skill: {error.strerror}") from error
        finally:
            os.close(folder)


class SkillFolders:
    """The folders of all skills, below the state directory. Ids come from manifests and have no slash."""

    def __init__(self, state: StateDir) -> None:
        self._state = state

    def of(
        self,
        skill_id: str,
        principal: Principal,
        *,
        most_bytes: int = 0,
        require_kept: Callable[[], None] = _permit,
    ) -> SkillStorage:
        folder = self._principals(skill_id) / principal.folder
        return SkillStorage(folder, most_bytes=most_bytes, require_kept=require_kept)

    def stored(self, skill_id: str) -> StoredValues:
        found = [each.stored() for each in self._every(skill_id)]
        return StoredValues(values=sum(each.values for each in found), bytes=sum(each.bytes for each in found))

    def erase(self, skill_id: str) -> None:
        for each in self._every(skill_id):
            each.erase()
        with contextlib.suppress(OSError):
            self._principals(skill_id).rmdir()

    def kept(self, skill_id: str) -> str:
        """Return the folder that all principals shared before, if it holds something."""
        folder = self._state.path(_SHARED.format(skill_id=skill_id))
        with contextlib.suppress(OSError):
            if any(folder.iterdir()):
                return str(folder)
        return ""

    def _principals(self, skill_id: str) -> Path:
        return self._state.path(_OF_PRINCIPALS.format(skill_id=skill_id))

    def _every(self, skill_id: str) -> list[SkillStorage]:
        folders = [self._state.path(_SHARED.format(skill_id=skill_id))]
        with contextlib.suppress(FileNotFoundError):
            folders += self._principals(skill_id).iterdir()
        return [SkillStorage(folder, most_bytes=0) for folder in folders]


def _name(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()


def _head(path: str) -> bytes:
    encoded = path.encode()
    if len(encoded) > _MAX_PATH_BYTES:
        raise StorageFull("the path of a value is too long")
    return _HEAD.pack(_MAGIC, len(encoded)) + encoded


def _sizes(folder: int) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in entries
            if len(entry.name) == _NAME_CHARS and entry.is_file(follow_symlinks=False)
        }


def _file(folder: int, name: str) -> io.FileIO | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    return io.FileIO(descriptor)


def _value(folder: int, path: str) -> bytes | None:
    file = _file(folder, _name(path))
    if file is None:
        return None
    with file:
        raw = file.readall()
    head = _head(path)
    return raw[len(head) :] if raw.startswith(head) else None


def _path(folder: int, name: str) -> str | None:
    """Return the path of the value in a file, or None for a file of another format."""
    file = _file(folder, name)
    if file is None:
        return None
    with file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        magic, length = _HEAD.unpack(head)
        path = file.read(length).decode("utf-8", "replace")
    return path if magic == _MAGIC and _name(path) == name else None


R = TypeVar("R")
# Skills that use their storage at once. Each skill has at most one thread, because a call locks its folder.
MAX_STORAGE_THREADS: Final = 4


class StorageThreads:
    """Threads for storage. The disk and the folder's lock block, so a busy skill delays itself and no other."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_STORAGE_THREADS, thread_name_prefix="palyra-skill-storage")
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def run(self, skill_id: str, work: Callable[[], R]) -> R:
        """Run the work in the skill's turn. A cancelled caller leaves the thread at work until the turn ends."""
        turn = self._turns.setdefault(skill_id, asyncio.Semaphore(1))
        await turn.acquire()
        try:
            working = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            turn.release()
            raise
        working.add_done_callback(partial(_end, turn))
        return await asyncio.shield(working)


def _end(turn: asyncio.Semaphore, working: "asyncio.Future[object]") -> None:
    turn.release()
    if not working.cancelled():
        # Retrieve the exception so asyncio does not log it.
        working.exception()
