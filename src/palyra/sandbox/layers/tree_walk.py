"""Walks down a directory tree of any depth, by descriptor, past no link, within bounds that are told.

A path may be longer than the kernel takes and a tree deeper than a process may hold files open. So the lowest levels
are held open and those above are reached again through ``..``, where it must be the same directory still.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Generic, TypeVar

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Identity, Names
from palyra.workspace.openat2 import held

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

S = TypeVar("S")


class _Level(Generic[S]):
    """A directory on the way down, with the directories in it that are still to be entered."""

    __slots__ = ("descriptor", "identity", "pending")

    def __init__(self, descriptor: int, pending: list[tuple[bytes, S]]) -> None:
        status = os.fstat(descriptor)
        self.descriptor = descriptor
        self.identity = Identity(status.st_dev, status.st_ino)
        self.pending = pending

    def found_again(self, below: int) -> bool:
        """Opens it again, if it was closed, from a directory in it. False where that is in another one by now."""
        if self.descriptor >= 0:
            return True
        try:
            self.descriptor = os.open(b"..", DIRECTORY, dir_fd=below)
        except OSError:
            return False
        status = os.fstat(self.descriptor)
        return Identity(status.st_dev, status.st_ino) == self.identity

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Descent(ABC, Generic[S]):
    """One or more walks with a common count. ``unseen`` are the directories not looked through to their end, and
    ``shortfall`` says why. Nothing in ``without`` is entered. Each directory has a state, of which only the subclass
    knows the meaning."""

    def __init__(self, most: int, without: frozenset[Names] = frozenset()) -> None:
        self.entries = 0
        self.shortfall = ""
        self.unseen: set[Names] = set()
        self._most = most
        self._without = without
        self._uid = os.geteuid()

    @abstractmethod
    def children(self, directory: int, names: list[bytes], state: S) -> list[tuple[bytes, S]]:
        """Looks at what lies in a directory and returns the directories to enter. Asks ``counted`` for each entry."""

    def counted(self, names: list[bytes]) -> bool:
        """Whether there is room for one more entry in the directory ``names``. False ends the look at it."""
        self.entries += 1
        if self.entries <= self._most:
            return True
        self.not_seen(names, f"more than {self._most} files")
        return False

    def walk(self, directory: int, names: Names, state: S) -> None:
        """Depth first. The lowest levels are held open, those above are reached again through ``..``. Closes
        ``directory``."""
        path = list(names)
        levels: list[_Level[S]] = [_Level(directory, [])]
        try:
            levels[0].pending = self.children(directory, path, state)
            while levels:
                level = levels[-1]
                if level.pending:
                    if self.entries > self._most:
                        self._give_up(levels, path, f"more than {self._most} files")
                        return
                    self._descend(levels, path)
                    continue
                levels.pop()
                try:
                    if levels and not levels[-1].found_again(level.descriptor):
                        self._give_up(levels, path[:-1], "moved while it was looked at")
                        return
                finally:
                    level.close()
                if levels:
                    path.pop()
        finally:
            for each in levels:
                each.close()

    def _descend(self, levels: list[_Level[S]], path: list[bytes]) -> None:
        name, onward = levels[-1].pending.pop()
        path.append(name)
        opened = None if self._left_out(path) else self._open(path, levels[-1].descriptor)
        if opened is None:
            path.pop()
            return
        levels.append(_Level(opened, []))
        levels[-1].pending = self.children(opened, path, onward)
        if len(levels) > limits.MAX_SURVEY_DESCRIPTORS:
            levels[-1 - limits.MAX_SURVEY_DESCRIPTORS].close()

    def _left_out(self, path: list[bytes]) -> bool:
        if self._without and len(path) <= limits.MAX_MOUNT_DEPTH and tuple(path) in self._without:
            return True
        if len(path) > limits.MAX_SURVEY_DEPTH:
            self.not_seen(path, f"deeper than {limits.MAX_SURVEY_DEPTH} directories")
            return True
        return False

    def _give_up(self, levels: list[_Level[S]], path: list[bytes], reason: str) -> None:
        """``path`` is that of the last level. Many directories in one are told as that one."""
        base = len(path) - len(levels) + 1
        for place, level in enumerate(levels):
            here = path[: min(base + place, limits.MAX_MOUNT_DEPTH)]
            if here and len(level.pending) > limits.MAX_UNSEEN_IN_ONE:
                self.not_seen(here, reason)
                continue
            for name, _ in level.pending:
                self.not_seen([*here, name], reason)

    def not_seen(self, path: list[bytes], reason: str) -> None:
        """A directory so deep that it cannot carry a mount is as good as one above it."""
        self.shortfall = reason
        self.unseen.add(tuple(path[: limits.MAX_MOUNT_DEPTH]))

    def _open(self, path: list[bytes], parent: int) -> int | None:
        try:
            return os.open(path[-1], DIRECTORY, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            # It went away, or became something else: then it is not a directory of the workspace now.
            return None
        except OSError as error:
            if error.errno != errno.ELOOP and self._may_be_changed(path[-1], parent):
                self.not_seen(path, f"a directory of this user's that cannot be read ({error.strerror})")
            return None

    def _may_be_changed(self, name: bytes, parent: int) -> bool:
        """A directory of somebody else's that we may not read the program may not change either."""
        try:
            return os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid == self._uid
        except OSError:
            return False


# Removes what a program left in its private folder, however deep it nested it.
#
# The usual way goes down level by level and holds each one open; a program can nest deeper than any process can
# follow. Here every directory is first moved up to the top, where it is emptied: nothing is ever more than two levels
# down.


def remove_tree(path: str) -> None:
    """For when nothing of the program runs any more. What cannot be removed stays, as with ``ignore_errors``."""
    with suppress(OSError), held(os.open(path, DIRECTORY)) as top:
        moved = 0
        while names := os.listdir(top):
            removed = 0
            for name in names:
                with suppress(OSError):
                    moved += _remove(top, name, moved)
                    removed += 1
            if not removed:
                return
        os.rmdir(path)


def _remove(top: int, name: str, number: int) -> int:
    """Removes one entry of the top directory. Returns how many directories it moved there."""
    if not _is_directory(top, name):
        os.unlink(name, dir_fd=top)
        return 0
    moved = 0
    with held(_opened(top, name)) as directory:
        for inner in os.listdir(directory):
            if _is_directory(directory, inner):
                # Moving a directory changes its entry for the one above, which its own mode must allow.
                os.close(_opened(directory, inner))
                os.rename(inner, _free_name(top, number + moved), src_dir_fd=directory, dst_dir_fd=top)
                moved += 1
            else:
                os.unlink(inner, dir_fd=directory)
    os.rmdir(name, dir_fd=top)
    return moved


def _free_name(top: int, number: int) -> str:
    while True:
        name = f"moved-{number}"
        try:
            os.stat(name, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            return name
        number += 1


def _is_directory(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _opened(parent: int, name: str) -> int:
    """Opens a directory of ours, and gives us back the rights to it that its program may have taken."""
    with held(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)) as place:
        if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
        return os.open(b".", DIRECTORY, dir_fd=place)
