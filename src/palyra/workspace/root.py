"""An open workspace: its root and protected names, and files and directories opened beneath it.

openat2(2) confines the resolution of every path beneath a directory descriptor. The check and the open are one system
call, so there is no moment between them in which a directory can be swapped for a link. Where the call is missing
nothing weaker takes its place.
"""

import ctypes
import errno
import os
import platform
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from palyra.errors import PalyraError
from palyra.workspace.errors import (
    BadRoot,
    Busy,
    Cancelled,
    Escape,
    NotRegular,
    Openat2Missing,
    PlaceChanged,
    ProcMissing,
    ReadOnly,
    translate_oserror,
)
from palyra.workspace.limits import CHUNK_BYTES, MAX_DIRECTORY_ENTRIES, MAX_WALK_DEPTH, OPENAT2_ATTEMPTS
from palyra.workspace.names import (
    ProtectedName,
    ProtectedNames,
    WorkspacePath,
    decode_name,
    encode_name,
    normalize_name,
    render_name,
)
from palyra.workspace.protected_table import (
    REPOSITORY_PARTS,
    REPOSITORY_PATTERN,
    REPOSITORY_SIGNS,
    how_to_open,
    is_repository,
)

_SYSCALL_NUMBERS: Final = {"x86_64": 437, "aarch64": 437}

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08
CONFINED: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
CONFINED_NAME: Final = "RESOLVE_BENEATH|RESOLVE_NO_MAGICLINKS"

_MISSING: Final = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
_NUMBER: Final = _SYSCALL_NUMBERS.get(platform.machine())
_HOW_BYTES: Final = ctypes.sizeof(_OpenHow)


@cache
def _how(flags: int, resolve: int) -> _OpenHow:
    """Build the argument of a kind once: the kernel only reads it."""
    return _OpenHow(flags, 0, resolve)


def openat2(directory: int, path: bytes, flags: int, *, resolve: int) -> int:
    """Make the bare call. Raise ``OSError`` as the functions of ``os`` do."""
    if _NUMBER is None:
        raise Openat2Missing(f"layer openat2: not known on {platform.machine()}", layer="openat2")
    descriptor: int = _syscall(_NUMBER, directory, path, _how(flags | os.O_CLOEXEC, resolve), _HOW_BYTES)
    if descriptor < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return descriptor


def open_beneath(directory: int, path: bytes, flags: int, *, shown: str) -> int:
    """Open a path that may pass links, as long as it never leaves ``directory``. The caller closes the descriptor.

    The kernel answers EAGAIN when a rename somewhere makes it unable to say whether ``..`` stayed beneath.
    """
    for _ in range(OPENAT2_ATTEMPTS):
        try:
            return openat2(directory, path, flags, resolve=CONFINED)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise translate_oserror(error, shown) from error
    raise Busy(f"{shown} is being moved while it is opened", path=shown)


