"""The protected names of a workspace as mounts whose destinations exist, hold no link, and are known by inode.

bubblewrap before 0.12 creates a missing mount point through links in the workspace, on the host (CVE-2026-87766). So
every destination beneath the workspace is resolved here with RESOLVE_NO_SYMLINKS. Before the program may start,
``readback`` compares each one with the inode that was seen.
"""

import errno
import os
import stat
from typing import Final

import msgspec

from palyra.errors import LimitExceeded, Unavailable
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import (
    Identity,
    Kind,
    Names,
    ProtectedMount,
    WorkspaceFacts,
)
from palyra.sandbox.domain.profile import BadProfile, SandboxProfile
from palyra.sandbox.layers.workspace_scan import (
    DIRECTORY,
    NO_LINKS,
    TreeWalk,
    WorkspaceScan,
    open_names,
    scan_workspace,
)
from palyra.workspace.names import decode_name, protected_names_of, render_name
from palyra.workspace.protected_table import watched_in_sandbox
from palyra.workspace.root import RESOLVE_BENEATH, hold, openat2


class TooManyProtected(LimitExceeded):
    code = "sandbox.too_many_protected_names"
    hint = "thousands of protected names, or millions of files, lie in the workspace's own directory; remove some"


def fold(protected: frozenset[Names], budget: int = limits.MAX_PROTECTED_MOUNTS) -> frozenset[Names]:
    """Choose the paths to make read-only so that few enough mounts are needed.

    If there are too many, the deepest directory that holds enough of them becomes read-only as a whole: that protects
    more than needed, never less. Names directly in the root cannot be folded: past a harder bound they are an error.
    """
    kept = frozenset(names for names in protected if not any(names[:cut] in protected for cut in range(1, len(names))))
    while len(mounted := add_ancestors(kept)) > budget:
        weight: dict[Names, int] = {}
        for names in mounted:
            for cut in range(1, len(names) + 1):
                weight[names[:cut]] = weight.get(names[:cut], 0) + 1
        foldable = {names: count for names, count in weight.items() if count > 1}
        if not foldable:
            break
        excess = len(mounted) - budget
        enough = [names for names, count in foldable.items() if count - 1 >= excess]
        if enough:
            chosen = max(enough, key=lambda names: (len(names), -foldable[names], names))
        else:
            chosen = max(foldable, key=lambda names: (foldable[names], -len(names), names))
        kept = frozenset({chosen, *(names for names in kept if names[: len(chosen)] != chosen)})
    if len(mounted) > limits.MAX_UNFOLDED_MOUNTS:
        raise TooManyProtected(
            f"{len(mounted)} mounts would be needed to protect the names in this workspace", mounts=len(mounted)
        )
    return kept


def add_ancestors(protected: frozenset[Names]) -> frozenset[Names]:
    """Add every directory between the paths and the root, without the root."""
    return frozenset(names[:cut] for names in protected for cut in range(1, len(names) + 1))


# Hard links to protected files: through them a file could be changed past the mount on its first name.
#
# A file in a protected directory counts as protected. Nearly all workspaces have no such link and cost a walk of the
# protected directories. Else the workspace is walked once more, for the inodes of those files.


def add_hard_links(workspace: int, seen: WorkspaceScan) -> WorkspaceScan:
    """Add to a scan the other names of protected files in the workspace.

    The entries seen for that count as the scan's too.
    """
    bound = limits.MAX_SCANNED_ENTRIES
    inside = _Inside(bound)
    for names, each in seen.found.items():
        if each.kind is Kind.DIRECTORY or each.links > 1:
            inside.look(workspace, names)
    for names in seen.real_places:
        inside.look(workspace, names)
    if not inside.linked:
        return _add_walk(seen, inside)
    finder = _Finder(inside.linked, frozenset({*seen.found, *seen.real_places}), seen.unseen | inside.unseen, bound)
    finder.walk(os.open(b".", DIRECTORY, dir_fd=workspace), (), None)
    return msgspec.structs.replace(_add_walk(_add_walk(seen, inside), finder), hard_links=frozenset(finder.names))


def _add_walk(seen: WorkspaceScan, walked: TreeWalk[None]) -> WorkspaceScan:
    """Add the counts of another walk, and the directories that it did not finish."""
    return msgspec.structs.replace(
        seen,
        entries=seen.entries + walked.entries,
        unseen=seen.unseen | walked.unseen,
        shortfall=walked.shortfall or seen.shortfall,
    )


