"""Where a process stands in the control group hierarchies, read from /proc's text.

Version 1 has one hierarchy for each controller, version 2 one for all; a machine may have both, with version 2 holding
no controller but still able to kill a group at once.
"""

from typing import Final

import msgspec

MEMORY: Final = "memory"
PIDS: Final = "pids"
CPU: Final = "cpu"
WANTED: Final = (MEMORY, PIDS, CPU)


class Hierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """``directory`` is this process's own group. ``controllers`` are those of ours that live here."""

    version: int
    directory: str
    controllers: frozenset[str]


def parse_hierarchies(membership: str, mountinfo: str) -> tuple[Hierarchy, ...]:
    """From the text of /proc/self/cgroup and /proc/self/mountinfo."""
    mounts = _mounts(mountinfo)
    found = []
    for line in membership.splitlines():
        identifier, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not path.startswith("/") or path.startswith("/../"):
            continue
        if identifier == "0" and not names:
            directory = _place(mounts, path, version=2, controller=None)
            if directory is not None:
                found.append(Hierarchy(version=2, directory=directory, controllers=frozenset()))
            continue
        ours = frozenset(names.split(",")) & frozenset(WANTED)
        directory = _place(mounts, path, version=1, controller=next(iter(ours))) if ours else None
        if directory is not None:
            found.append(Hierarchy(version=1, directory=directory, controllers=ours))
    return tuple(found)


class _Mount(msgspec.Struct, frozen=True):
    root: str
    point: str
    version: int
    options: frozenset[str]


def _mounts(mountinfo: str) -> tuple[_Mount, ...]:
    found = []
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not dash or len(fields) < 6 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        found.append(_Mount(_unescaped(fields[3]), _unescaped(fields[4]), version, frozenset(kind[2].split(","))))
    return tuple(found)


def _unescaped(path: str) -> str:
    """mountinfo writes space, tab, newline and backslash in octal."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escape, character)
    return path


def _place(mounts: tuple[_Mount, ...], path: str, *, version: int, controller: str | None) -> str | None:
    for mount in mounts:
        if mount.version != version or (controller is not None and controller not in mount.options):
            continue
        root = mount.root.rstrip("/")
        if path == root or path.startswith(root + "/"):
            return mount.point.rstrip("/") + path[len(root) :].rstrip("/")
    return None
