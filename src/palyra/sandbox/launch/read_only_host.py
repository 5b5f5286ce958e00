"""The host held away and read-only while bubblewrap builds a sandbox, as steps of a start plan.

bubblewrap before 0.12 follows a link that appears in the workspace while it mounts, and then makes, or empties, a file
on the host (CVE-2026-87766). No look beforehand can exclude that: another program may rename directories at that very
moment. So bubblewrap is started in a mount namespace in which there is nothing of the host but what the sandbox gets,
and in which it can write the workspace, /proc, and nothing else. Its own namespace is a copy of this one in a user
namespace below, where the kernel does not let go of read-only mounts.

The sandbox's root is put together here too, by calls of a few microseconds: bubblewrap takes it with one bind. Left to
bubblewrap, each of its parts would cost a reading of the whole table of mounts.
"""

import struct
from typing import Final

from palyra.sandbox.domain.launch_spec import MADE_ROOT, LaunchStage, ReadOnlyHost, RootKind, RootPart
from palyra.sandbox.launch.plan_encoding import Segment

# How many free descriptor numbers the steps use.
DESCRIPTORS: Final = 3

_AT_FDCWD: Final = (1 << 64) - 100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_CLONE_NEWNS: Final = 0x20000
_CLONE_NEWUSER: Final = 0x10000000
_OPEN_TREE_CLONE: Final = 1
_O_WRONLY: Final = 0o1
_O_CREAT: Final = 0o100
_O_EXCL: Final = 0o200
_O_DIRECTORY: Final = 0o200000
_O_NOFOLLOW: Final = 0o400000
_O_CLOEXEC: Final = 0o2000000
_O_PATH: Final = 0o10000000
_S_IFREG: Final = 0o100000
_MOVE_FROM_DESCRIPTOR: Final = 0x4
_MOVE_TO_DESCRIPTOR: Final = 0x40
_MOUNT_ATTR_RDONLY: Final = 1
_MOUNT_ATTR_NOSUID: Final = 2
_MOUNT_ATTR_NODEV: Final = 4
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_NOEXEC: Final = 8
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2
_PR_SET_DUMPABLE: Final = 4
_STAGE: Final = LaunchStage.MOUNTS
# Where the new root is put together. What it hides meanwhile was copied before, and no root has a part of it.
_PLACE: Final = b"/proc"
_COPY: Final = _OPEN_TREE_CLONE | _O_CLOEXEC | _AT_RECURSIVE
_MOUNTED: Final = frozenset({RootKind.MOUNTED_FILE, RootKind.MOUNTED_DIRECTORY, RootKind.DEVICE})
_INSIDE: Final = MADE_ROOT.lstrip(b"/")
_ORDINARY: Final = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV


def hold_read_only(plan: Segment, host: ReadOnlyHost, free: tuple[int, ...]) -> None:
    """A program that should have been held does not start unheld: nothing here may fail, but the making of a directory
    that is there already."""
    proc, place, tree = free
    empty = plan.text(b"")
    if host.ids is None:
        plan.add(_STAGE, "unshare", _CLONE_NEWNS)
    else:
        plan.add(_STAGE, "unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
        _map_ids(plan, host.ids, proc)
    # First of all: what is mounted from here on must not appear in the host's own namespace.
    _set_all(plan, attributes=0, propagation=_MS_PRIVATE)
    # Copies of what stays writable, with the mounts in it, each as it was. bubblewrap writes the maps of its user
    # namespace to /proc, and the kernel mounts no new one where the one in sight is read-only.
    plan.add(_STAGE, "open_tree", _AT_FDCWD, plan.text(b"/proc"), _COPY, subject="/proc")
    where, how = _shown(host.workspace), _O_PATH | _O_DIRECTORY | _O_NOFOLLOW | _O_CLOEXEC
    plan.add(_STAGE, "openat", _AT_FDCWD, plan.text(host.workspace), how, subject=where)
    plan.add(_STAGE, "open_tree", place, empty, _COPY | _AT_EMPTY_PATH, subject=where)
    # From here on this is the number that the next opened file gets.
    plan.add(_STAGE, "close", place)
    _set(plan, tree, _ORDINARY | (0 if host.writable else _MOUNT_ATTR_RDONLY), subject=where)
    _set_all(plan, attributes=_ORDINARY | _MOUNT_ATTR_RDONLY, propagation=0)
    tmpfs, here = plan.text(b"tmpfs"), plan.text(b".")
    options = plan.text(b"mode=0755")
    plan.add(_STAGE, "mount", tmpfs, plan.text(_PLACE), tmpfs, _MS_NOSUID | _MS_NODEV, options, subject="a root")
    plan.add(_STAGE, "chdir", plan.text(_PLACE))
    _make_surroundings(plan, host.parts)
    _make_parts(plan, host.parts, place)
    at = host.place + host.workspace
    for path in _directories_to(at + b"/"):
        _make_directory(plan, path)
    _attach(plan, tree, at, subject=where)
    _attach(plan, proc, b"/proc", subject="/proc")
    # The host goes away. See pivot_root(2) on the two points.
    plan.add(_STAGE, "pivot_root", here, here)
    plan.add(_STAGE, "umount2", here, _MNT_DETACH)
    top = plan.keep(struct.pack("<QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0))
    plan.add(_STAGE, "mount_setattr", _AT_FDCWD, plan.text(b"/"), 0, top, 32, subject="a root")
    for path, read_only in host.mounted:
        _mount_in_place(plan, host.place, path, read_only, (proc, place))


def _make_surroundings(plan: Segment, parts: tuple[RootPart, ...]) -> None:
    """What bubblewrap itself needs: its program and libraries, and a place to begin at."""
    for path in (b"proc", b"tmp", _INSIDE):
        _make_directory(plan, path)
    at_top = {part.path.split(b"/")[1] for part in parts if part.kind is not RootKind.DIRECTORY}
    for name in sorted(at_top - {b"proc", b"dev", b"tmp", _INSIDE}):
        plan.add(_STAGE, "symlinkat", plan.text(_INSIDE + b"/" + name), _AT_FDCWD, plan.text(name))


def _make_parts(plan: Segment, parts: tuple[RootPart, ...], free: int) -> None:
    """Everything that lies in the root's own file system first: what is mounted could hide it."""
    made: set[bytes] = set()
    for part in sorted(parts, key=lambda part: part.kind in _MOUNTED):
        for path in _directories_to(part.place + b"/" * (part.kind is RootKind.DIRECTORY)):
            if path not in made:
                made.add(path)
                _make_directory(plan, path)
        if part.kind is RootKind.LINK:
            target, name = plan.text(part.content), plan.text(_relative(part.place))
            plan.add(_STAGE, "symlinkat", target, _AT_FDCWD, name, subject=_shown(part.path))
        elif part.kind is RootKind.FILE:
            _write_file(plan, part, free)
        elif part.kind is RootKind.TERMINALS:
            _mount_terminals(plan, _relative(part.place))
        elif part.kind in _MOUNTED:
            _mount_from(plan, part, free)


def _directories_to(path: bytes) -> list[bytes]:
    """The directories above a path, from the top; with a slash at its end, the path too."""
    names = path.split(b"/")[1:-1]
    return [b"/".join(names[:count]) for count in range(1, len(names) + 1)]


def _relative(path: bytes) -> bytes:
    """To the directory in which it all comes to lie, and which becomes the root."""
    return path.lstrip(b"/")


def _make_directory(plan: Segment, path: bytes) -> None:
    """Or passes over it: one that is there, on a read-only mount too. If it is missing the next step fails."""
    plan.add(_STAGE, "mkdirat", _AT_FDCWD, plan.text(path), 0o755, subject=_shown(path), on_error=1)


def _write_file(plan: Segment, part: RootPart, free: int) -> None:
    subject = _shown(part.path)
    how = _O_WRONLY | _O_CREAT | _O_EXCL | _O_CLOEXEC
    plan.add(_STAGE, "openat", _AT_FDCWD, plan.text(_relative(part.place)), how, 0o444, subject=subject)
    if part.descriptor is not None:
        plan.add(_STAGE, "sendfile", free, part.descriptor, 0, part.size, subject=subject)
        plan.add(_STAGE, "close", part.descriptor)
    elif part.content:
        plan.add(_STAGE, "write", free, plan.keep(part.content), len(part.content), subject=subject)
    plan.add(_STAGE, "close", free)


def _mount_terminals(plan: Segment, place: bytes) -> None:
    _make_directory(plan, place)
    kind, options = plan.text(b"devpts"), plan.text(b"newinstance,ptmxmode=0666,mode=620")
    how = _MS_NOSUID | _MS_NOEXEC
    plan.add(_STAGE, "mount", kind, plan.text(place), kind, how, options, subject="terminals")


def _mount_from(plan: Segment, part: RootPart, free: int) -> None:
    """What the host has at a path, copied with the mounts in it and as read-only as all of the host is by now."""
    subject, name = _shown(part.path), plan.text(_relative(part.place))
    if part.kind is RootKind.MOUNTED_DIRECTORY:
        _make_directory(plan, _relative(part.place))
    else:
        plan.add(_STAGE, "mknodat", _AT_FDCWD, name, _S_IFREG | 0o444, subject=subject)
    plan.add(_STAGE, "open_tree", _AT_FDCWD, plan.text(part.path), _COPY, subject=subject)
    if part.kind is RootKind.DEVICE:
        again = plan.keep(struct.pack("<QQQQ", 0, _MOUNT_ATTR_NODEV, 0, 0))
        plan.add(_STAGE, "mount_setattr", free, plan.text(b""), _AT_EMPTY_PATH, again, 32, subject=subject)
    _attach(plan, free, part.place, subject=subject)


def _attach(plan: Segment, tree: int, place: bytes, *, subject: str) -> None:
    name, how = plan.text(_relative(place)), _MOVE_FROM_DESCRIPTOR
    plan.add(_STAGE, "move_mount", tree, plan.text(b""), _AT_FDCWD, name, how, subject=subject)
    plan.add(_STAGE, "close", tree)


def _set(plan: Segment, tree: int, attributes: int, *, subject: str) -> None:
    wanted = plan.keep(struct.pack("<QQQQ", attributes, 0, 0, 0))
    how = _AT_EMPTY_PATH | _AT_RECURSIVE
    plan.add(_STAGE, "mount_setattr", tree, plan.text(b""), how, wanted, 32, subject=subject)


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _mount_in_place(plan: Segment, root: bytes, path: bytes, read_only: bool, free: tuple[int, int]) -> None:
    """What is at the path, mounted on itself. bubblewrap would make the path where it is not there any more; these
    calls fail instead. A link on the way leads to a mount elsewhere, in this namespace only, which is seen later."""
    place, tree = free
    shown, empty = _shown(path), plan.text(b"")
    both = _MOVE_FROM_DESCRIPTOR | _MOVE_TO_DESCRIPTOR
    plan.add(_STAGE, "openat", _AT_FDCWD, plan.text(root + path), _O_PATH | _O_NOFOLLOW | _O_CLOEXEC, subject=shown)
    plan.add(_STAGE, "open_tree", place, empty, _COPY | _AT_EMPTY_PATH, subject=shown)
    if read_only:
        _set(plan, tree, _MOUNT_ATTR_RDONLY, subject=shown)
    plan.add(_STAGE, "move_mount", tree, empty, place, empty, both, subject=shown)
    plan.add(_STAGE, "close", tree)
    plan.add(_STAGE, "close", place)


def _map_ids(plan: Segment, ids: tuple[int, int], free: int) -> None:
    """Root, in this namespace only: older kernels make terminals for nobody else. The waiting process hides itself,
    and its own maps with it: it must show itself to write them, moments before it becomes a program that is shown
    anyway."""
    uid, gid = ids
    plan.add(_STAGE, "prctl", _PR_SET_DUMPABLE, 1)
    for name, content in (
        (b"/proc/self/setgroups", b"deny"),
        (b"/proc/self/uid_map", b"0 %d 1" % uid),
        (b"/proc/self/gid_map", b"0 %d 1" % gid),
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
