"""Looks at the file system for the guards: what is at a path, and which file a command names (adapter)."""

import errno
import glob
import hashlib
import mmap
import os
import stat
import sys
import time
from typing import Final, NamedTuple

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.domain.plan import environment_of
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.guards.checks import GuardHost
from palyra.sandbox.guards.executables import (
    SYSTEM_ROOTS,
    Kind,
    PathLook,
    ResolvedExecutable,
    Seen,
    Walked,
    is_beneath,
    join,
    walk,
)
from palyra.sandbox.guards.interpreters import CONTENT_MARKS

# Programs off PATH that one could copy or link to: loaders, the small shells of the boot images.
_OFF_PATH: Final = (
    "/lib*/ld-*.so*",
    "/lib/*/ld-*.so*",
    "/lib/ld-*.so*",
    "/usr/lib/klibc/bin/*",
    "/usr/lib/initramfs-tools/bin/*",
    "/usr/lib/*/bin/busybox*",
)
_NATIVE: Final = (
    b"\x7fELF",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})


class HostFiles:
    """What is at a path on this machine. It reports links and follows none."""

    def look(self, path: str) -> Seen:
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                return Seen(Kind.LINK, os.readlink(path))
        except OSError as error:
            return Seen(Kind.MISSING if error.errno in _GONE else Kind.UNREADABLE)
        except (UnicodeEncodeError, ValueError):
            return Seen(Kind.MISSING)
        return Seen(Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.FILE)


class _Known(msgspec.Struct, frozen=True):
    """The programs on PATH, by inode and by size."""

    by_inode: dict[tuple[int, int], frozenset[str]]
    by_size: dict[int, tuple[str, ...]]


class _Stamp(NamedTuple):
    """Another file at the same path, and another content or name of this one, has another. Nobody can set it back."""

    device: int
    inode: int
    changed_ns: int


class _Kept(NamedTuple):
    found: ResolvedExecutable
    stamps: tuple[_Stamp | None, ...]


