"""Segments of a start plan: their encoding, and the segment that holds the host read-only.

    plan:    version, number of relocations, their offset, offset of the first record      (8 bytes each)
    record:  system call number, six arguments, control

A relocation is the place of a word that holds an offset into the plan; the executor adds the plan's own address to it.
``control`` has in bits 0-7 how many records to advance when the call fails (0: end), in bits 8-15 how many to pass over
when it succeeds, and in bit 63 that the call replaced the plan, which then begins again.
"""

import os
import stat
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from palyra.sandbox.domain.launch_spec import MADE_ROOT, LaunchStage, ReadOnlyHost, RootKind, RootPart

VERSION: Final = 1
RESTART: Final = 1 << 63
WORD: Final = 8
HEADER_WORDS: Final = 4
RECORD_WORDS: Final = 8
AT_FDCWD: Final = (1 << 64) - 100
PR_SET_DUMPABLE: Final = 4

_ONE_WORD: Final = struct.Struct("<Q")
_ZEROS: Final = tuple((0,) * (RECORD_WORDS - 2 - used) for used in range(7))
_PADDING: Final = tuple(b"\0" * (-over % WORD) for over in range(WORD))


class At(NamedTuple):
    """An argument that is an address in the plan's data."""

    offset: int


class Step(NamedTuple):
    """The purpose of one record."""

    stage: LaunchStage
    call: str
    subject: str = ""


