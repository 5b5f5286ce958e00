"""The layers that bubblewrap builds, each tried for real as this user, with evidence and, where it fails, a fix."""

import os
import subprocess
from functools import cache
from typing import Final

from palyra.doctor.report import Finding, Status, missing, ok
from palyra.errors import PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import HostFacts, HostHold
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.layers.bubblewrap import gather_host

_SWITCHES: Final = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
)
_CONTAINER: Final = "in a container, start it with a seccomp profile that allows unshare and mount"
_OPTIONS: Final = {
    Layer.PID_NAMESPACE: ("--unshare-user", "--unshare-pid", "--proc", "/proc"),
    Layer.NETWORK_NAMESPACE: ("--unshare-user", "--unshare-net"),
    Layer.IPC_NAMESPACE: ("--unshare-user", "--unshare-ipc"),
    Layer.UTS_NAMESPACE: ("--unshare-user", "--unshare-uts"),
    Layer.CGROUP_NAMESPACE: ("--unshare-user", "--unshare-cgroup"),
    Layer.NESTED_USERNS_OFF: ("--unshare-user", "--disable-userns"),
}
OTHER_NAMESPACES: Final = (
    *(Layer.PID_NAMESPACE, Layer.NETWORK_NAMESPACE, Layer.IPC_NAMESPACE, Layer.UTS_NAMESPACE, Layer.CGROUP_NAMESPACE),
)


def build_layers(*layers: Layer) -> Finding:
    """Build a sandbox with each layer alone, so that the finding names the one that fails."""
    try:
        host = _gather_host()
    except PalyraError:
        return missing("not tried: there is no bubblewrap to build them with", "apt install bubblewrap")
    found = [try_layer(host, layer) for layer in layers]
    failed = [each for each in found if each.status is not Status.OK]
    if failed:
        return missing(
            "; ".join(each.evidence for each in failed), "; ".join(dict.fromkeys(each.fix for each in failed))
        )
    return ok("built: " + ", ".join(layer.replace("_", " ") for layer in layers))


@cache
def _gather_host() -> HostFacts:
    return gather_host()


def try_layer(host: HostFacts, layer: Layer) -> Finding:
    if layer is Layer.HOST_READ_ONLY:
        if host.hold is not HostHold.MISSING:
            return ok(f"held read-only from a {host.hold.value.replace('_', ' ')} of its own")
        return missing(
            "the host cannot be held read-only while a sandbox is built",
            "use Linux 5.12 or newer, and sysctl kernel.apparmor_restrict_unprivileged_userns=0 where there is one",
        )
    options = _OPTIONS[layer]
    how = f"bwrap {' '.join(option for option in options if option.startswith('--'))}"
    fix = "install bubblewrap 0.8 or newer" if layer is Layer.NESTED_USERNS_OFF else namespace_fix()
    argv = [host.bwrap, *options, "--ro-bind", "/", "/", "--die-with-parent", "--", "/usr/bin/true"]
    try:
        tried = subprocess.run(argv, capture_output=True, text=True, timeout=limits.PROBE_SECONDS, check=False, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        return missing(f"{how}: {error}", fix)
    if tried.returncode == 0:
        return ok(f"{how} ran a program as uid {os.geteuid()}")
    reason = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
    return missing(f"{how} as uid {os.geteuid()}: {reason}", fix)


def namespace_fix(sysctl: str = "/proc/sys") -> str:
    """Name the switch of this machine that forbids namespaces."""
    for path, forbidding, fix in _SWITCHES:
        try:
            with open(f"{sysctl}/{path}") as file:
                if file.read().strip() == forbidding:
                    return fix
        except OSError:
            continue
    return _CONTAINER
