"""The scan of a workspace for protected names, by descriptor and past no link.

A path may be longer than the kernel takes, and a tree deeper than a process may hold files open. So the lowest levels
are held open, and those above are opened again through ``..``, where they must still be the same directories.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Generic, TypeVar

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Identity, Kind, Names
from palyra.workspace.names import START, ProtectedNames, State, protected_names_of
from palyra.workspace.protected_table import (
    PACKAGE_FOLDERS,
    REPOSITORY_JUDGED,
    REPOSITORY_PATTERN,
    REPOSITORY_SIGNS,
    Handling,
    brought_by_no_package,
    handling_of,
    is_repository,
)
from palyra.workspace.root import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, hold, openat2

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
        """Open it again, if it was closed, from a directory in it. False if that has moved elsewhere."""
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


class TreeWalk(ABC, Generic[S]):
    """One or more walks with a common count.

    ``unseen`` are the directories that were not scanned to their end, and ``shortfall`` tells why. Nothing in
    ``without`` is entered. Each directory has a state, whose meaning only the subclass knows.
    """

    def __init__(self, most: int, without: frozenset[Names] = frozenset()) -> None:
        self.entries = 0
        self.shortfall = ""
        self.unseen: set[Names] = set()
        self._most = most
        self._without = without
        self._uid = os.geteuid()

    @abstractmethod
    def children(self, directory: int, names: list[bytes], state: S) -> list[tuple[bytes, S]]:
        """Look at a directory and return the directories to enter. Call ``counted`` for each entry."""

    def counted(self, names: list[bytes]) -> bool:
        """Count one more entry of the directory ``names``. False ends the look at it."""
        self.entries += 1
        if self.entries <= self._most:
            return True
        self.not_seen(names, f"more than {self._most} files")
        return False

    def walk(self, directory: int, names: Names, state: S) -> None:
        """Walk depth first, and close ``directory``."""
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
        if len(levels) > limits.MAX_SCAN_DESCRIPTORS:
            levels[-1 - limits.MAX_SCAN_DESCRIPTORS].close()

    def _left_out(self, path: list[bytes]) -> bool:
        if self._without and len(path) <= limits.MAX_MOUNT_DEPTH and tuple(path) in self._without:
            return True
        if len(path) > limits.MAX_SCAN_DEPTH:
            self.not_seen(path, f"deeper than {limits.MAX_SCAN_DEPTH} directories")
            return True
        return False

    def _give_up(self, levels: list[_Level[S]], path: list[bytes], reason: str) -> None:
        """Report all that is pending. ``path`` is that of the last level; many directories in one count as that one."""
        base = len(path) - len(levels) + 1
        for place, level in enumerate(levels):
            here = path[: min(base + place, limits.MAX_MOUNT_DEPTH)]
            if here and len(level.pending) > limits.MAX_UNSEEN_IN_ONE:
                self.not_seen(here, reason)
                continue
            for name, _ in level.pending:
                self.not_seen([*here, name], reason)

    def not_seen(self, path: list[bytes], reason: str) -> None:
        """Report a directory, or one above it that is not too deep to carry a mount."""
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
        """Whether the program may change a directory that we may not read: not that of another user."""
        try:
            return os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid == self._uid
        except OSError:
            return False


_JUDGED_NAMES: Final = frozenset({b".git", b".gitmodules", *REPOSITORY_JUDGED, b"gitdir"})
RESOLVE_NO_SYMLINKS: Final = 0x04
NO_LINKS: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One protected name that exists. ``target`` is the text of a link.

    ``judged`` names may change: their ``content`` decides. It is None where that cannot be read.
    """

    names: Names
    kind: Kind
    identity: Identity
    pattern: str
    links: int
    target: bytes = b""
    judged: bool = False
    content: bytes | None = None
    mode: int = 0

    @property
    def sealed(self) -> bool:
        """Whether a program finds it read-only. A link cannot carry a mount."""
        return self.kind is not Kind.LINK and not (self.judged and self.kind is Kind.FILE)


