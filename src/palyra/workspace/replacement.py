"""Replaces a file as a whole: readers see the old bytes or the new ones, and a failure leaves the old ones.

The new content is written to a file that has no name (O_TMPFILE) and gets one only when it is complete and on disk,
so that even a killed daemon leaves nothing behind. File systems without O_TMPFILE get a hidden temporary name.
Because the name is replaced and the old inode never written, a hard link to a file elsewhere cannot be written through.
"""

import contextlib
import ctypes
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from palyra.workspace.errors import Changed, NotFound, SymlinkRefused, translate_oserror
from palyra.workspace.limits import CHUNK_BYTES, POLL_SECONDS
from palyra.workspace.names import ProtectedName, WorkspacePath, encode_name
from palyra.workspace.root import Workspace, descriptor_path, hold, open_beneath, refuse_cancelled, refuse_special

_NEW_FILE: Final = 0o666
_NEW_PROGRAM: Final = 0o777
_PRIVATE: Final = 0o600
_PERMISSIONS: Final = 0o777
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY
_RENAME_NOREPLACE: Final = 1
_NO_UNNAMED_FILES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)

# Writers of one process to one file take turns, so that of two patches of one file neither is lost. Two files may
# share a lock.
_TURNS: Final = tuple(threading.Lock() for _ in range(64))

_libc = ctypes.CDLL(None, use_errno=True)


class Target:
    """A name in an open directory that is about to be written, and its file at the time of the look."""

    def __init__(self, workspace: Workspace, path: WorkspacePath, directory: int) -> None:
        self.workspace = workspace
        self.path = path
        self.shown = path.render()
        self.directory = directory
        self.last_name = path.names[-1]
        self.name = encode_name(self.last_name)
        self.existing = self.look()

    def look(self) -> os.stat_result | None:
        """Return the status of the file now. Anything but a regular file, a link above all, is refused."""
        try:
            status = os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translate_oserror(error, self.shown) from error
        if stat.S_ISLNK(status.st_mode):
            raise SymlinkRefused(f"{self.shown} is a link", path=self.shown)
        refuse_special(status, self.shown)
        return status

    def refuse_protected(self) -> None:
        """Judge the real place, at the end of the links on the way."""
        self.workspace.require_decided(self.path, self.directory, self.last_name)
        names = self.workspace.names_of(self.directory, self.shown)
        self.workspace.protected.refuse((*names, self.last_name))
        self.workspace.refuse_repository((*names, self.last_name))


@contextmanager
def open_target(
    workspace: Workspace, path: WorkspacePath, *, create_parents: bool, cancelled: threading.Event
) -> Iterator[Target]:
    """Open the directory of a file to write, and create missing ones if asked: removed again if the write fails."""
    workspace.refuse_write(path)
    made: list[tuple[int, bytes]] = []
    with contextlib.ExitStack() as stack:
        try:
            directory = _open_parent(workspace, path, stack, made, create_parents=create_parents)
            with _turn(directory, path.names[-1], cancelled):
                target = Target(workspace, path, directory)
                target.refuse_protected()
                yield target
        except BaseException:
            for parent, name in reversed(made):
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
            raise


def _open_parent(
    workspace: Workspace,
    path: WorkspacePath,
    stack: contextlib.ExitStack,
    made: list[tuple[int, bytes]],
    *,
    create_parents: bool,
) -> int:
    """Open the directory of a file; ``stack`` closes it, and ``made`` lists the directories that were created."""
    parents = path.names[:-1]
    known = len(parents)
    while True:
        try:
            directory = workspace.open(WorkspacePath(parents[:known]), _DIRECTORY)
        except NotFound:
            if not create_parents or known == 0:
                raise
            known -= 1
        else:
            break
    stack.callback(os.close, directory)
    workspace.protected.refuse((*workspace.names_of(directory, path.render()), *path.names[known:]))
    try:
        for name in map(encode_name, parents[known:]):
            try:
                os.mkdir(name, dir_fd=directory)
            except FileExistsError:
                # Another writer was faster, or a dangling link holds the name: the open below decides.
                pass
            else:
                made.append((directory, name))
            inner = open_beneath(directory, name, _DIRECTORY | os.O_NOFOLLOW, shown=path.render())
            stack.callback(os.close, inner)
            sync_directory(directory)
            directory = inner
    except OSError as error:
        raise translate_oserror(error, path.render()) from error
    return directory


