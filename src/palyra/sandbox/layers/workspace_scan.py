"""Looks through a workspace for protected names, by descriptor and without ever following a link by accident."""

import os
import stat
from typing import Final

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Identity, Kind, Names
from palyra.sandbox.layers.protected_patterns import START, ProtectedMachine, State
from palyra.sandbox.layers.tree_walk import DIRECTORY, Descent
from palyra.workspace.openat2 import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, held, openat2

RESOLVE_NO_SYMLINKS: Final = 0x04
NO_LINKS: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One protected name that exists. ``target`` is the text of a link."""

    names: Names
    kind: Kind
    identity: Identity
    pattern: str
    links: int
    target: bytes = b""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found, by path. ``real_places`` are where links with protected names lead, if inside.

    ``unseen`` are the directories that were not looked through to their end, and ``shortfall`` says why.
    ``second_names`` are other names, not protected ones, of files that are protected.
    """

    found: dict[Names, Found]
    real_places: frozenset[Names]
    entries: int
    shortfall: str
    unseen: frozenset[Names] = frozenset()
    second_names: frozenset[Names] = frozenset()


def survey(
    workspace: int, machine: ProtectedMachine, *, most: int | None = None, without: frozenset[Names] = frozenset()
) -> Survey:
    """Walks the whole workspace once, past at most ``most`` entries, and enters nothing in ``without``."""
    walker = _Walker(workspace, machine, limits.MAX_SURVEYED_ENTRIES if most is None else most, without)
    if not machine.empty:
        walker.walk(os.open(b".", DIRECTORY, dir_fd=workspace), (), START)
        walker.follow_links()
    return Survey(
        found=walker.found,
        real_places=frozenset(walker.real_places),
        entries=walker.entries,
        shortfall=walker.shortfall,
        unseen=frozenset(walker.unseen),
    )


def beneath(names: Names, places: frozenset[Names]) -> bool:
    return bool(places) and any(names[:cut] in places for cut in range(min(len(names), limits.MAX_MOUNT_DEPTH) + 1))


class _Walker(Descent[State]):
    def __init__(self, workspace: int, machine: ProtectedMachine, most: int, without: frozenset[Names]) -> None:
        super().__init__(most, without)
        self.workspace = workspace
        self.machine = machine
        self.found: dict[Names, Found] = {}
        self.real_places: set[Names] = set()
        self._links: list[tuple[Names, State]] = []

    def children(self, directory: int, names: list[bytes], state: State) -> list[tuple[bytes, State]]:
        """Records what is protected here and returns the directories to enter."""
        step = self.machine.step
        enter: list[tuple[bytes, State]] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if not self.counted(names):
                    return []
                pattern, onward = step(state, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if pattern is None and (is_directory or not onward):
                    if is_directory:
                        enter.append((os.fsencode(entry.name), onward))
                    continue
                # Complete, or a file or link in the place of a protected name's parent (a file named .git).
                path = (*names, os.fsencode(entry.name))
                self.entries += len(names)
                self._record(directory, path, pattern or onward[0][0].source)
                if entry.is_symlink():
                    self._links.append((path, START if pattern else onward))
        return enter

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
        if not self._links:
            return
        root = os.readlink(b"/proc/self/fd/%d" % self.workspace)
        for count, (path, state) in enumerate(self._links):
            if count >= limits.MAX_FOLLOWED_LINKS:
                # What the others lead to could be anywhere.
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

    def _real_place(self, path: Names, root: bytes) -> tuple[Names, int] | None:
        """Opens what the link leads to without touching it, and asks the kernel where that is. A place whose path is
        too long for the kernel to tell is nowhere: nobody but a program in the workspace has made it."""
        try:
            with held(open_names(self.workspace, path[:-1])) as parent:
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


def open_names(root: int, names: Names, flags: int = os.O_PATH | os.O_DIRECTORY) -> int:
    """What lies at ``names``, past no link, however long the path is. The caller closes it."""
    here = os.dup(root)
    for start in range(0, max(len(names), 1), limits.NAMES_AT_ONCE):
        part = names[start : start + limits.NAMES_AT_ONCE]
        last = start + limits.NAMES_AT_ONCE >= len(names)
        with held(here):
            path = b"/".join(part) or b"."
            here = openat2(here, path, flags if last else os.O_PATH | os.O_DIRECTORY, resolve=NO_LINKS)
    return here


def kind_of(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER
