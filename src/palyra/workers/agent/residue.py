"""The second look after a cleanup: what of a lease is still on this machine, in files, processes and mounts.

A lease's folder has the lease's id in its path, which nothing else on the machine has: whatever names it is of it.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from palyra.workers.agent.limits import MAX_COUNTED

_PROC: Final = Path("/proc")
# Of a line of mountinfo: what part of its file system is mounted, and where.
_ROOT: Final = 3
_PLACE: Final = 4


class Residue(NamedTuple):
    entries: int
    processes: int
    mounts: int

    @property
    def clean(self) -> bool:
        return not any(self)


def look(folder: Path, lease_id: str, *, proc: Path = _PROC) -> Residue:
    """Blocking. ``folder`` is the scratch folder of the lease, which should be gone."""
    return Residue(
        entries=_entries(folder),
        processes=_processes(lease_id, proc),
        mounts=_named_mounts(proc / "self" / "mountinfo", lease_id),
    )


def _entries(folder: Path) -> int:
    """The folder itself and what is in it, down to a bound."""
    if not os.path.lexists(folder):
        return 0
    count = 1
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count >= MAX_COUNTED:
            break
    return min(count, MAX_COUNTED)


def _processes(lease_id: str, proc: Path) -> int:
    """Processes that work in the folder, or in whose view of the machine it is mounted: those of a sandbox."""
    own, found = os.getpid(), 0
    # Processes share views: each is read once.
    views: dict[str, bool] = {_link(proc / "self" / "ns" / "mnt"): False}
    for name in os.listdir(proc):
        if not name.isdigit() or int(name) == own:
            continue
        place = proc / name
        if any(lease_id in _link(place / link).split("/") for link in ("cwd", "root")):
            found += 1
            continue
        view = _link(place / "ns" / "mnt")
        if view not in views or not view:
            views[view] = _named_mounts(place / "mountinfo", lease_id) > 0
        found += views[view]
    return found


def _named_mounts(mountinfo: Path, lease_id: str) -> int:
    count = 0
    # A process that ended meanwhile, or another user's, which no lease of ours is.
    with contextlib.suppress(OSError), open(mountinfo, "rb") as lines:
        wanted = lease_id.encode()
        for line in lines:
            fields = line.split(b" ")
            if len(fields) > _PLACE and any(wanted in fields[index].split(b"/") for index in (_ROOT, _PLACE)):
                count += 1
    return count


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
