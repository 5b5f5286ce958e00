"""Whether this process can have the host held read-only while bubblewrap builds a sandbox. Looks, starts nothing."""

import ctypes
import errno
import platform
from typing import Final

from palyra.sandbox.host_facts import HostHold
from palyra.sandbox.syscall_table import SYSCALLS

_CAP_SYS_ADMIN: Final = 1 << 21
# Where it is on, only programs with a profile of their own get capabilities in a user namespace. bubblewrap may have
# one; what starts it has none.
_APPARMOR: Final = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def find_hold(apparmor: str = _APPARMOR) -> HostHold:
    if not _kernel_sets_mounts():
        return HostHold.MISSING
    if _administers():
        return HostHold.MOUNT_NAMESPACE
    return HostHold.MISSING if _content(apparmor).strip() == b"1" else HostHold.USER_NAMESPACE


def _kernel_sets_mounts() -> bool:
    """mount_setattr(2) without any argument: a kernel that has it finds that wrong, an old one or a container's filter
    does not come so far."""
    number = SYSCALLS.get(platform.machine(), {}).get("mount_setattr")
    if number is None:
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call(ctypes.c_long(number), ctypes.c_int(-1), ctypes.c_char_p(b""), ctypes.c_uint(0), None, ctypes.c_size_t(0))
    return ctypes.get_errno() == errno.EINVAL


def _administers() -> bool:
    for line in _content("/proc/self/status").splitlines():
        name, _, value = line.partition(b":")
        if name == b"CapEff":
            return bool(int(value, 16) & _CAP_SYS_ADMIN)
    return False


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