@contextmanager
def hold(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of a block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def descriptor_path(descriptor: int) -> bytes:
    """Return the path under which this process can reopen or link exactly the file of a descriptor."""
    return b"/proc/self/fd/%d" % descriptor


def location(descriptor: int) -> bytes:
    """Ask the kernel for the present path of an open directory."""
    try:
        return os.readlink(descriptor_path(descriptor))
    except FileNotFoundError as error:
        raise ProcMissing("layer openat2: /proc does not show this process", layer="openat2") from error
    except OSError as error:
        raise translate_oserror(error, "the directory") from error


def probe(directory: int) -> str:
    """Try the confinement on a real directory. Return what holds, or raise."""
    try:
        os.close(openat2(directory, b".", os.O_PATH | os.O_DIRECTORY, resolve=CONFINED))
    except OSError as error:
        if error.errno in _MISSING:
            raise Openat2Missing(f"layer openat2: {error.strerror}", layer="openat2") from error
        raise translate_oserror(error, "the workspace") from error
    _expect(directory, b"..", errno.EXDEV, "RESOLVE_BENEATH")
    try:
        own = os.open(b"/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ProcMissing("layer openat2: /proc does not show this process", layer="openat2") from error
    with hold(own):
        _expect(own, b"root", errno.ELOOP, "RESOLVE_NO_MAGICLINKS")
    return CONFINED_NAME


def _expect(directory: int, path: bytes, problem: int, flag: str) -> None:
    try:
        os.close(openat2(directory, path, os.O_PATH, resolve=CONFINED))
    except OSError as error:
        if error.errno == problem:
            return
        raise Openat2Missing(f"layer openat2: {flag} answers {error.strerror}", layer="openat2") from error
    raise Openat2Missing(f"layer openat2: this kernel does not enforce {flag}", layer="openat2")


_REOPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CLOSED = -1
NOTHING_DECIDED: Final[Mapping[str, str]] = {}


class Workspace(AbstractContextManager["Workspace"]):
    """Made by ``open_workspace``. Safe to share between threads until it is closed.

    ``decided`` are the places that policy saw for the paths of a call. What is opened by such a path has to be there.
    """

    def __init__(
        self,
        root: Path,
        descriptor: int,
        protected: ProtectedNames,
        *,
        read_only: bool,
        got: str,
        decided: Mapping[str, str],
    ) -> None:
        self.root = root
        self.protected = protected
        self.read_only = read_only
        self._descriptor = descriptor
        self._got = got
        self._decided = {_normalize(path): place for path, place in decided.items()}

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    @property
    def descriptor(self) -> int:
        if self._descriptor == _CLOSED:
            raise BadRoot("the workspace is closed")
        return self._descriptor

    def receipt(self) -> list[dict[str, Any]]:
        """Report the demanded layers, and what the kernel enforced when the workspace was opened."""
        count = len(self.protected.patterns)
        return [
            {"layer": "openat2", "asked": "resolve beneath the workspace", "got": self._got},
            {
                "layer": "workspace",
                "asked": "read only" if self.read_only else f"refuse writes to {count} protected names",
                "got": "writes refused" if self.read_only else "checked by name and by resolved location",
            },
        ]

    def open(self, path: WorkspacePath, flags: int) -> int:
        descriptor = open_beneath(self.descriptor, path.encoded(), flags, shown=path.render())
        try:
            self.require_decided(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @contextmanager
    def open_file(self, path: WorkspacePath) -> Iterator[int]:
        """Open a regular file for reading, by a path that may pass links."""
        with open_regular(self.descriptor, path.encoded(), shown=path.render()) as descriptor:
            self.require_decided(path, descriptor)
            yield descriptor

    def require_decided(self, path: WorkspacePath, descriptor: int, *last: str) -> None:
        """Refuse what is open elsewhere than where policy saw this path lead. ``last`` is a name in the directory."""
        decided = self._decided.get(str(path))
        if decided is not None and to_place((*self.names_of(descriptor, path.render()), *last)) != decided:
            raise PlaceChanged(f"{path.render()} leads to another place than the one decided on", path=path.render())

    def names_of(self, directory: int, shown: str) -> tuple[str, ...]:
        """Return the real place of an open directory as names beneath the root, whatever links led to it."""
        root, here = location(self.descriptor), location(directory)
        if here == root:
            return ()
        prefix = root if root.endswith(b"/") else root + b"/"
        if not here.startswith(prefix):
            raise Escape(f"{shown} was moved out of the workspace while it was opened", path=shown)
        return tuple(map(decode_name, here.removeprefix(prefix).split(b"/")))

    def refuse_repository(self, names: tuple[str, ...]) -> None:
        """Refuse a file at a real place in a directory that git takes for a repository by its content, or then would.

        git needs no ``.git`` for that: HEAD, objects and refs are enough, and it takes the configuration beside them.
        """
        if REPOSITORY_PATTERN not in self.protected.patterns:
            return
        for place, name in enumerate(names):
            own = normalize_name(name)
            if own not in REPOSITORY_PARTS:
                continue
            with hold(self.open(WorkspacePath(names[:place]), os.O_PATH | os.O_DIRECTORY)) as directory:
                there = {own, *(each.lower() for each in REPOSITORY_SIGNS if _is_there(directory, each))}
            if is_repository(there):
                shown = render_name("/".join(names))
                raise ProtectedName(
                    f"git reads the directory of {render_name(name)} in {shown} as a repository",
                    hint=how_to_open(REPOSITORY_PATTERN),
                    path=shown,
                )

    def refuse_write(self, path: WorkspacePath) -> None:
        """Refuse what needs only the name."""
        if self.read_only:
            raise ReadOnly(f"{path.render()} is in a read-only workspace", path=path.render())
        if not path.names:
            raise NotRegular("the workspace itself is a directory", path=".")
        self.protected.refuse(path.names)


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def find_place(root: str, path: str) -> str:
    """Return the place that a path leads to over all links, relative to a real root; empty if it leads out."""
    try:
        real = os.path.realpath(os.path.join(root, path))
    except (OSError, ValueError):
        return ""
    if real == root:
        return "."
    prefix = root.rstrip("/") + "/"
    return to_place(real.removeprefix(prefix).split("/")) if real.startswith(prefix) else ""


def to_place(names: Iterable[str]) -> str:
    """Write names beneath the root as the text that policies compare. Bytes that are not UTF-8 are spelled out."""
    return "/".join(names).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") or "."


def _normalize(path: str) -> str:
    try:
        return str(WorkspacePath.parse(path))
    except PalyraError:
        return path


def open_workspace(
    root: Path, protected: tuple[str, ...], read_only: bool = False, decided: Mapping[str, str] = NOTHING_DECIDED
) -> Workspace:
    """Open the root and try the confinement on it. Raise ``workspace.openat2_missing`` where it does not hold."""
    names = ProtectedNames(protected)
    try:
        descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise BadRoot(f"{str(root)!r} cannot be opened as a workspace: {error}") from error
    try:
        got = probe(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return Workspace(root, descriptor, names, read_only=read_only, got=got, decided=decided)


@contextmanager
def open_regular(directory: int, path: bytes, *, shown: str, follow: bool = True) -> Iterator[int]:
    """Open a regular file for reading.

    The file is first opened without touching it (O_PATH). Only a regular file is then reopened through that same
    descriptor. So neither a pipe nor a device is ever opened, even if the name is swapped meanwhile.
    """
    with hold(open_beneath(directory, path, os.O_PATH | (0 if follow else os.O_NOFOLLOW), shown=shown)) as handle:
        refuse_special(os.fstat(handle), shown)
        try:
            descriptor = os.open(descriptor_path(handle), _REOPEN)
        except BlockingIOError as error:
            raise Busy(f"{shown} is locked by another program", path=shown) from error
        except OSError as error:
            raise translate_oserror(error, shown) from error
    with hold(descriptor):
        yield descriptor


def refuse_special(status: os.stat_result, shown: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    raise NotRegular(f"{shown} is a {kind_of(status.st_mode)}, not a regular file", path=shown)


def kind_of(mode: int) -> str:
    for test, kind in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "directory"),
        (stat.S_ISLNK, "link"),
        (stat.S_ISFIFO, "fifo"),
        (stat.S_ISSOCK, "socket"),
    ):
        if test(mode):
            return kind
    return "device"


def read_up_to(descriptor: int, offset: int, limit: int, *, shown: str, cancelled: threading.Event) -> bytes:
    """Read at most ``limit`` bytes from ``offset``; fewer only at the end of the file."""
    parts: list[bytes] = []
    while limit > 0:
        refuse_cancelled(cancelled)
        try:
            part = os.pread(descriptor, min(limit, CHUNK_BYTES), offset)
        except OSError as error:
            raise translate_oserror(error, shown) from error
        if not part:
            break
        parts.append(part)
        offset += len(part)
        limit -= len(part)
    return b"".join(parts)


def refuse_cancelled(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise Cancelled("the call was cancelled")


OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One name in a directory that is open while the entry is looked at."""

    directory: int
    names: tuple[str, ...]
    status: os.stat_result

    @property
    def encoded(self) -> bytes:
        return encode_name(self.names[-1])


class Shortfall:
    """The gaps of a walk: directories that it could not read, and whether some were too large or too deep."""

    def __init__(self) -> None:
        self.unreadable = 0
        self.incomplete = False


def walk(
    directory: int,
    *,
    recursive: bool,
    shortfall: Shortfall,
    keep_going: Callable[[], None],
    enter: Callable[[tuple[str, ...]], bool] = lambda names: True,
    names: tuple[str, ...] = (),
) -> Generator[Entry, None, None]:
    """Yield entries depth first, sorted by the bytes of their names, past no link. The caller closes ``directory``."""
    for name in _sorted_names(directory, shortfall, keep_going):
        keep_going()
        inner = (*names, name)
        try:
            status = os.stat(encode_name(name), dir_fd=directory, follow_symlinks=False)
        except OSError:
            # It went away between the reading of the directory and now.
            continue
        yield Entry(directory=directory, names=inner, status=status)
        if not (recursive and stat.S_ISDIR(status.st_mode) and enter(inner)):
            continue
        if len(inner) >= MAX_WALK_DEPTH:
            shortfall.incomplete = True
            continue
        try:
            opened = open_beneath(directory, encode_name(name), OPEN_DIRECTORY | os.O_NOFOLLOW, shown=render_name(name))
        except PalyraError:
            shortfall.unreadable += 1
            continue
        with hold(opened):
            yield from walk(
                opened, recursive=True, shortfall=shortfall, keep_going=keep_going, enter=enter, names=inner
            )


def _sorted_names(directory: int, shortfall: Shortfall, keep_going: Callable[[], None]) -> list[str]:
    found: list[bytes] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                keep_going()
                if len(found) == MAX_DIRECTORY_ENTRIES:
                    shortfall.incomplete = True
                    break
                found.append(os.fsencode(entry.name))
    except OSError as error:
        raise translate_oserror(error, "the directory") from error
    return [decode_name(name) for name in sorted(found)]
