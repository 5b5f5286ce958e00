"""What this machine can enforce: each layer tried for real as this user, with evidence and, where it fails, a fix."""

import ctypes
import os
import re
import struct
import subprocess
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from palyra.errors import PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import HostFacts, HostHold
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.layers.bubblewrap import INSTALL, find_bubblewrap, gather_host

_SYS_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_VERSION: Final = 1
# One instruction that allows everything: SECCOMP_RET_ALLOW.
_ALLOW: Final = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
_FIXED_MOUNT_POINTS: Final = (0, 12)
_CONTROLLERS: Final = {"memory": Layer.CGROUP_MEMORY, "pids": Layer.CGROUP_PIDS, "cpu": Layer.CGROUP_CPU}

_SWITCHES: Final = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
)
_CONTAINER: Final = "in a container, start it with a seccomp profile that allows unshare and mount"


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """One layer on this machine. ``evidence`` was observed; ``fix`` is what a person can do."""

    layer: Layer
    usable: bool
    evidence: str
    fix: str = ""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    bubblewrap: str
    found: tuple[Capability, ...]

    def of(self, layer: Layer) -> Capability | None:
        return next((each for each in self.found if each.layer is layer), None)


@lru_cache(maxsize=4)
def _probed(uid: int, bwrap_inode: int) -> Capabilities:
    return examine()


def probe() -> Capabilities:
    """Once for each user and each bubblewrap; `palyra doctor` calls ``examine`` to look afresh."""
    try:
        inode = os.stat(find_bubblewrap()).st_ino
    except PalyraError:
        inode = 0
    return _probed(os.geteuid(), inode)


def examine() -> Capabilities:
    try:
        host = gather_host()
    except PalyraError as error:
        missing = Capability(layer=Layer.MINIMAL_ROOT, usable=False, evidence=error.message, fix=INSTALL)
        return Capabilities(bubblewrap="", found=(missing, landlock(), *cgroups()))
    version = ".".join(map(str, host.bwrap_version))
    return Capabilities(
        bubblewrap=f"{host.bwrap} {version}" + mount_point_note(host.bwrap_version),
        found=(*namespaces(host), held_host(host), seccomp(host), landlock(), *cgroups()),
    )


def mount_point_note(version: tuple[int, ...]) -> str:
    """Distributions also mend older versions; the number does not tell, so the plan never relies on it."""
    if version >= _FIXED_MOUNT_POINTS:
        return ""
    return " (older than 0.12: may create mount points through links; plans give it none to create)"


def namespaces(host: HostFacts) -> tuple[Capability, ...]:
    """Builds a sandbox with each namespace alone, so that the one that fails is the one that is named."""
    return tuple(
        _try(host, layer, option, fix)
        for layer, option, fix in (
            (Layer.USER_NAMESPACE, ("--unshare-user",), _namespace_fix),
            (Layer.PID_NAMESPACE, ("--unshare-user", "--unshare-pid", "--proc", "/proc"), _namespace_fix),
            (Layer.NETWORK_NAMESPACE, ("--unshare-user", "--unshare-net"), _namespace_fix),
            (Layer.IPC_NAMESPACE, ("--unshare-user", "--unshare-ipc"), _namespace_fix),
            (Layer.UTS_NAMESPACE, ("--unshare-user", "--unshare-uts"), _namespace_fix),
            (Layer.CGROUP_NAMESPACE, ("--unshare-user", "--unshare-cgroup"), _namespace_fix),
            (
                Layer.NESTED_USERNS_OFF,
                ("--unshare-user", "--disable-userns"),
                lambda: "install bubblewrap 0.8 or newer",
            ),
        )
    )


def held_host(host: HostFacts) -> Capability:
    """Found out by looking; every call tries it for real and tells in its receipt."""
    if host.hold is HostHold.MISSING:
        return Capability(
            layer=Layer.HOST_READ_ONLY,
            usable=False,
            evidence="the host cannot be held read-only while a sandbox is built",
            fix="use Linux 5.12 or newer, and sysctl kernel.apparmor_restrict_unprivileged_userns=0 where there is one",
        )
    how = host.hold.value.replace("_", " ")
    return Capability(layer=Layer.HOST_READ_ONLY, usable=True, evidence=f"held read-only from a {how} of its own")


