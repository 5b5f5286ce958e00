"""Follows a path name by name, as the kernel would, over whatever tells what is there.

The walk never trusts a tail that it cannot see: a missing name ends the looking, and the rest is taken as written, so
that a path is judged by its nearest existing parent. It stops at ``/proc`` and ``/dev/fd``: what those name depends on
who looks, and it is not us.
"""

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from palyra.sandbox.guard_limits import MAX_LINKS

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
