"""Walks down a directory tree of any depth, by descriptor, past no link, within bounds that are told.

A path may be longer than the kernel takes and a tree deeper than a process may hold files open. So the lowest levels
are held open and those above are reached again through ``..``, where it must be the same directory still.
"""

import errno
import os
from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from palyra.sandbox import limits
from palyra.sandbox.host_facts import Identity, Names

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
