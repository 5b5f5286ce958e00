"""The program that a command names: found on the machine, described as a value, and judged by the profile."""

import errno
import glob
import hashlib
import mmap
import os
import stat
import sys
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.domain.process_run import ExecutableDenied, SpawnFailed, excerpt

# The walk follows a path name by name, as the kernel would.
#
# It never trusts a tail that it cannot see: after a missing name the rest is taken as written, so that a path is judged
# by its nearest existing parent. It stops at ``/proc`` and ``/dev/fd``, which name other files for another process.

_MAGIC: Final = frozenset({("proc",), ("dev", "fd"), ("sys",)})
_DEEPEST_MAGIC: Final = max(map(len, _MAGIC))


class Kind(StrEnum):
    MISSING = "missing"
    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"
    # The directory around it cannot be searched.
    UNREADABLE = "unreadable"
    # Beneath /proc, /sys or /dev/fd: another process sees something else there.
    MAGIC = "magic"
    # More links than the kernel follows.
    LOOP = "loop"


class Seen(msgspec.Struct, frozen=True):
    kind: Kind
    target: str = ""


class PathLook(Protocol):
    """Looks at an absolute path whose parents hold no links. It reports a link and never follows it."""

    def look(self, path: str) -> Seen: ...


class Walked(msgspec.Struct, frozen=True, kw_only=True):
    """``passed`` are the places of the links on the way, outermost first; ``real`` is where the way ends."""

    real: str
    kind: Kind
    passed: tuple[str, ...] = ()


def join(directory: str, path: str) -> str:
    return path if path.startswith("/") else f"{directory.rstrip('/')}/{path}"


def base_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def is_beneath(path: str, directory: str) -> bool:
    """Whether a resolved path is a resolved directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def walk(path: str, files: PathLook, *, ends: frozenset[str] = frozenset()) -> Walked:
    """Follow a path to its end. ``ends`` are links at which the walk stops: devices with a fixed meaning."""
    waiting = _names(path)[::-1]
    done: list[str] = []
    passed: list[str] = []
    kind = Kind.DIRECTORY
    while waiting:
        name = waiting.pop()
        if name == "..":
            # After a missing name or a file too: a later file of that name cannot lead further out than the text.
            if done:
                done.pop()
            kind = Kind.DIRECTORY if kind is not Kind.MISSING else kind
            continue
        done.append(name)
        if not waiting and "/" + "/".join(done) in ends:
            break
        if len(done) <= _DEEPEST_MAGIC and tuple(done) in _MAGIC:
            return Walked(real="/" + "/".join([*done, *waiting[::-1]]), kind=Kind.MAGIC, passed=tuple(passed))
        if kind in (Kind.MISSING, Kind.FILE):
            kind = Kind.MISSING
            continue
        here = "/" + "/".join(done)
        seen = files.look(here)
        kind = seen.kind
        if kind is Kind.UNREADABLE:
            return Walked(real=here, kind=kind, passed=tuple(passed))
        if kind is Kind.LINK:
            passed.append(here)
            if len(passed) > limits.MAX_LINKS:
                return Walked(real=here, kind=Kind.LOOP, passed=tuple(passed))
            done = [] if seen.target.startswith("/") else done[:-1]
            waiting.extend(_names(seen.target)[::-1])
            kind = Kind.DIRECTORY
    return Walked(real="/" + "/".join(done), kind=kind, passed=tuple(passed))


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


# Where a distribution installs programs. Read-only inside the sandbox, so that no call can plant one there.
SYSTEM_ROOTS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


class ResolvedExecutable(msgspec.Struct, frozen=True, kw_only=True):
    """The file behind a command, as the guards judge it.

    ``found`` is its place on PATH or as written, ``real`` the file at the end of all links, ``passed`` the links.
    ``twins`` are the names of programs on PATH that are the same file by inode or, for a file outside PATH, by content.
    ``marks`` are interpreters that the content betrays. ``shebang`` is the text after ``#!``, None for other files.
    """

    typed: str
    found: str
    real: str
    kind: Kind
    passed: tuple[str, ...] = ()
    executable: bool = True
    in_workspace: bool = False
    on_path: bool = False
    twins: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    shebang: str | None = None
    # Whether the file starts as the kernel's own program format does.
    native: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of this program, the one it is called by first."""
        own = (base_name(self.typed), *map(base_name, self.passed), base_name(self.real))
        return tuple(dict.fromkeys((*own, *sorted(self.twins))))


class ExecutableLookup(Protocol):
    def find(self, command: str, cwd: str) -> ResolvedExecutable | None:
        """Find the program in the sandbox's PATH and the given directory."""


def find_executable(lookup: ExecutableLookup, command: str, cwd: str) -> ResolvedExecutable:
    found = lookup.find(command, cwd)
    if found is None or found.kind is Kind.MISSING:
        raise SpawnFailed(
            f"there is no program {excerpt(command)!r} in the sandbox", argument="command", errno=errno.ENOENT
        )
    if found.kind in (Kind.UNREADABLE, Kind.LOOP, Kind.DIRECTORY) or (found.kind is Kind.FILE and not found.executable):
        raise SpawnFailed(
            f"{excerpt(command)!r} cannot be executed",
            argument="command",
            path=excerpt(found.real),
            errno=errno.EACCES,
        )
    return found


def refuse_unlisted_executable(
    found: ResolvedExecutable, allowed: tuple[str, ...] | None, readable_roots: tuple[str, ...] = SYSTEM_ROOTS
) -> None:
    """Refuse a program that the profile does not allow.

    A listed name means the program of that name on PATH; a listed path means that file, by any link. Without a list
    every program of the system and of the workspace may run that no later check refuses.
    """
    if found.kind is Kind.MAGIC:
        raise ExecutableDenied(
            f"{excerpt(found.typed)!r} leads to {excerpt(found.real)}, which is another file for every process",
            argument="command",
            path=excerpt(found.real),
        )
    if allowed is not None:
        by_name = found.on_path and base_name(found.found) in allowed
        by_path = found.found in allowed or found.real in allowed
        if not by_name and not by_path:
            raise ExecutableDenied(
                f"{excerpt(found.typed)!r} is not among the programs that this profile allows",
                argument="command",
                path=excerpt(found.real),
            )
        if by_path:
            return
    if not found.in_workspace and not any(is_beneath(found.real, root) for root in readable_roots):
        raise ExecutableDenied(
            f"{excerpt(found.typed)!r} is {excerpt(found.real)}, neither in the workspace nor a program of the system",
            argument="command",
            path=excerpt(found.real),
        )


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
# Texts that occur in the program itself and hardly anywhere else. They find a copy that was changed by a byte, which no
# digest does. Only files outside the system's directories are searched.
CONTENT_MARKS: Final[dict[bytes, str]] = {
    b"BusyBox v": "busybox",
    b"GNU bash, version %s": "bash",
    b"PYTHONDONTWRITEBYTECODE": "python",
    b"NODE_PENDING_DEPRECATION": "node",
    b"PERL5OPT": "perl",
    b"RUBYGEMS_GEMDEPS": "ruby",
    b"$LuaVersion: Lua": "lua",
    b"PHP_INI_SCAN_DIR": "php",
    b"ZDOTDIR": "zsh",
    b"AWKLIBPATH": "gawk",
    b"mawk %s": "mawk",
    b"TCL_LIBRARY": "tclsh",
    b"toybox-": "toybox",
}

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})


class HostFiles:
    """Looks at paths of this machine."""

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
    """A directory at one moment: any change in it changes the stamp, and no program can set it back."""

    device: int
    inode: int
    changed_ns: int


class PathExecutables:
    """Finds programs on the sandbox's own PATH, and the programs there that are the same file.

    The index of PATH is kept until one of its directories changes.
    """

    def __init__(self, path: str, workspace_root: str, *, files: PathLook | None = None) -> None:
        self._directories = tuple(dict.fromkeys(part for part in path.split(":") if part.startswith("/")))
        self._files = files or HostFiles()
        self._workspace = walk(workspace_root, self._files).real
        self._known: tuple[tuple[_Stamp | None, ...], _Known] | None = None
        self._digests: dict[tuple[int, int, int, int], bytes] = {}

    def find(self, command: str, cwd: str) -> ResolvedExecutable | None:
        if "/" in command:
            place = join(cwd, command)
            return self._describe(command, place, on_path=os.path.dirname(place) in self._directories)
        for directory in self._directories:
            place = f"{directory}/{command}"
            if self._files.look(place).kind is Kind.MISSING:
                continue
            found = self._describe(command, place, on_path=True)
            if found.kind is Kind.MAGIC or (found.kind is Kind.FILE and found.executable):
                return found
        return None

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
            # A pipe or a device may not block this, and the last name is not a link any more.
            descriptor = os.open(walked.real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # A program that cannot be read cannot be judged.
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
        """Return the names of the programs on PATH with these bytes. Only those of the same size are read."""
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


def _stamp_at(directory: str) -> _Stamp | None:
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return _Stamp(status.st_dev, status.st_ino, status.st_ctime_ns)


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
