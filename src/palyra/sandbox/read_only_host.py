"""The host held read-only while bubblewrap builds a sandbox, as steps of a start plan.

bubblewrap before 0.12 follows a link that appears in the workspace while it mounts, and then makes, or empties, a file
on the host (CVE-2026-87766). No look beforehand can exclude that: another program may rename directories at that very
moment. So bubblewrap is started in a mount namespace in which it can write the workspace, /proc, and nothing else. Its
own namespace is a copy of this one in a user namespace below, where the kernel does not let go of read-only mounts.
"""

import struct
from typing import Final

from palyra.sandbox.launch import LaunchStage, ReadOnlyHost
from palyra.sandbox.plan_segment import Segment

# How many free descriptor numbers the steps use.
DESCRIPTORS: Final = 3

_AT_FDCWD: Final = (1 << 64) - 100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_CLONE_NEWNS: Final = 0x20000
_CLONE_NEWUSER: Final = 0x10000000
_OPEN_TREE_CLONE: Final = 1
_O_WRONLY: Final = 0o1
_O_DIRECTORY: Final = 0o200000
_O_NOFOLLOW: Final = 0o400000
_O_CLOEXEC: Final = 0o2000000
_O_PATH: Final = 0o10000000
_MOVE_FROM_DESCRIPTOR: Final = 0x4
_MOVE_TO_DESCRIPTOR: Final = 0x40
_MOUNT_ATTR_RDONLY: Final = 1
_MS_PRIVATE: Final = 1 << 18
_PR_SET_DUMPABLE: Final = 4
_STAGE: Final = LaunchStage.MOUNTS


def hold_read_only(plan: Segment, host: ReadOnlyHost, free: tuple[int, ...]) -> None:
    """Nothing here may fail: a program that should have been held does not start unheld."""
    proc, place, tree = free
    if host.ids is None:
        plan.add(_STAGE, "unshare", _CLONE_NEWNS)
    else:
        plan.add(_STAGE, "unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
        _map_ids(plan, host.ids, proc)
    # First of all: what is mounted from here on must not appear in the host's own namespace.
    _set_all(plan, attributes=0, propagation=_MS_PRIVATE)
    # Copies of what stays writable, with the mounts in it, each as it was. bubblewrap writes the maps of its user
    # namespace to /proc, and the kernel mounts no new one where the one in sight is read-only.
    empty, kernel = plan.text(b""), plan.text(b"/proc")
    copy = _OPEN_TREE_CLONE | _O_CLOEXEC | _AT_RECURSIVE
    where = "" if host.writable is None else host.writable.decode("utf-8", "backslashreplace")
    plan.add(_STAGE, "open_tree", _AT_FDCWD, kernel, copy, subject="/proc")
    if host.writable is not None:
        how = _O_PATH | _O_DIRECTORY | _O_NOFOLLOW | _O_CLOEXEC
        plan.add(_STAGE, "openat", _AT_FDCWD, plan.text(host.writable), how, subject=where)
        plan.add(_STAGE, "open_tree", place, empty, copy | _AT_EMPTY_PATH, subject=where)
    _set_all(plan, attributes=_MOUNT_ATTR_RDONLY, propagation=0)
    if host.writable is not None:
        both = _MOVE_FROM_DESCRIPTOR | _MOVE_TO_DESCRIPTOR
        plan.add(_STAGE, "move_mount", tree, empty, place, empty, both, subject=where)
        plan.add(_STAGE, "close", tree)
        plan.add(_STAGE, "close", place)
    for path, read_only in host.mounted:
        _mount_in_place(plan, path, read_only, place, tree)
    plan.add(_STAGE, "move_mount", proc, empty, _AT_FDCWD, kernel, _MOVE_FROM_DESCRIPTOR, subject="/proc")
    plan.add(_STAGE, "close", proc)


def _mount_in_place(plan: Segment, path: bytes, read_only: bool, place: int, tree: int) -> None:
    """What is at the path, mounted on itself. bubblewrap would make the path where it is not there any more; these
    calls fail instead. A link on the way leads to a mount elsewhere, in this namespace only, which is seen later."""
    shown, empty = path.decode("utf-8", "backslashreplace"), plan.text(b"")
    both = _MOVE_FROM_DESCRIPTOR | _MOVE_TO_DESCRIPTOR
    copy = _OPEN_TREE_CLONE | _O_CLOEXEC | _AT_RECURSIVE | _AT_EMPTY_PATH
    plan.add(_STAGE, "openat", _AT_FDCWD, plan.text(path), _O_PATH | _O_NOFOLLOW | _O_CLOEXEC, subject=shown)
    plan.add(_STAGE, "open_tree", place, empty, copy, subject=shown)
    if read_only:
        wanted = plan.keep(struct.pack("<QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0))
        how = _AT_EMPTY_PATH | _AT_RECURSIVE
        plan.add(_STAGE, "mount_setattr", tree, empty, how, wanted, 32, subject=shown)
    plan.add(_STAGE, "move_mount", tree, empty, place, empty, both, subject=shown)
    plan.add(_STAGE, "close", tree)
    plan.add(_STAGE, "close", place)


def _map_ids(plan: Segment, ids: tuple[int, int], free: int) -> None:
    """The user and the group keep their numbers. The waiting process hides itself, and its own maps with it: it must
    show itself to write them, moments before it becomes a program that is shown anyway."""
    uid, gid = ids
    plan.add(_STAGE, "prctl", _PR_SET_DUMPABLE, 1)
    for name, content in (
        (b"/proc/self/setgroups", b"deny"),
        (b"/proc/self/uid_map", b"%d %d 1" % (uid, uid)),
        (b"/proc/self/gid_map", b"%d %d 1" % (gid, gid)),
    ):
        subject = name.decode()
        plan.add(_STAGE, "openat", _AT_FDCWD, plan.text(name), _O_WRONLY | _O_CLOEXEC, subject=subject)
        plan.add(_STAGE, "write", free, plan.keep(content), len(content), subject=subject)
        plan.add(_STAGE, "close", free)


def _set_all(plan: Segment, *, attributes: int, propagation: int) -> None:
    """struct mount_attr: what to set, what to clear, propagation, no user namespace."""
    wanted = struct.pack("<QQQQ", attributes, 0, propagation, 0)
    root, size = plan.text(b"/"), len(wanted)
    plan.add(_STAGE, "mount_setattr", _AT_FDCWD, root, _AT_RECURSIVE, plan.keep(wanted), size, subject="/")
