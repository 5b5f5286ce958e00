"""Which program a command names, as a value, and whether the profile lets it run at all."""

import errno
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from palyra.sandbox.domain.command import excerpt
from palyra.sandbox.domain.outcome import ExecutableDenied, SpawnFailed
from palyra.sandbox.limits import MAX_LINKS

# Follows a path name by name, as the kernel would, over whatever tells what is there.
#
# The walk never trusts a tail that it cannot see: a missing name ends the looking, and the rest is taken as written,
# so that a path is judged by its nearest existing parent. It stops at ``/proc`` and ``/dev/fd``: what those name
# depends on who looks, and it is not us.

_MAGIC: Final = frozenset({("proc",), ("dev", "fd"), ("sys",)})
_DEEPEST_MAGIC: Final = max(map(len, _MAGIC))


class Kind(StrEnum):
    MISSING = "missing"
    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"
    # The directory around it cannot be searched, so nothing is known.
    UNREADABLE = "unreadable"
    # Beneath /proc, /sys or /dev/fd: another process sees something else there.
    MAGIC = "magic"
    # More links than the kernel follows.
    LOOP = "loop"


class Seen(msgspec.Struct, frozen=True):
    kind: Kind
    target: str = ""


class PathLook(Protocol):
    """What is at an absolute path whose parents hold no links. A link is reported, never followed."""

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
    """``ends`` are places at which the walk stops even though they are links: devices with a fixed meaning."""
    waiting = _names(path)[::-1]
    done: list[str] = []
    passed: list[str] = []
    kind = Kind.DIRECTORY
    while waiting:
        name = waiting.pop()
        if name == "..":
            # Of a missing name or a file too: what may appear there cannot lead further out than the text does.
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
            if len(passed) > MAX_LINKS:
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
    """Everything the guards want to know about the file behind a command.

    ``found`` is where the lookup found it, ``real`` the file at the end of all links, ``passed`` the links between.
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
        """Every name that this program goes by, the one it is called by first."""
        own = (base_name(self.typed), *map(base_name, self.passed), base_name(self.real))
        return tuple(dict.fromkeys((*own, *sorted(self.twins))))


class ExecutableLookup(Protocol):
    def find(self, command: str, cwd: str) -> ResolvedExecutable | None:
        """The program as the sandbox's PATH and the given directory name it."""


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
    """A listed name means the program of that name on PATH; a listed path means that file, however it is reached.

    With no list every program of the system and of the workspace may run that no later check refuses.
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
