"""A plan of an isolated sandbox on a host that exists nowhere."""

from palyra.sandbox.domain.facts import Facts, HostFacts, Identity, ProtectedMount, WorkspaceFacts
from palyra.sandbox.domain.plan import BubblewrapPlan, plan_isolated
from palyra.sandbox.domain.profile import SandboxProfile

OPTIONS = frozenset(
    [
        "--args",
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--uid",
        "--gid",
        "--disable-userns",
        "--cap-drop",
        "--hostname",
        "--new-session",
        "--die-with-parent",
        "--ro-bind",
        "--bind",
        "--dev-bind",
        "--symlink",
        "--perms",
        "--file",
        "--proc",
        "--dev",
        "--size",
        "--tmpfs",
        "--remount-ro",
        "--clearenv",
        "--setenv",
        "--chdir",
        "--seccomp",
        "--info-fd",
        "--block-fd",
    ]
)


HOST = HostFacts(
    bwrap="/usr/bin/bwrap",
    bwrap_version=(0, 8, 0),
    bwrap_options=OPTIONS,
    uid=1234,
    gid=1235,
    root_links=(("/bin", "usr/bin"), ("/lib", "usr/lib")),
    root_directories=("/lib64",),
    etc_paths=("/etc/ld.so.cache",),
    etc_links=(("/etc/localtime", "/usr/share/zoneinfo/UTC"),),
    resolv_conf=b"nameserver 192.0.2.53\n",
    hosts=b"192.0.2.1 db\n",
)


MOUNTS = (
    ProtectedMount(names=(b".git", b"hooks"), identity=Identity(1, 4), read_only=True, reason="protected"),
    ProtectedMount(names=(b".git",), identity=Identity(1, 3), read_only=False, reason="above it"),
)


def facts(host: HostFacts = HOST, seccomp: bytes | None = b"12345678") -> Facts:
    workspace = WorkspaceFacts(root=b"/home/a/work", identity=Identity(1, 2), mounts=MOUNTS)
    return Facts(host=host, workspace=workspace, seccomp=seccomp)


def plan(host: HostFacts = HOST, **changes: object) -> BubblewrapPlan:
    profile = SandboxProfile(workspace_root="/home/a/work", **changes)  # type: ignore[arg-type]
    return plan_isolated(profile, (b"ls", b"-la"), facts(host))