class PathExecutables:
    """Finds programs as the sandbox's own PATH names them, and says which programs on it are the same file.

    The index of PATH is kept until one of its directories changes; what is known of a program of the system, until
    one of them, a link on the way or the file itself does.
    """

    def __init__(self, path: str, workspace_root: str, *, files: PathLook | None = None) -> None:
        self._directories = tuple(dict.fromkeys(part for part in path.split(":") if part.startswith("/")))
        self._files = files or HostFiles()
        self._workspace = walk(workspace_root, self._files).real
        self._known: tuple[tuple[_Stamp | None, ...], _Known] | None = None
        self._kept: dict[str, _Kept] = {}
        self._digests: dict[tuple[int, int, int, int], bytes] = {}

    def find(self, command: str, cwd: str) -> ResolvedExecutable | None:
        if "/" in command:
            place = join(cwd, command)
            return self._describe(command, place, on_path=os.path.dirname(place) in self._directories)
        kept = self._kept.get(command)
        if kept is not None and self._stamps(kept.found) == kept.stamps:
            return kept.found
        found = self._look_up(command)
        if found is not None:
            self._keep(command, found)
        return found

    def _look_up(self, command: str) -> ResolvedExecutable | None:
        for directory in self._directories:
            place = f"{directory}/{command}"
            if self._files.look(place).kind is Kind.MISSING:
                continue
            found = self._describe(command, place, on_path=True)
            if found.kind is Kind.MAGIC or (found.kind is Kind.FILE and found.executable):
                return found
        return None

    def _keep(self, command: str, found: ResolvedExecutable) -> None:
        """Of a program of the system only: what is known of another depends on what other files hold."""
        self._kept.pop(command, None)
        if found.kind is not Kind.FILE or not self._of_system(found):
            return
        stamps = self._stamps(found)
        # One that was changed within the clock's last tick could be changed again and keep its stamp.
        settled = time.time_ns() - limits.SETTLED_NANOSECONDS
        if stamps and all(stamp is None or stamp.changed_ns < settled for stamp in stamps):
            if len(self._kept) >= limits.MAX_KEPT_PROGRAMS:
                self._kept.clear()
            self._kept[command] = _Kept(found, stamps)

    def _stamps(self, found: ResolvedExecutable) -> tuple[_Stamp | None, ...]:
        """Empty where the file or a link to it is gone; None for a directory of PATH that is not there."""
        try:
            links = [_stamp(os.lstat(link)) for link in (*found.passed, found.real)]
            return (*map(_stamp_at, self._directories), *links)
        except OSError:
            return ()

    def _of_system(self, found: ResolvedExecutable) -> bool:
        return any(is_beneath(found.real, root) for root in SYSTEM_ROOTS) and not found.in_workspace

    def _describe(self, typed: str, place: str, *, on_path: bool) -> ResolvedExecutable:
        walked = walk(place, self._files)
        plain = ResolvedExecutable(
            typed=typed,
            found=place,
            real=walked.real,
            kind=walked.kind,
            passed=walked.passed,
            on_path=on_path,
            in_workspace=is_beneath(walked.real, self._workspace),
        )
        return self._opened(plain, walked) if walked.kind is Kind.FILE else plain

    def _opened(self, plain: ResolvedExecutable, walked: Walked) -> ResolvedExecutable:
        try:
            # Neither a pipe nor a device may hold us up, and the last name is no link any more.
            descriptor = os.open(walked.real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # A program that may be run and not read cannot be judged.
            return msgspec.structs.replace(plain, kind=Kind.UNREADABLE)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return msgspec.structs.replace(plain, executable=False)
            head = os.pread(descriptor, limits.SHEBANG_BYTES, 0)
            system = self._of_system(plain)
            twins = self._index().by_inode.get((status.st_dev, status.st_ino), frozenset())
            return msgspec.structs.replace(
                plain,
                executable=bool(status.st_mode & 0o111),
                twins=twins if system else twins | self._same_content(descriptor, status),
                marks=frozenset() if system else _marks(descriptor, status.st_size),
                shebang=_shebang(head),
                native=head.startswith(_NATIVE),
            )
        finally:
            os.close(descriptor)

    def _same_content(self, descriptor: int, status: os.stat_result) -> frozenset[str]:
        """The names of the programs on PATH whose bytes these are. Only those of the same size are read."""
        candidates = self._index().by_size.get(status.st_size, ())
        if not candidates or status.st_size > limits.MAX_DIGESTED_BYTES:
            return frozenset()
        own = self._digest(descriptor)
        same = set()
        for path in candidates:
            try:
                other = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                if self._digest(other) == own:
                    same.add(os.path.basename(path))
            finally:
                os.close(other)
        return frozenset(same)

    def _digest(self, descriptor: int) -> bytes:
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
        known = self._digests.get(key)
        if known is None:
            digest = hashlib.sha256()
            offset = 0
            while block := os.pread(descriptor, 1 << 20, offset):
                digest.update(block)
                offset += len(block)
            known = self._digests[key] = digest.digest()
        return known

    def _index(self) -> _Known:
        stamps = tuple(_stamp_at(directory) for directory in self._directories)
        if self._known is None or self._known[0] != stamps:
            self._known = (stamps, _read_index(self._directories))
            self._digests.clear()
        return self._known[1]


def _stamp(status: os.stat_result) -> _Stamp:
    return _Stamp(status.st_dev, status.st_ino, status.st_ctime_ns)


def _stamp_at(directory: str) -> _Stamp | None:
    try:
        return _stamp(os.stat(directory))
    except OSError:
        return None


def _read_index(directories: tuple[str, ...]) -> _Known:
    by_inode: dict[tuple[int, int], set[str]] = {}
    by_size: dict[int, list[str]] = {}
    paths = [os.path.realpath(sys.executable), *(path for pattern in _OFF_PATH for path in glob.glob(pattern))]
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                paths.extend(entry.path for entry in entries if entry.is_file(follow_symlinks=False))
        except OSError:
            continue
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        by_inode.setdefault((status.st_dev, status.st_ino), set()).add(os.path.basename(path))
        by_size.setdefault(status.st_size, []).append(path)
    return _Known(
        {inode: frozenset(names) for inode, names in by_inode.items()},
        {size: tuple(paths) for size, paths in by_size.items()},
    )


def _marks(descriptor: int, size: int) -> frozenset[str]:
    if not 0 < size <= limits.MAX_DIGESTED_BYTES:
        return frozenset()
    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as content:
        return frozenset(name for mark, name in CONTENT_MARKS.items() if content.find(mark) >= 0)


def _shebang(head: bytes) -> str | None:
    if not head.startswith(b"#!"):
        return None
    return head[2:].split(b"\n", 1)[0].strip().decode("utf-8", "backslashreplace")


def guard_host(profile: SandboxProfile, *, enabled: bool = True) -> GuardHost:
    """The machine as the checks of this profile see it. Keep it: its index of PATH is worth keeping."""
    path = dict(environment_of(profile))["PATH"]
    return GuardHost(executables=PathExecutables(path, profile.workspace_root), files=HostFiles(), enabled=enabled)
