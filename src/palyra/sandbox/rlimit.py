"""Resource limits: from a profile's limits to the numbers of setrlimit(2).

They bind each process, except RLIMIT_NPROC, which counts all of a user's processes and threads on the machine and
does not bind root. Limits for a whole tree need control groups; these hold everywhere.
"""

import os
import resource
from collections.abc import Sequence
from typing import Final

from palyra.sandbox.launch import BadLaunch, RLimit

_NUMBERS: Final = {
    name: getattr(resource, f"RLIMIT_{name}")
    for name in ("CPU", "AS", "NPROC", "NOFILE", "FSIZE", "CORE", "DATA", "STACK", "MEMLOCK", "MSGQUEUE", "RTPRIO")
}


def numbered(limits: Sequence[RLimit]) -> tuple[tuple[int, int, int], ...]:
    """As setrlimit takes them, never above the hard limit this process itself has: only root could raise that."""
    return tuple(_capped(limit) for limit in limits)


def _capped(limit: RLimit) -> tuple[int, int, int]:
    number = _NUMBERS.get(limit.name)
    if number is None:
        raise BadLaunch(f"there is no resource limit called {limit.name}", name=limit.name)
    if limit.soft < 0 or limit.hard < limit.soft:
        raise BadLaunch(f"the limits of {limit.name} are not in order", soft=limit.soft, hard=limit.hard)
    _, ceiling = resource.getrlimit(number)
    if ceiling == resource.RLIM_INFINITY:
        return number, limit.soft, limit.hard
    return number, min(limit.soft, ceiling), min(limit.hard, ceiling)


def tasks_of_user(uid: int | None = None) -> int:
    """How many processes and threads a user has now, which is what the kernel counts against RLIMIT_NPROC.

    Processes that cannot be traced show as root's and are missed; the launcher's own are of that kind, and it adds
    them.
    """
    wanted = os.getuid() if uid is None else uid
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid == wanted:
                # The directory has one link for each thread, and two of its own.
                total += max(os.stat(f"/proc/{name}/task").st_nlink - 2, 1)
        except OSError:
            continue
    return total
