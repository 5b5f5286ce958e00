"""bubblewrap on this host: its place, its options, the facts of the host, and the launch of a plan."""

import ctypes
import errno
import os
import platform
import re
import stat
import subprocess
from functools import lru_cache
from typing import Final

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import HostFacts, HostHold
from palyra.sandbox.domain.launch_spec import NO_CGROUP, CgroupEntry, LaunchSpec, ReadOnlyHost, build_tier_c_rlimits
from palyra.sandbox.domain.plan import ETC_REASONS, BubblewrapPlan, is_covered
from palyra.sandbox.domain.profile import Layer, ReceiptLine, unsupported
from palyra.sandbox.layers.syscall_table import SYSCALLS

_CAP_SYS_ADMIN: Final = 1 << 21
# Where this is on, only programs with a profile of their own get capabilities in a user namespace. bubblewrap may have
# one; the process that starts it does not.
_APPARMOR: Final = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def find_hold(apparmor: str = _APPARMOR) -> HostHold:
    """Find how this process can hold the host read-only while bubblewrap builds a sandbox."""
    if not _kernel_sets_mounts():
        return HostHold.MISSING
    if _administers():
        return HostHold.MOUNT_NAMESPACE
    return HostHold.MISSING if _content(apparmor).strip() == b"1" else HostHold.USER_NAMESPACE


def _kernel_sets_mounts() -> bool:
    """Call mount_setattr(2) without any argument: only a kernel that has it answers EINVAL."""
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
            return file.read(limits.MAX_COPIED_FILE_BYTES)
    except OSError:
        return b""


# Never through PATH: a variable must not choose the program that builds the sandbox.
PLACES: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
INSTALL: Final = "install bubblewrap (apt install bubblewrap)"

_ROOTS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_VERSION: Final = re.compile(r"(\d+(?:\.\d+)*)")
_OPTION: Final = re.compile(r"^\s*(--[a-z0-9-]+)", re.MULTILINE)


def find_bubblewrap(places: tuple[str, ...] = PLACES) -> str:
    """Find the installed program. One that other users could have written is skipped."""
    for place in places:
        try:
            status = os.stat(place)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and os.access(place, os.X_OK) and not status.st_mode & stat.S_IWOTH:
            return place
    line = ReceiptLine(
        layer=Layer.MINIMAL_ROOT, asked="bubblewrap", got=f"not found at {', '.join(places)}", held=False
    )
    raise unsupported([line], {Layer.MINIMAL_ROOT: INSTALL})


def gather_host() -> HostFacts:
    """Gather the facts of the host, once until bubblewrap, the user or the resolver changes."""
    place = find_bubblewrap()
    status = os.stat(place)
    version, options = _describe(place, status.st_ino, status.st_mtime_ns)
    return _host(place, version, options, os.geteuid(), os.getegid(), _resolver_stamp())


@lru_cache(maxsize=4)
def _describe(place: str, inode: int, changed: int) -> tuple[tuple[int, ...], frozenset[str]]:
    def output_of(option: str) -> str:
        return subprocess.run(
            [place, option],
            capture_output=True,
            text=True,
            timeout=limits.PROBE_SECONDS,
            check=False,
            env={},
        ).stdout

    found = _VERSION.search(output_of("--version"))
    version = tuple(int(part) for part in found[1].split(".")) if found else ()
    return version, frozenset(_OPTION.findall(output_of("--help")))


@lru_cache(maxsize=4)
def _host(
    place: str, version: tuple[int, ...], options: frozenset[str], uid: int, gid: int, stamp: tuple[int, ...]
) -> HostFacts:
    links: list[tuple[str, str]] = []
    directories: list[str] = []
    for path in _ROOTS:
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            directories.append(path)
    etc_paths: list[str] = []
    etc_links: list[tuple[str, str]] = []
    for path in ETC_REASONS:
        if os.path.islink(path):
            etc_links.append((path, os.readlink(path)))
        elif os.path.exists(path):
            etc_paths.append(path)
    return HostFacts(
        bwrap=place,
        bwrap_version=version,
        bwrap_options=options,
        uid=uid,
        gid=gid,
        root_links=tuple(links),
        root_directories=tuple(directories),
        etc_paths=tuple(etc_paths),
        etc_files=frozenset(path for path in etc_paths if not os.path.isdir(path)),
        etc_links=tuple(etc_links),
        resolv_conf=_content("/etc/resolv.conf"),
        hosts=_content("/etc/hosts"),
        hold=find_hold(),
    )


def _resolver_stamp() -> tuple[int, ...]:
    """Return a value that changes when the machine moves to another network."""
    stamp: list[int] = []
    for path in ("/etc/resolv.conf", "/etc/hosts"):
        try:
            status = os.stat(path)
        except OSError:
            continue
        stamp += [status.st_ino, status.st_mtime_ns, status.st_size]
    return tuple(stamp)


@lru_cache(maxsize=32)
def to_launch_spec(plan: BubblewrapPlan, *, cgroup: CgroupEntry = NO_CGROUP) -> LaunchSpec:
    """Describe the launch of bubblewrap itself: in / and with an empty environment."""
    return LaunchSpec(
        argv=plan.argv,
        env=(),
        cwd=b"/",
        rlimits=build_tier_c_rlimits(plan.profile.limits, memory_is_counted=plan.memory_is_counted),
        no_new_privs=True,
        new_session=True,
        data_fds=plan.data_fds,
        pass_fds=plan.pass_fds,
        cgroup=cgroup,
        read_only_host=_read_only_host(plan),
    )


def _read_only_host(plan: BubblewrapPlan) -> ReadOnlyHost | None:
    host = plan.facts.host
    if host.hold is HostHold.MISSING:
        return None
    workspace = plan.facts.workspace
    mounts = () if plan.profile.read_only else sorted(workspace.mounts, key=lambda each: each.names)
    return ReadOnlyHost(
        workspace=workspace.root,
        beside=is_covered(workspace.root),
        writable=not plan.profile.read_only,
        parts=plan.parts,
        mounted=tuple((b"/".join((workspace.root, *each.names)), each.read_only) for each in mounts),
        ids=(host.uid, host.gid) if host.hold is HostHold.USER_NAMESPACE else None,
    )