class _Inside(TreeWalk[None]):
    """The files with several names among protected ones and in protected directories."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.linked: set[Identity] = set()

    def look(self, workspace: int, names: Names) -> None:
        try:
            with hold(open_names(workspace, names, os.O_PATH | os.O_NOFOLLOW)) as place:
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


class _Finder(TreeWalk[None]):
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


_LOOK: Final = os.O_PATH | os.O_NOFOLLOW
# An absolute path leads nowhere but beneath the top, and needs no directory to start from.
_FROM_THE_TOP: Final = NO_LINKS & ~RESOLVE_BENEATH
_NOWHERE: Final = -1


class WorkspaceMoved(Unavailable):
    code = "sandbox.workspace_moved"
    hint = "something renamed or replaced directories of the workspace while the sandbox was prepared; try again"


def open_workspace_root(path: str) -> int:
    """Open the root. A link on the way is refused: bubblewrap mounts by path and must reach the same directory."""
    try:
        return openat2(_NOWHERE, b"/" + os.fsencode(path), os.O_RDONLY | os.O_DIRECTORY, resolve=_FROM_THE_TOP)
    except OSError as error:
        hint = f"use its real path: {os.path.realpath(path)}" if error.errno == errno.ELOOP else None
        raise BadProfile(f"the workspace {render_name(path)} cannot be opened: {error.strerror}", hint=hint) from error


def look(root: int, names: Names) -> Identity:
    """Read the inode at a path that passes no link. Raise ``sandbox.workspace_moved`` if it is gone."""
    try:
        with hold(open_names(root, names, _LOOK)) as opened:
            status = os.fstat(opened)
    except OSError as error:
        path = render_name(decode_name(b"/".join(names)))
        raise WorkspaceMoved(f"{path} changed while the sandbox was prepared: {error.strerror}", path=path) from error
    return Identity(status.st_dev, status.st_ino)


def facts_of(root: int, profile: SandboxProfile, seen: WorkspaceScan) -> WorkspaceFacts:
    """Derive facts about an open workspace from a scan of it."""
    status = os.fstat(root)
    there = {names for names, each in seen.found.items() if each.sealed}
    exact = there | seen.real_places | seen.hard_links
    protected = fold(frozenset(_mountable(profile, names) for names in exact | seen.unseen))
    if () in protected:
        raise TooManyProtected(f"the workspace cannot be looked through: {seen.shortfall}")
    mounts = tuple(
        ProtectedMount(
            names=names,
            identity=look(root, names),
            read_only=names in protected,
            reason=_reason(names, seen, in_full=names in protected, named=names in exact),
        )
        for names in sorted(add_ancestors(protected))
    )
    return WorkspaceFacts(
        root=os.fsencode(profile.workspace_root),
        identity=Identity(status.st_dev, status.st_ino),
        mounts=() if profile.read_only else mounts,
        watched_links=sum(each.kind is Kind.LINK for each in seen.found.values()),
        hard_links=len(seen.hard_links),
        shortfall=seen.shortfall,
        unseen=len(seen.unseen),
    )


def _mountable(profile: SandboxProfile, names: Names) -> Names:
    """Return the name itself, or the lowest directory above it whose path is short enough for a mount."""
    left = limits.MAX_MOUNT_PATH_BYTES - len(os.fsencode(profile.workspace_root))
    for place, name in enumerate(names[: limits.MAX_MOUNT_DEPTH]):
        left -= len(name) + 1
        if left < 0:
            return names[:place]
    return names[: limits.MAX_MOUNT_DEPTH]


def gather_workspace(profile: SandboxProfile) -> tuple[WorkspaceFacts, WorkspaceScan]:
    """Scan the workspace as it is now. The caller keeps the scan to compare it with one after the call."""
    protected = protected_names_of(watched_in_sandbox(profile.protected_names))
    with hold(open_workspace_root(profile.workspace_root)) as root:
        seen = add_hard_links(root, scan_workspace(root, protected))
        if profile.seals_git:
            sealed = {names: msgspec.structs.replace(each, judged=False) for names, each in seen.found.items()}
            seen = msgspec.structs.replace(seen, found=sealed)
        return facts_of(root, profile, seen), seen


def _reason(names: Names, seen: WorkspaceScan, *, in_full: bool, named: bool) -> str:
    if not in_full:
        return "a mount, so that the protected name beneath it cannot be renamed away"
    if names in seen.unseen:
        return f"not looked through to its end: {seen.shortfall}"
    if not named:
        return "holds more protected names than can be mounted one by one"
    if names in seen.found:
        return f"protected by {render_name(seen.found[names].pattern)}"
    if names in seen.hard_links:
        return "another name of a protected file"
    return "where a link with a protected name leads"
