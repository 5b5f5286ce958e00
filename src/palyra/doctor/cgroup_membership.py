"""Reads the format of ``/proc/self/cgroup``: which group this process is in, per hierarchy."""

from typing import Final

import msgspec

WANTED_CONTROLLERS: Final = ("cpu", "memory", "pids")


class CgroupMembership(msgspec.Struct, frozen=True, kw_only=True):
    """``unified`` is the path in version 2, ``legacy`` the paths in version 1 by controller."""

    unified: str | None
    legacy: dict[str, str]


def parse_membership(text: str) -> CgroupMembership:
    unified: str | None = None
    legacy: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        if number == "0" and not controllers:
            unified = path
        else:
            legacy |= dict.fromkeys((name for name in controllers.split(",") if name), path)
    return CgroupMembership(unified=unified, legacy=legacy)
