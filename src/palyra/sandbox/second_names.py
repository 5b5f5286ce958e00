"""Other names of protected files: hard links, through which a file could be changed past the mount on its first name.

A file in a protected directory counts as protected. Whoever has none with a second name, as almost everybody, pays for
a look into the protected directories; else the workspace is walked once more, for the numbers of those files.
"""

import os
import stat

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.descent import DIRECTORY, Descent
from palyra.sandbox.host_facts import Identity, Kind, Names
from palyra.sandbox.survey import Survey, open_names
from palyra.workspace.openat2 import held


def with_second_names(workspace: int, seen: Survey, *, most: int | None = None) -> Survey:
    """The survey with the other names that protected files have in the workspace. What is looked at for them counts as
    its entries too; each of the two looks ends after ``most``."""
    bound = limits.MAX_SURVEYED_ENTRIES if most is None else most
    inside = _Inside(bound)
    for names, each in seen.found.items():
        if each.kind is Kind.DIRECTORY or each.links > 1:
            inside.look(workspace, names)
    for names in seen.real_places:
        inside.look(workspace, names)
    if not inside.linked:
        return _told(seen, inside)
    finder = _Finder(inside.linked, frozenset({*seen.found, *seen.real_places}), seen.unseen | inside.unseen, bound)
    finder.walk(os.open(b".", DIRECTORY, dir_fd=workspace), (), None)
    return msgspec.structs.replace(_told(_told(seen, inside), finder), second_names=frozenset(finder.names))


def _told(seen: Survey, walked: Descent[None]) -> Survey:
    """What was not looked through for names is as good as not looked through."""
    return msgspec.structs.replace(
        seen,
        entries=seen.entries + walked.entries,
        unseen=seen.unseen | walked.unseen,
        shortfall=walked.shortfall or seen.shortfall,
    )


class _Inside(Descent[None]):
    """The files with several names among protected ones and in protected directories."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.linked: set[Identity] = set()

    def look(self, workspace: int, names: Names) -> None:
        try:
            with held(open_names(workspace, names, os.O_PATH | os.O_NOFOLLOW)) as place:
                status = os.fstat(place)
                if not stat.S_ISDIR(status.st_mode):
                    if status.st_nlink > 1:
                        self.linked.add(Identity(status.st_dev, status.st_ino))
                    return
                directory = os.open(b".", DIRECTORY, dir_fd=place)
        except OSError:
            # Gone, or closed to us: the mount on it shows what it is.
            return
        self.walk(directory, names, None)

    def children(self, directory: int, names: list[bytes], state: None) -> list[tuple[bytes, None]]:
        enter: list[tuple[bytes, None]] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if not self.counted(names):
                    return []
                if entry.is_dir(follow_symlinks=False):
                    enter.append((os.fsencode(entry.name), None))
                elif entry.is_file(follow_symlinks=False) and (identity := _with_links(entry.name, directory)):
                    self.linked.add(identity)
        return enter


class _Finder(Descent[None]):
    """Names outside the protected ones whose files are among those wanted."""

    def __init__(
        self, wanted: set[Identity], protected: frozenset[Names], without: frozenset[Names], most: int
    ) -> None:
        super().__init__(most, without | protected)
        self._wanted = wanted
        self._inodes = {each.inode for each in wanted}
        self._protected = protected
        self.names: set[Names] = set()

    def children(self, directory: int, names: list[bytes], state: None) -> list[tuple[bytes, None]]:
        enter: list[tuple[bytes, None]] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if not self.counted(names):
                    return []
                if entry.is_dir(follow_symlinks=False):
                    enter.append((os.fsencode(entry.name), None))
                elif entry.inode() in self._inodes and _with_links(entry.name, directory) in self._wanted:
                    path = (*names, os.fsencode(entry.name))
                    if path not in self._protected:
                        self.entries += len(names)
                        self.names.add(path)
        return enter


def _with_links(name: str, directory: int) -> Identity | None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return Identity(status.st_dev, status.st_ino) if status.st_nlink > 1 else None