def seccomp(host: HostFacts) -> Capability:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        os.write(writing, _ALLOW)
        os.close(writing)
        return _try(
            host,
            Layer.SECCOMP,
            ("--unshare-user", "--seccomp", str(reading)),
            lambda: "use a kernel built with CONFIG_SECCOMP_FILTER",
            (reading,),
        )
    finally:
        os.close(reading)


def _try(
    host: HostFacts, layer: Layer, options: tuple[str, ...], fix: Callable[[], str], descriptors: tuple[int, ...] = ()
) -> Capability:
    argv = [host.bwrap, *options, "--ro-bind", "/", "/", "--die-with-parent", "--", "/usr/bin/true"]
    said = " ".join(option for option in options if option.startswith("--"))
    try:
        tried = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=limits.PROBE_SECONDS,
            check=False,
            env={},
            pass_fds=descriptors,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Capability(layer=layer, usable=False, evidence=f"bwrap {said}: {error}", fix=fix())
    if tried.returncode == 0:
        return Capability(layer=layer, usable=True, evidence=f"bwrap {said} ran a program as uid {os.geteuid()}")
    reason = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
    return Capability(layer=layer, usable=False, evidence=f"bwrap {said} as uid {os.geteuid()}: {reason}", fix=fix())


def _namespace_fix(sysctl: str = "/proc/sys") -> str:
    for path, forbidding, fix in _SWITCHES:
        try:
            with open(f"{sysctl}/{path}") as file:
                if file.read().strip() == forbidding:
                    return fix
        except OSError:
            continue
    return _CONTAINER


def landlock() -> Capability:
    library = ctypes.CDLL(None, use_errno=True)
    abi = library.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    if abi >= 1:
        return Capability(layer=Layer.LANDLOCK, usable=True, evidence=f"ABI {abi}")
    reason = os.strerror(ctypes.get_errno())
    fix = "boot a kernel with Landlock (lsm=landlock,...)"
    return Capability(layer=Layer.LANDLOCK, usable=False, evidence=f"landlock_create_ruleset: {reason}", fix=fix)


def cgroups(root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> tuple[Capability, ...]:
    """Whether a group with each controller could be made beneath the one that this process is in."""
    try:
        with open(membership) as file:
            lines = [line.split(":", 2) for line in file.read().splitlines() if line.count(":") >= 2]
    except OSError:
        lines = []
    places: dict[str, str] = {}
    for _, names, path in lines:
        for name in re.split(r"[,=]", names):
            places[name] = path
    return tuple(_controller(root, name, layer, places) for name, layer in _CONTROLLERS.items())


def _controller(root: str, name: str, layer: Layer, places: dict[str, str]) -> Capability:
    fix = "run under systemd with Delegate=yes, or as root"
    if name in places:
        group, version = f"{root}/{name}{places[name]}".rstrip("/"), "v1"
    elif "" in places and os.path.exists(f"{root}/cgroup.controllers"):
        group, version = f"{root}{places['']}".rstrip("/"), "v2"
        try:
            with open(f"{group}/cgroup.controllers") as file:
                if name not in file.read().split():
                    return Capability(layer=layer, usable=False, evidence=f"v2: {name} is not delegated here", fix=fix)
        except OSError as error:
            return Capability(layer=layer, usable=False, evidence=f"v2: {error.strerror}", fix=fix)
    else:
        return Capability(layer=layer, usable=False, evidence=f"no {name} controller", fix=fix)
    if os.access(group, os.W_OK):
        return Capability(layer=layer, usable=True, evidence=f"{version}: {group} is writable")
    return Capability(layer=layer, usable=False, evidence=f"{version}: {group} is not writable", fix=fix)