@contextmanager
def _turn(directory: int, name: str, cancelled: threading.Event) -> Iterator[None]:
    status = os.fstat(directory)
    lock = _TURNS[hash((status.st_dev, status.st_ino, name)) % len(_TURNS)]
    while not lock.acquire(timeout=POLL_SECONDS):
        refuse_cancelled(cancelled)
    try:
        yield
    finally:
        lock.release()


def replace(target: Target, content: bytes, *, executable: bool | None, cancelled: threading.Event) -> None:
    """Put ``content`` under the target's name. ``executable`` None keeps the old file's permission."""
    try:
        _replace(target, content, executable=executable, cancelled=cancelled)
    except OSError as error:
        raise translate_oserror(error, target.shown) from error


def _replace(target: Target, content: bytes, *, executable: bool | None, cancelled: threading.Event) -> None:
    old = target.existing
    mode = _PRIVATE if old is not None else _NEW_PROGRAM if executable else _NEW_FILE
    unnamed = open_unnamed(target.directory, mode)
    temporary = encode_name(f".palyra-{secrets.token_hex(12)}.tmp")
    if unnamed is None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, mode, dir_fd=target.directory)
    else:
        descriptor = unnamed
    with hold(descriptor):
        try:
            _fill(descriptor, content, cancelled)
            if old is not None:
                _inherit(descriptor, old, executable)
            os.fsync(descriptor)
            refuse_cancelled(cancelled)
            if unnamed is not None and old is not None:
                os.link(descriptor_path(descriptor), temporary, dst_dir_fd=target.directory, follow_symlinks=True)
            _commit(target, descriptor if unnamed is not None else None, temporary)
            _refuse_made_repository(target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=target.directory)
            raise
    sync_directory(target.directory)


def _refuse_made_repository(target: Target) -> None:
    """Look again after the step: of two writers that each make one half of a repository, one sees the other."""
    try:
        target.refuse_protected()
    except ProtectedName:
        if target.existing is None:
            with contextlib.suppress(OSError):
                os.unlink(target.name, dir_fd=target.directory)
        raise


def _commit(target: Target, unnamed: int | None, temporary: bytes) -> None:
    """Take the one step that others can see, after a last look at the target."""
    target.refuse_protected()
    if target.existing is not None:
        if _identity(target.look()) != _identity(target.existing):
            raise Changed(f"{target.shown} was changed by another program", path=target.shown)
        os.rename(temporary, target.name, src_dir_fd=target.directory, dst_dir_fd=target.directory)
    elif unnamed is not None:
        os.link(descriptor_path(unnamed), target.name, dst_dir_fd=target.directory, follow_symlinks=True)
    else:
        _rename_to_free_name(target.directory, temporary, target.name)


def _identity(status: os.stat_result | None) -> tuple[int, ...]:
    if status is None:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def open_unnamed(directory: int, mode: int) -> int | None:
    """Open a file without a name in this directory, or return None where the file system has no such files."""
    try:
        return os.open(b".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_UNNAMED_FILES:
            return None
        raise


def _fill(descriptor: int, content: bytes, cancelled: threading.Event) -> None:
    remaining = memoryview(content)
    while remaining:
        refuse_cancelled(cancelled)
        remaining = remaining[os.write(descriptor, remaining[:CHUNK_BYTES]) :]


def _inherit(descriptor: int, old: os.stat_result, executable: bool | None) -> None:
    """Copy the owner, where permitted, and the permissions, without the set-id bits that a write would clear."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    mode = stat.S_IMODE(old.st_mode) & _PERMISSIONS
    if executable is True:
        mode |= (mode & 0o444) >> 2
    elif executable is False:
        mode &= ~0o111
    os.fchmod(descriptor, mode)


def _rename_to_free_name(directory: int, source: bytes, name: bytes) -> None:
    if _libc.renameat2(directory, source, directory, name, _RENAME_NOREPLACE) != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))


def sync_directory(directory: int) -> None:
    """Make a change of names durable. A directory that we may write but not read cannot be synced."""
    try:
        descriptor = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError:
        return
    with hold(descriptor):
        os.fsync(descriptor)
