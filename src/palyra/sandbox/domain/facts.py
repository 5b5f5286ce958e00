"""Facts about the machine and one workspace that a plan depends on, as values that an adapter has gathered."""

from enum import StrEnum

import msgspec

Names = tuple[bytes, ...]


class HostHold(StrEnum):
    """How the machine can be held read-only while bubblewrap works on it (``read_only_host``)."""

    MISSING = "missing"
    MOUNT_NAMESPACE = "mount_namespace"
    USER_NAMESPACE = "user_namespace"


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The machine. ``bwrap_options`` are the long options that this bubblewrap lists in its help."""

    bwrap: str
    bwrap_version: tuple[int, ...]
    bwrap_options: frozenset[str]
    uid: int
    gid: int
    # (/bin, usr/bin) where the host has a link; a host with real directories lists them in root_directories.
    root_links: tuple[tuple[str, str], ...] = ()
    root_directories: tuple[str, ...] = ()
    etc_paths: tuple[str, ...] = ()
    # Those of them that are not directories.
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
    """An inode: a path must still lead to it when it is mounted."""

    device: int
    inode: int


class ProtectedMount(msgspec.Struct, frozen=True, kw_only=True):
    """One mount beneath the workspace. An ancestor is mounted on itself so that it cannot be renamed away."""

    names: Names
    identity: Identity
    read_only: bool
    reason: str


class WorkspaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One workspace as it was scanned. ``watched_links`` have protected names but cannot carry a mount."""

    root: bytes
    identity: Identity
    mounts: tuple[ProtectedMount, ...] = ()
    watched_links: int = 0
    # Other names of protected files, each with a mount of its own.
    hard_links: int = 0
    # Directories that were not scanned and are read-only as a whole, and why.
    unseen: int = 0
    shortfall: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    host: HostFacts
    workspace: WorkspaceFacts
    seccomp: bytes | None = None


class Change(StrEnum):
    APPEARED = "appeared"
    REPLACED = "replaced"
    REMOVED = "removed"
    CHANGED = "changed"


class ProtectedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One protected name that a call changed.

    ``moved_to`` is where it is now, and ``problem`` is why it was not moved. ``harmless`` ones stay: their content
    makes nothing run, or the change came from outside the sandbox. ``put_back`` ones are again as before the call.
    """

    names: Names
    change: Change
    pattern: str
    kind: Kind
    why: str = ""
    harmless: bool = False
    # A directory that git takes for a repository by its content.
    repository: bool = False
    put_back: bool = False
    moved_to: str = ""
    problem: str = ""
