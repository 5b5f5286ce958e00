"""State directory: 0700, files 0600, every write atomic and durable; and the locks of living processes on it.

It has keys, tokens and the journal. So a directory that another user could read or swap is refused, not repaired: its
content may have been read already.
"""

import contextlib
import errno
import fcntl
import grp
import os
import pwd
import secrets
import stat
from pathlib import Path, PurePosixPath
from typing import Self

from palyra.errors import Denied, InvalidInput, Unavailable
from palyra.ids import InstanceId

DIR_MODE = 0o700
FILE_MODE = 0o600
# Links on the way to one file, as the kernel bounds them.
_MAX_LINKS = 40


class StateDirExposed(Denied):
    code = "state.exposed"
    hint = "choose a directory of your own, or `chmod 700` it after checking that nothing in it was touched"


class StateDirUnusable(Unavailable):
    code = "state.unusable"
    hint = "check the path, its permissions and the free space, or choose another with --state-dir"


class InvalidStateName(InvalidInput):
    code = "state.invalid_name"
    hint = "names in the state directory are relative and have no `..`"


class StateDir:
    def __init__(self, root: Path) -> None:
        """Use ``open``, which checks the directory first."""
        self.root = root

    @classmethod
    def open(cls, path: Path) -> Self:
        """Check the directory at the path; make it with its parents if absent."""
        path = Path(os.path.abspath(path))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, DIR_MODE)
            refuse_if_exposed(path)
        except OSError as error:
            raise StateDirUnusable(f"cannot use {path} for state: {error.strerror}", path=str(path)) from error
        return cls(path)

    def path(self, name: str) -> Path:
        pure = PurePosixPath(name)
        if not name or "\0" in name or pure.is_absolute() or not pure.parts or ".." in pure.parts:
            raise InvalidStateName(f"{name[:64]!r} is not a name in the state directory")
        return self.root / pure

    def write_atomic(self, name: str, content: bytes) -> Path:
        """Replace a file: readers see the old content or the new, never a part, also after a power cut."""
        target = self.path(name)
        try:
            target.parent.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
            refuse_if_exposed(target.parent)
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                replace_file(folder, target.name, content)
            finally:
                os.close(folder)
        except OSError as error:
            raise StateDirUnusable(f"cannot write {target}: {error.strerror}", path=str(target)) from error
        return target


def refuse_if_exposed(path: Path) -> None:
    """Raise unless the path is a real directory of this user, closed to all others."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise StateDirExposed(f"{path} is not a directory of its own", path=str(path))
    if status.st_uid != os.geteuid():
        raise StateDirExposed(f"{path} belongs to another user (uid {status.st_uid})", path=str(path))
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise StateDirExposed(f"{path} is open to others (mode {mode:04o})", path=str(path))


class WritableByOthers(Denied):
    code = "config.writable_by_others"
    hint = "check what is in it, then `chmod go-w` it, and `chown` it if it belongs to somebody else"


def refuse_if_others_may_write(path: Path) -> None:
    """Raise if another user may change this file or folder, or replace it through a folder or link on its way."""
    places = _places_on_the_way(path)
    in_sticky = False
    for each in places:
        status = os.lstat(each)
        mode = status.st_mode
        if os.statvfs(each.parent if stat.S_ISLNK(mode) else each).f_flag & os.ST_RDONLY:
            continue
        if status.st_uid not in (0, os.geteuid()):
            raise WritableByOthers(f"{each} belongs to another user (uid {status.st_uid})", path=str(each))
        if in_sticky and stat.S_ISREG(mode) and status.st_nlink > 1:
            raise WritableByOthers(f"{each} has a second name, and others may have put it there", path=str(each))
        if stat.S_ISLNK(mode):
            continue
        # In a sticky folder, such as /tmp, only the owner of a file replaces it. Others add files to it.
        in_sticky = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)
        if in_sticky and each is not places[-1]:
            continue
        if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private(each, status.st_gid)):
            raise WritableByOthers(f"others may change {each} (mode {stat.S_IMODE(mode):04o})", path=str(each))


def _places_on_the_way(path: Path) -> list[Path]:
    """Return every folder and link through which the kernel comes to the path, and the path's own place last."""
    place = Path("/")
    found = [place]
    names = [*reversed(path.absolute().parts[1:])]
    links = 0
    while names:
        name = names.pop()
        step = place.parent if name == ".." else place / name
        found.append(step)
        if not step.is_symlink():
            place = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(step))
        names += reversed(target.parts)
        if target.is_absolute():
            place = Path(names.pop())
    return found


def _is_private(path: Path, group: int) -> bool:
    """Return whether the group may write for one user alone, as distributions make a group with each user.

    With an access list, the mode's bits of the group are those of all users that the list names.
    """
    with contextlib.suppress(OSError):
        os.getxattr(path, "system.posix_acl_access")
        return False
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    others = {each.pw_name for each in pwd.getpwall() if each.pw_gid == group} | set(found.gr_mem)
    return group == user.pw_gid and found.gr_name == user.pw_name and others <= {user.pw_name}


def replace_file(folder: int, name: str, content: bytes) -> None:
    """Replace a file durably or not at all, readable by its owner alone. ``folder`` is a descriptor."""
    temporary = f".{name[:64]}.{secrets.token_hex(8)}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, FILE_MODE, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, FILE_MODE)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


LOCK_FILE = "daemon.lock"


class DaemonRunning(Unavailable):
    code = "daemon.already_running"
    hint = "stop the other one first, or choose another --state-dir"


class HeldLock:
    """Lock on a file, which the kernel releases when the process ends: a free lock belongs to an ended process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Take the lock, or raise BlockingIOError if another process holds it."""
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
    """Palyra processes alive on one state directory, each with a lock on its own file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def enter(self) -> tuple[InstanceId, HeldLock]:
        while True:
            instance = InstanceId.new()
            path = self._folder / instance
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                lock = HeldLock.take(path)
                # Before the lock was taken, another process may have removed the file as an ended process's.
                if os.path.samestat(path.stat(), os.fstat(lock.descriptor)):
                    return instance, lock

    def live(self) -> frozenset[str]:
        """Return the living processes; remove the files of ended ones."""
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
