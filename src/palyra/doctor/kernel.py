"""Probes of the Linux kernel: each makes the system call it asks about, or reads what the kernel says of itself."""

import ctypes
import errno
import os
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from palyra.doctor.report import Finding, missing, ok, warn

WANTED_CONTROLLERS: Final = ("cpu", "memory", "pids")
# The same numbers on every architecture we support.
SYS_OPENAT2: Final = 437
SYS_LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_CREATE_RULESET_VERSION: Final = 1
RESOLVE_BENEATH: Final = 0x08
PR_GET_SECCOMP: Final = 21
# The first Landlock that also restricts TCP.
LANDLOCK_ABI_WITH_NETWORK: Final = 4
COMMAND_TIMEOUT_SECONDS: Final = 10

_KERNEL_FIX: Final = "use a newer kernel; in a container, ask its operator to allow the call"

_libc = ctypes.CDLL(None, use_errno=True)


def openat2() -> Finding:
    """Open a path that climbs out of a folder: only a kernel that refuses it passes."""
    with tempfile.TemporaryDirectory() as folder:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_BENEATH)
            inside = _openat2(descriptor, b".", how)
            outside = _openat2(descriptor, b"..", how)
        finally:
            os.close(descriptor)
    if inside != 0:
        return missing(f"openat2 fails: {os.strerror(inside)}", _KERNEL_FIX)
    if outside != errno.EXDEV:
        return missing("openat2 with RESOLVE_BENEATH let a path climb out", _KERNEL_FIX)
    return ok("openat2 opens beneath a folder and refuses to climb out of it")


def _openat2(folder: int, path: bytes, how: bytes) -> int:
    """Return the errno of the call, or 0 if it succeeded."""
    opened = _libc.syscall(SYS_OPENAT2, folder, path, how, len(how))
    if opened < 0:
        return ctypes.get_errno()
    os.close(opened)
    return 0


def landlock() -> Finding:
    abi = _libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    if abi < 0:
        reason = os.strerror(ctypes.get_errno())
        return missing(f"landlock_create_ruleset fails: {reason}", "boot a kernel with Landlock (`lsm=landlock,...`)")
    if abi < LANDLOCK_ABI_WITH_NETWORK:
        return warn(f"Landlock ABI {abi}: files only, no TCP rules", "use Linux 6.7 or newer")
    return ok(f"Landlock ABI {abi}")


def seccomp(status_file: Path = Path("/proc/self/status")) -> Finding:
    if _libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        reason = os.strerror(ctypes.get_errno())
        return missing(f"prctl(PR_GET_SECCOMP) fails: {reason}", "use a kernel built with CONFIG_SECCOMP_FILTER")
    fields = dict(line.split(":\t", 1) for line in status_file.read_text().splitlines() if ":\t" in line)
    if "Seccomp_filters" not in fields:
        return missing("the kernel reports no seccomp filters", "use a kernel built with CONFIG_SECCOMP_FILTER")
    return ok(f"seccomp filters available (this process has {fields['Seccomp_filters'].strip()})")


def user_namespaces(sysctl: Path = Path("/proc/sys/kernel")) -> Finding:
    """Make a user namespace. If that fails, name the switch that is known to forbid it."""
    try:
        tried = subprocess.run(
            ["unshare", "--user", "--map-root-user", "true"],  # noqa: S607  the probe asks about the user's own PATH
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return warn("the program unshare is not installed, so none was made", "apt install util-linux")
    except subprocess.TimeoutExpired:
        return missing("making one did not come to an end", _KERNEL_FIX)
    if tried.returncode == 0:
        return ok("made one with `unshare --user --map-root-user`")
    for switch, forbidding in (("unprivileged_userns_clone", "0"), ("apparmor_restrict_unprivileged_userns", "1")):
        file = sysctl / switch
        if file.exists() and file.read_text().strip() == forbidding:
            wanted = "1" if forbidding == "0" else "0"
            return missing(f"kernel.{switch} is {forbidding}", f"sysctl kernel.{switch}={wanted}")
    reason = tried.stderr.strip().splitlines()
    return missing(f"unshare fails: {reason[-1] if reason else tried.returncode}", _KERNEL_FIX)


def parse_membership(text: str) -> dict[str, str]:
    """Read ``/proc/self/cgroup``: the path in version 1 by controller, and in version 2 by an empty name."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def cgroups(mount: Path = Path("/sys/fs/cgroup"), membership_file: Path = Path("/proc/self/cgroup")) -> Finding:
    """Find the controllers that limit whole process trees and may be used from here."""
    try:
        groups = parse_membership(membership_file.read_text())
    except OSError as error:
        return missing(f"{membership_file} is not readable: {error.strerror}", "mount /proc")
    fix = "delegate cpu, memory and pids to this user (systemd: Delegate=yes), or run as root"
    unified = groups.pop("", None)
    if (mount / "cgroup.controllers").exists() and unified is not None:
        group = mount / unified.lstrip("/")
        listed = group / "cgroup.controllers"
        offered = listed.read_text().split() if listed.exists() else []
        usable = [name for name in WANTED_CONTROLLERS if name in offered and os.access(group, os.W_OK)]
        version = "v2"
    else:
        places = {name: mount / name / path.lstrip("/") for name, path in groups.items()}
        usable = [name for name in WANTED_CONTROLLERS if name in places and os.access(places[name], os.W_OK)]
        version = "v1" if groups else "none"
    if len(usable) == len(WANTED_CONTROLLERS):
        return ok(f"cgroup {version}: {', '.join(usable)} writable")
    if usable:
        return warn(f"cgroup {version}: only {', '.join(usable)} writable", fix)
    return missing(f"cgroup {version}: none of {', '.join(WANTED_CONTROLLERS)} writable", fix)