class WorkspaceScan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found, by path. ``real_places`` are the targets of links with protected names, if inside.

    ``unseen`` are the directories that were not scanned to their end, and ``shortfall`` tells why. ``hard_links`` are
    unprotected other names of protected files. ``repositories`` are directories that git takes for one by content.
    """

    found: dict[Names, Found]
    real_places: frozenset[Names]
    entries: int
    shortfall: str
    unseen: frozenset[Names] = frozenset()
    hard_links: frozenset[Names] = frozenset()
    repositories: frozenset[Names] = frozenset()


def scan_workspace(
    workspace: int, protected: ProtectedNames, *, most: int | None = None, without: frozenset[Names] = frozenset()
) -> WorkspaceScan:
    """Walk the whole workspace once, past at most ``most`` entries, and enter nothing in ``without``."""
    walker = _Walker(workspace, protected, limits.MAX_SCANNED_ENTRIES if most is None else most, without)
    if protected.patterns:
        walker.walk(os.open(b".", DIRECTORY, dir_fd=workspace), (), START)
        walker.follow_links()
    return WorkspaceScan(
        found=walker.found,
        real_places=frozenset(walker.real_places),
        entries=walker.entries,
        shortfall=walker.shortfall,
        unseen=frozenset(walker.unseen),
        repositories=frozenset(walker.repositories),
    )


def look_at(workspace: int, names: Names, pattern: str) -> Found | None:
    """Look at one name as the scan does. None if it is gone, or lies behind a link."""
    walker = _Walker(workspace, protected_names_of(()), 1, frozenset())
    try:
        with hold(open_names(workspace, names[:-1])) as parent:
            walker.record(parent, names, pattern)
    except OSError:
        return None
    return walker.found.get(names)


def beneath(names: Names, places: frozenset[Names]) -> bool:
    return bool(places) and any(names[:cut] in places for cut in range(min(len(names), limits.MAX_MOUNT_DEPTH) + 1))


class _Walker(TreeWalk[State]):
    def __init__(self, workspace: int, protected: ProtectedNames, most: int, without: frozenset[Names]) -> None:
        super().__init__(most, without)
        self.workspace = workspace
        self.protected = protected
        self._packaged = protected_names_of(brought_by_no_package(protected.patterns))
        self.found: dict[Names, Found] = {}
        self.real_places: set[Names] = set()
        self.repositories: set[Names] = set()
        self._watches_git = REPOSITORY_PATTERN in protected.patterns
        self._links: list[tuple[Names, State]] = []

    def children(self, directory: int, names: list[bytes], state: State) -> list[tuple[bytes, State]]:
        """Record the protected names of a directory, and return the directories to enter."""
        protected = self.protected if PACKAGE_FOLDERS.isdisjoint(names) else self._packaged
        step, parent_of = protected.step, protected.parent_of
        enter: list[tuple[bytes, State]] = []
        signs: set[str] = set()
        with os.scandir(directory) as entries:
            for entry in entries:
                if not self.counted(names):
                    return []
                if entry.name in REPOSITORY_SIGNS:
                    signs.add(entry.name.lower())
                pattern, onward = step(state, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if pattern is None and is_directory:
                    enter.append((os.fsencode(entry.name), onward))
                    continue
                # Complete, or a file or link in the place of a protected name's parent (a file named .git).
                at = pattern or (parent_of(onward, link=entry.is_symlink()) if onward else None)
                if at is None:
                    continue
                path = (*names, os.fsencode(entry.name))
                self.entries += len(names)
                self.record(directory, path, at)
                if entry.is_symlink():
                    self._links.append((path, START if pattern else onward))
        if self._watches_git and is_repository(signs):
            self._record_repository(directory, tuple(names))
        return enter

    def _record_repository(self, directory: int, names: Names) -> None:
        """Record what git reads in a directory that it takes for a repository, whatever its name is."""
        if b".git" not in names:
            self.repositories.add(names)
        for each in REPOSITORY_JUDGED:
            self.entries += len(names)
            self.record(directory, (*names, each), REPOSITORY_PATTERN)

    def record(self, directory: int, path: Names, pattern: str) -> None:
        try:
            status = os.stat(path[-1], dir_fd=directory, follow_symlinks=False)
            kind = kind_of(status.st_mode)
            target = os.readlink(path[-1], dir_fd=directory) if kind is Kind.LINK else b""
        except OSError:
            return
        judged = handling_of(pattern) is Handling.JUDGED and path[-1].lower() in _JUDGED_NAMES
        self.found[path] = Found(
            names=path,
            kind=kind,
            identity=Identity(status.st_dev, status.st_ino),
            pattern=pattern,
            links=status.st_nlink if kind is Kind.FILE else 1,
            target=target,
            judged=judged,
            content=_read_small(directory, path[-1]) if judged and kind is Kind.FILE else None,
            mode=stat.S_IMODE(status.st_mode),
        )

    def follow_links(self) -> None:
        """Protect the target of a link with a protected name at its real place, if that is in the workspace."""
        if not self._links:
            return
        root = os.readlink(b"/proc/self/fd/%d" % self.workspace)
        for count, (path, state) in enumerate(self._links):
            if count >= limits.MAX_FOLLOWED_LINKS:
                # The targets of the others could be anywhere.
                self.not_seen([], f"more than {limits.MAX_FOLLOWED_LINKS} links with protected names")
                return
            place = self._real_place(path, root)
            if place is None or not place[0]:
                continue
            names, opened = place
            if not state:
                os.close(opened)
                self.real_places.add(names)
                continue
            self._follow_parent(names, opened, state)

    def _follow_parent(self, names: Names, opened: int, state: State) -> None:
        """Search the directory that a link stands for: the rest of a protected name may lie in it."""
        before = set(self.found)
        try:
            directory = os.open(b"/proc/self/fd/%d" % opened, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            # A link to a file in a parent's place: the file itself decides what the parent is.
            self.real_places.add(names)
            return
        finally:
            os.close(opened)
        self.walk(directory, names, state)
        for new in set(self.found) - before:
            self.real_places.add(new)

    def _real_place(self, path: Names, root: bytes) -> tuple[Names, int] | None:
        """Open the target of a link without touching it, and ask the kernel for its path.

        A path that is too long for the kernel counts as none: only a program in the workspace can have made it.
        """
        try:
            with hold(open_names(self.workspace, path[:-1])) as parent:
                opened = os.open(path[-1], os.O_PATH | os.O_CLOEXEC, dir_fd=parent)
        except OSError:
            return None
        try:
            here = os.readlink(b"/proc/self/fd/%d" % opened)
        except OSError:
            here = b""
        if not here.startswith(root + b"/"):
            os.close(opened)
            return None
        return tuple(here[len(root) + 1 :].split(b"/")), opened


def _read_small(directory: int, name: bytes) -> bytes | None:
    """Read a file whose content is judged. None if it is too large for one, or closed to us."""
    try:
        with hold(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)) as file:
            content = os.read(file, limits.MAX_JUDGED_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= limits.MAX_JUDGED_BYTES else None


def open_names(root: int, names: Names, flags: int = os.O_PATH | os.O_DIRECTORY) -> int:
    """Open the file at ``names``, past no link, however long the path is. The caller closes it."""
    here = os.dup(root)
    for start in range(0, max(len(names), 1), limits.NAMES_AT_ONCE):
        part = names[start : start + limits.NAMES_AT_ONCE]
        last = start + limits.NAMES_AT_ONCE >= len(names)
        with hold(here):
            path = b"/".join(part) or b"."
            here = openat2(here, path, flags if last else os.O_PATH | os.O_DIRECTORY, resolve=NO_LINKS)
    return here


def kind_of(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def remove_tree(path: str) -> None:
    """Remove the private folder of an ended program, however deep it nested it. Errors are ignored.

    A program can nest deeper than any process can hold directories open. So every directory is first moved up to the
    top, where it is emptied: nothing is ever more than two levels down.
    """
    with suppress(OSError), hold(os.open(path, DIRECTORY)) as top:
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
    """Remove one entry of the top directory. Return how many directories this moved there."""
    if not _is_directory(top, name):
        os.unlink(name, dir_fd=top)
        return 0
    moved = 0
    with hold(_opened(top, name)) as directory:
        for inner in os.listdir(directory):
            if _is_directory(directory, inner):
                # Moving a directory changes its own entry "..", which its mode must allow.
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
    """Open a directory of ours, and restore the rights to it that its program may have removed."""
    with hold(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)) as place:
        if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
        return os.open(b".", DIRECTORY, dir_fd=place)