class Segment:
    """Records, the data that they point into, and the places of the addresses to relocate."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self.steps: list[Step] = []
        self.words: list[int] = []
        self.data = bytearray()
        # A word of the records, or a place in the data, and the place in the data whose address it holds.
        self.word_pointers: list[tuple[int, int]] = []
        self.data_pointers: list[tuple[int, int]] = []

    def add(
        self,
        stage: LaunchStage,
        call: str,
        *arguments: int | At,
        subject: str = "",
        on_error: int = 0,
        on_success: int = 1,
    ) -> None:
        """Add one system call.

        ``on_error`` and ``on_success`` are how many records to advance; 0 on error ends the start.
        """
        self.steps.append(Step(stage, call, subject))
        words = self.words
        words.append(self.numbers[call])
        for argument in arguments:
            if isinstance(argument, At):
                self.word_pointers.append((len(words), argument.offset))
                words.append(0)
            else:
                words.append(argument)
        words.extend(_ZEROS[len(arguments)])
        words.append(on_error | (on_success - 1) << 8)

    def keep(self, content: bytes) -> At:
        """Put bytes into the data, at a multiple of a word."""
        self.data += _PADDING[len(self.data) % WORD]
        offset = len(self.data)
        self.data += content
        return At(offset)

    def text(self, content: bytes) -> At:
        return self.keep(content + b"\0")

    def strings(self, contents: Sequence[bytes]) -> At:
        """Keep an array of addresses that ends with zero, as argv and envp do."""
        kept = [self.text(content) for content in contents]
        array = self.keep(bytes(WORD * (len(kept) + 1)))
        self.data_pointers += [(array.offset + WORD * place, at.offset) for place, at in enumerate(kept)]
        return array

    def append(self, other: "Segment") -> None:
        word = len(self.words)
        at = self.keep(bytes(other.data)).offset
        self.words += other.words
        self.steps += other.steps
        self.word_pointers += [(place + word, offset + at) for place, offset in other.word_pointers]
        self.data_pointers += [(place + at, offset + at) for place, offset in other.data_pointers]

    def encode(self) -> bytes:
        words, data = self.words, self.data
        records_at = WORD * HEADER_WORDS
        data_at = records_at + WORD * len(words)
        data += _PADDING[len(data) % WORD]
        for place, offset in self.word_pointers:
            words[place] = data_at + offset
        for place, offset in self.data_pointers:
            _ONE_WORD.pack_into(data, place, data_at + offset)
        relocations = [records_at + WORD * place for place, _ in self.word_pointers]
        relocations += [data_at + place for place, _ in self.data_pointers]
        header = (VERSION, len(relocations), data_at + len(data), records_at)
        return b"".join(
            (
                struct.pack(f"<{HEADER_WORDS + len(words)}Q", *header, *words),
                data,
                struct.pack(f"<{len(relocations)}Q", *relocations),
            )
        )


def render_name(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


# How many free descriptor numbers ``hold_read_only`` uses.
DESCRIPTORS: Final = 3

_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_CLONE_NEWNS: Final = 0x20000
_CLONE_NEWUSER: Final = 0x10000000
_OPEN_TREE_CLONE: Final = 1
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
_STAGE: Final = LaunchStage.MOUNTS
# The new root is put together here. It hides a mount that was copied before, and no root has a part at this path.
_PLACE: Final = b"/proc"
_COPY: Final = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
_MOUNTED: Final = frozenset({RootKind.MOUNTED_FILE, RootKind.MOUNTED_DIRECTORY, RootKind.DEVICE})
_INSIDE: Final = MADE_ROOT.lstrip(b"/")
_ORDINARY: Final = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV


def hold_read_only(plan: Segment, host: ReadOnlyHost, free: tuple[int, ...]) -> None:
    """Hold the host away and read-only while bubblewrap builds a sandbox.

    bubblewrap before 0.12 follows a link that appears in the workspace while it mounts, and then makes or empties a
    file on the host (CVE-2026-87766). No check beforehand excludes that: another program may rename directories at
    that moment. So bubblewrap starts in a mount namespace that has of the host only the parts that the sandbox gets.
    It can write the workspace and /proc there, and nothing else. Its own namespace is a copy of this one in a user
    namespace below, where the kernel keeps read-only mounts read-only.

    The sandbox's root is put together here too, by calls of a few microseconds; bubblewrap binds it. If bubblewrap
    made the parts, it would read the whole table of mounts for each.

    Each step must succeed, except making a directory that exists: a program never starts if its host is not hold.
    """
    proc, place, tree = free
    empty = plan.text(b"")
    if host.ids is None:
        plan.add(_STAGE, "unshare", _CLONE_NEWNS)
    else:
        plan.add(_STAGE, "unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
        _map_ids(plan, host.ids, proc)
    # This comes first: later mounts must not appear in the host's own namespace.
    _set_all(plan, attributes=0, propagation=_MS_PRIVATE)
    # Copy what stays writable, with the mounts in it. bubblewrap writes the maps of its user namespace to /proc, and
    # the kernel refuses a new /proc where the visible one is read-only.
    plan.add(_STAGE, "open_tree", AT_FDCWD, plan.text(b"/proc"), _COPY, subject="/proc")
    where, how = render_name(host.workspace), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    plan.add(_STAGE, "openat", AT_FDCWD, plan.text(host.workspace), how, subject=where)
    plan.add(_STAGE, "open_tree", place, empty, _COPY | _AT_EMPTY_PATH, subject=where)
    # The next opened file gets this number.
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
    # Detach the host. See pivot_root(2) on the two points.
    plan.add(_STAGE, "pivot_root", here, here)
    plan.add(_STAGE, "umount2", here, _MNT_DETACH)
    top = plan.keep(struct.pack("<QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0))
    plan.add(_STAGE, "mount_setattr", AT_FDCWD, plan.text(b"/"), 0, top, 32, subject="a root")
    for path, read_only in host.mounted:
        _mount_in_place(plan, host.place, path, read_only, (proc, place))


def _make_surroundings(plan: Segment, parts: tuple[RootPart, ...]) -> None:
    """Make what bubblewrap itself needs: its program and libraries, and a place to begin at."""
    for path in (b"proc", b"tmp", _INSIDE):
        _make_directory(plan, path)
    at_top = {part.path.split(b"/")[1] for part in parts if part.kind is not RootKind.DIRECTORY}
    for name in sorted(at_top - {b"proc", b"dev", b"tmp", _INSIDE}):
        plan.add(_STAGE, "symlinkat", plan.text(_INSIDE + b"/" + name), AT_FDCWD, plan.text(name))


def _make_parts(plan: Segment, parts: tuple[RootPart, ...], free: int) -> None:
    """Make the parts in the root's own file system first: a mount could hide them."""
    made: set[bytes] = set()
    for part in sorted(parts, key=lambda part: part.kind in _MOUNTED):
        for path in _directories_to(part.place + b"/" * (part.kind is RootKind.DIRECTORY)):
            if path not in made:
                made.add(path)
                _make_directory(plan, path)
        if part.kind is RootKind.LINK:
            target, name = plan.text(part.content), plan.text(_relative(part.place))
            plan.add(_STAGE, "symlinkat", target, AT_FDCWD, name, subject=render_name(part.path))
        elif part.kind is RootKind.FILE:
            _write_file(plan, part, free)
        elif part.kind is RootKind.TERMINALS:
            _mount_terminals(plan, _relative(part.place))
        elif part.kind in _MOUNTED:
            _mount_from(plan, part, free)


def _directories_to(path: bytes) -> list[bytes]:
    """List the directories above a path, from the top; with a slash at its end, the path too."""
    names = path.split(b"/")[1:-1]
    return [b"/".join(names[:count]) for count in range(1, len(names) + 1)]


