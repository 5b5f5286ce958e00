"""Looks through a workspace for protected names, by descriptor and without ever following a link by accident."""

import os
import stat
from collections.abc import Iterator
from typing import Final

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.host_facts import Identity, Kind, Names
from palyra.sandbox.protected_match import START, ProtectedMachine, State

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One protected name that exists. ``target`` is the text of a link."""

    names: Names
    kind: Kind
    identity: Identity
    pattern: str
    links: int
    target: bytes = b""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found, by path. ``real_places`` are where links with protected names lead, if inside."""

    found: dict[Names, Found]
    real_places: frozenset[Names]
    entries: int
    shortfall: str


def survey(workspace: int, machine: ProtectedMachine, *, most: int | None = None) -> Survey:
    """Walks the whole workspace once, within bounds that ``shortfall`` speaks of when they were reached."""
    walker = _Walker(workspace, machine, limits.MAX_SURVEYED_ENTRIES if most is None else most)
    if not machine.empty:
        walker.walk(os.open(b".", _DIRECTORY, dir_fd=workspace), (), START)
        walker.follow_links()
    return Survey(
        found=walker.found,
        real_places=frozenset(walker.real_places),
        entries=walker.entries,
        shortfall=walker.shortfall,
    )


class _Walker:
    def __init__(self, workspace: int, machine: ProtectedMachine, most: int) -> None:
        self.workspace = workspace
        self.machine = machine
        self.found: dict[Names, Found] = {}
        self.real_places: set[Names] = set()
        self.entries = 0
        self._most = most
        self.shortfall = ""
        self._links: list[tuple[Names, State]] = []
        self._root = os.readlink(b"/proc/self/fd/%d" % workspace)
        self._uid = os.geteuid()

    def walk(self, directory: int, names: Names, state: State) -> None:
        """Depth first, one descriptor for each level. Closes ``directory``."""
        stack = [(directory, self._children(directory, names, state))]
        try:
            while stack:
                inner = next(stack[-1][1], None)
                if inner is None:
                    os.close(stack.pop()[0])
                    continue
                path, onward = inner
                if len(stack) >= limits.MAX_SURVEY_DEPTH:
                    self.shortfall = f"deeper than {limits.MAX_SURVEY_DEPTH} directories"
                    continue
                opened = self._open(path, stack[-1][0])
                if opened is not None:
                    stack.append((opened, self._children(opened, path, onward)))
        finally:
            for each, _ in stack:
                os.close(each)

    def _open(self, path: Names, parent: int) -> int | None:
        try:
            return os.open(path[-1], _DIRECTORY, dir_fd=parent)
        except PermissionError:
            # A directory of somebody else's that we may not read the program may not change either.
            if os.stat(path[-1], dir_fd=parent, follow_symlinks=False).st_uid == self._uid:
                self.shortfall = "a directory of this user's that cannot be read"
        except OSError:
            # It went away, or became something else: then it is not a directory of the workspace now.
            pass
        return None

    def _children(self, directory: int, names: Names, state: State) -> Iterator[tuple[Names, State]]:
        """Records what is protected here and yields the directories to enter."""
        step = self.machine.step
        enter: list[tuple[Names, State]] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                self.entries += 1
                if self.entries > self._most:
                    self.shortfall = f"more than {self._most} files"
                    return
                pattern, onward = step(state, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if pattern is None and (is_directory or not onward):
                    if is_directory:
                        enter.append(((*names, os.fsencode(entry.name)), onward))
                    continue
                # Complete, or a file or link in the place of a protected name's parent (a file named .git).
                path = (*names, os.fsencode(entry.name))
                self._record(directory, path, pattern or onward[0][0].source)
                if entry.is_symlink():
                    self._links.append((path, START if pattern else onward))
        yield from enter

    def _record(self, directory: int, path: Names, pattern: str) -> None:
        try:
            status = os.stat(path[-1], dir_fd=directory, follow_symlinks=False)
            kind = kind_of(status.st_mode)
            target = os.readlink(path[-1], dir_fd=directory) if kind is Kind.LINK else b""
        except OSError:
            return
        self.found[path] = Found(
            names=path,
            kind=kind,
            identity=Identity(status.st_dev, status.st_ino),
            pattern=pattern,
            links=status.st_nlink if kind is Kind.FILE else 1,
            target=target,
        )

    def follow_links(self) -> None:
        """What a link with a protected name leads to is protected at its real place, if that is in the workspace."""
        for count, (path, state) in enumerate(self._links):
            if count >= limits.MAX_FOLLOWED_LINKS:
                self.shortfall = f"more than {limits.MAX_FOLLOWED_LINKS} links with protected names"
                return
            place = self._real_place(path)
            if place is None or not place[0]:
                continue
            names, opened = place
            if not state:
                os.close(opened)
                self.real_places.add(names)
                continue
            self._follow_parent(names, opened, state)

    def _follow_parent(self, names: Names, opened: int, state: State) -> None:
        """The link stands for a directory above a protected name: look for the rest of the name in it."""
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

    def _real_place(self, path: Names) -> tuple[Names, int] | None:
        """Opens what the link leads to without touching it, and asks the kernel where that is."""
        try:
            opened = os.open(b"/".join((self._root, *path)), os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return None
        here = os.readlink(b"/proc/self/fd/%d" % opened)
        if not here.startswith(self._root + b"/"):
            os.close(opened)
            return None
        return tuple(here[len(self._root) + 1 :].split(b"/")), opened


def kind_of(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER
