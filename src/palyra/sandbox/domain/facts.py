"""What a plan needs to know about the machine and about one workspace, as values that an adapter has gathered."""

from enum import StrEnum

import msgspec

from palyra.errors import LimitExceeded
from palyra.sandbox.limits import MAX_PROTECTED_MOUNTS, MAX_UNFOLDED_MOUNTS

Names = tuple[bytes, ...]


class TooManyProtected(LimitExceeded):
    code = "sandbox.too_many_protected_names"
    hint = "thousands of protected names, or millions of files, lie in the workspace's own directory; remove some"


class HostHold(StrEnum):
    """How the machine can be held read-only while bubblewrap works on it (``read_only_host``)."""

    MISSING = "missing"
    MOUNT_NAMESPACE = "mount_namespace"
    USER_NAMESPACE = "user_namespace"


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The machine. ``bwrap_options`` are the long options that this bubblewrap says it knows."""

    bwrap: str
    bwrap_version: tuple[int, ...]
    bwrap_options: frozenset[str]
    uid: int
    gid: int
    # (/bin, usr/bin) where the host has a link; a host with real directories lists them in root_directories.
    root_links: tuple[tuple[str, str], ...] = ()
    root_directories: tuple[str, ...] = ()
    etc_paths: tuple[str, ...] = ()
    # Those of them that are no directories.
    etc_files: frozenset[str] = frozenset()
    etc_links: tuple[tuple[str, str], ...] = ()
    resolv_conf: bytes = b""
    hosts: bytes = b""
    hold: HostHold = HostHold.MISSING


class Kind(StrEnum):
    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"
    OTHER = "other"


class Identity(msgspec.Struct, frozen=True):
    """Which inode: what a path must still lead to when it is mounted."""

    device: int
    inode: int


class ProtectedMount(msgspec.Struct, frozen=True, kw_only=True):
    """One mount beneath the workspace. An ancestor is mounted on itself so that it cannot be renamed away."""

    names: Names
    identity: Identity
    read_only: bool
    reason: str


class WorkspaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One workspace as it was looked at. ``watched_links`` have protected names but cannot carry a mount."""

    root: bytes
    identity: Identity
    mounts: tuple[ProtectedMount, ...] = ()
    watched_links: int = 0
    # Other names of protected files, each with a mount of its own.
    second_names: int = 0
    # Directories that were not looked through and are read-only as a whole, and why.
    unseen: int = 0
    shortfall: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    host: HostFacts
    workspace: WorkspaceFacts
    seccomp: bytes | None = None


def fold(protected: frozenset[Names], budget: int = MAX_PROTECTED_MOUNTS) -> frozenset[Names]:
    """The paths to make read-only so that few enough mounts are needed.

    Where there are too many, the deepest directory that holds enough of them becomes read-only as a whole: more is
    protected than was asked, never less. Names directly in the root cannot be folded: past a harder bound they are an
    error.
    """
    kept = frozenset(names for names in protected if not any(names[:cut] in protected for cut in range(1, len(names))))
    while len(mounted := with_ancestors(kept)) > budget:
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
    if len(mounted) > MAX_UNFOLDED_MOUNTS:
        raise TooManyProtected(
            f"{len(mounted)} mounts would be needed to protect the names in this workspace", mounts=len(mounted)
        )
    return kept


def with_ancestors(protected: frozenset[Names]) -> frozenset[Names]:
    """The paths and every directory between them and the root, without the root."""
    return frozenset(names[:cut] for names in protected for cut in range(1, len(names) + 1))