def _relative(path: bytes) -> bytes:
    """Make a path relative to the directory that becomes the root."""
    return path.lstrip(b"/")


def _make_directory(plan: Segment, path: bytes) -> None:
    """Make a directory, or pass over one that exists. The next step fails if it is missing."""
    plan.add(_STAGE, "mkdirat", AT_FDCWD, plan.text(path), 0o755, subject=render_name(path), on_error=1)


def _write_file(plan: Segment, part: RootPart, free: int) -> None:
    subject = render_name(part.path)
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    plan.add(_STAGE, "openat", AT_FDCWD, plan.text(_relative(part.place)), how, 0o444, subject=subject)
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
    """Copy what the host has at a path, with the mounts in it. All of the host is read-only by now."""
    subject, name = render_name(part.path), plan.text(_relative(part.place))
    if part.kind is RootKind.MOUNTED_DIRECTORY:
        _make_directory(plan, _relative(part.place))
    else:
        plan.add(_STAGE, "mknodat", AT_FDCWD, name, stat.S_IFREG | 0o444, subject=subject)
    plan.add(_STAGE, "open_tree", AT_FDCWD, plan.text(part.path), _COPY, subject=subject)
    if part.kind is RootKind.DEVICE:
        again = plan.keep(struct.pack("<QQQQ", 0, _MOUNT_ATTR_NODEV, 0, 0))
        plan.add(_STAGE, "mount_setattr", free, plan.text(b""), _AT_EMPTY_PATH, again, 32, subject=subject)
    _attach(plan, free, part.place, subject=subject)


def _attach(plan: Segment, tree: int, place: bytes, *, subject: str) -> None:
    name, how = plan.text(_relative(place)), _MOVE_FROM_DESCRIPTOR
    plan.add(_STAGE, "move_mount", tree, plan.text(b""), AT_FDCWD, name, how, subject=subject)
    plan.add(_STAGE, "close", tree)


def _set(plan: Segment, tree: int, attributes: int, *, subject: str) -> None:
    wanted = plan.keep(struct.pack("<QQQQ", attributes, 0, 0, 0))
    how = _AT_EMPTY_PATH | _AT_RECURSIVE
    plan.add(_STAGE, "mount_setattr", tree, plan.text(b""), how, wanted, 32, subject=subject)


def _mount_in_place(plan: Segment, root: bytes, path: bytes, read_only: bool, free: tuple[int, int]) -> None:
    """Mount what is at the path on itself.

    bubblewrap would make a path that has gone; these calls fail instead. A link on the way leads to a mount elsewhere
    in this namespace only, and the readback sees it.
    """
    place, tree = free
    subject, empty = render_name(path), plan.text(b"")
    both, how = _MOVE_FROM_DESCRIPTOR | _MOVE_TO_DESCRIPTOR, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    plan.add(_STAGE, "openat", AT_FDCWD, plan.text(root + path), how, subject=subject)
    plan.add(_STAGE, "open_tree", place, empty, _COPY | _AT_EMPTY_PATH, subject=subject)
    if read_only:
        _set(plan, tree, _MOUNT_ATTR_RDONLY, subject=subject)
    plan.add(_STAGE, "move_mount", tree, empty, place, empty, both, subject=subject)
    plan.add(_STAGE, "close", tree)
    plan.add(_STAGE, "close", place)


def _map_ids(plan: Segment, ids: tuple[int, int], free: int) -> None:
    """Become root in this namespace only: older kernels make terminals for no other user.

    The waiting process is hidden, and so are its maps. It must show itself to write them, moments before it becomes a
    program that is visible anyway.
    """
    uid, gid = ids
    plan.add(_STAGE, "prctl", PR_SET_DUMPABLE, 1)
    for name, content in (
        (b"/proc/self/setgroups", b"deny"),
        (b"/proc/self/uid_map", b"0 %d 1" % uid),
        (b"/proc/self/gid_map", b"0 %d 1" % gid),
    ):
        subject = name.decode()
        plan.add(_STAGE, "openat", AT_FDCWD, plan.text(name), os.O_WRONLY | os.O_CLOEXEC, subject=subject)
        plan.add(_STAGE, "write", free, plan.keep(content), len(content), subject=subject)
        plan.add(_STAGE, "close", free)


def _set_all(plan: Segment, *, attributes: int, propagation: int) -> None:
    # struct mount_attr: attributes to set and to clear, propagation, no user namespace.
    wanted = struct.pack("<QQQQ", attributes, 0, propagation, 0)
    root, size = plan.text(b"/"), len(wanted)
    plan.add(_STAGE, "mount_setattr", AT_FDCWD, root, _AT_RECURSIVE, plan.keep(wanted), size, subject="/")
