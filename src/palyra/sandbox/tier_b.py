"""The plan of a limited process (Tier B): the limits that bind it before it becomes the program.

It has no namespace of its own, so the program sees the host's processes and network. Landlock confines files if the
kernel has it; the receipt shows what was enforced.
"""

from typing import Final

from palyra.sandbox.domain.launch_spec import CgroupEntry, LandlockRules, LaunchSpec, build_tier_b_rlimits
from palyra.sandbox.domain.plan import SYSTEM_PATH
from palyra.sandbox.domain.profile import EgressEnforcementMode, Layer, Receipt, ReceiptLine, SandboxProfile
from palyra.sandbox.layers.landlock import Net, net_handled

# What ordinary programs need to start and for their language. No private file of a person is below these.
SYSTEM_PATHS: Final = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/localtime",
    # Git does not start if this exists and cannot be read.
    "/etc/gitconfig",
    "/etc/ssl",
    "/etc/ca-certificates",
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/stat",
    "/sys/devices/system/cpu",
)
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def environment_of_tier_b(profile: SandboxProfile, home: str) -> tuple[tuple[str, str], ...]:
    """Return the whole environment of the program, sorted. It has nothing of the daemon's."""
    roots = "".join(f"{root}/bin:" for root in profile.tool_roots)
    base = {
        "HOME": home,
        "LANG": "C.UTF-8",
        "PATH": roots + SYSTEM_PATH,
        "TERM": "dumb",
        "TMPDIR": home,
    }
    return tuple(sorted({**base, **dict(profile.env)}.items()))


def spec_of_tier_b(
    profile: SandboxProfile,
    argv: tuple[bytes, ...],
    executable: bytes,
    *,
    cwd: str,
    home: str,
    seccomp: bytes | None,
    tasks_of_user: int,
    memory_by_cgroup: bool,
    cgroup: CgroupEntry,
    landlock: bool,
) -> LaunchSpec:
    """Plan the launch. ``home`` is a folder for this one call; the program may write it and the workspace only."""
    limits = profile.limits
    write = (home,) if profile.read_only else (profile.workspace_root, home)
    read = (*SYSTEM_PATHS, *profile.tool_roots, *((profile.workspace_root,) if profile.read_only else ()))
    # A profile that lets no host through can have TCP taken away here too; UDP is beyond Landlock.
    closed = () if profile.egress is EgressEnforcementMode.STRICT else None
    return LaunchSpec(
        argv=argv,
        executable=executable,
        env=tuple((name.encode(), value.encode()) for name, value in environment_of_tier_b(profile, home)),
        cwd=cwd.encode("utf-8", "surrogateescape"),
        rlimits=build_tier_b_rlimits(
            cpu_seconds=limits.cpu_seconds,
            memory_bytes=None if memory_by_cgroup else limits.memory_bytes,
            pids=limits.pids,
            open_files=limits.open_files,
            file_bytes=limits.file_bytes,
            tasks_of_user=tasks_of_user,
        ),
        no_new_privs=True,
        # Root's program is root only by name: it keeps no power over what is not its own.
        drop_capabilities=True,
        seccomp=seccomp,
        landlock=LandlockRules(read=read, write=write, devices=DEVICES, connect_tcp=closed, bind_tcp=closed)
        if landlock
        else None,
        new_session=True,
        cgroup=cgroup,
    )


def receipt_of_tier_b(profile: SandboxProfile, spec: LaunchSpec, landlock_abi: int) -> Receipt:
    """Describe the limits of a program that runs: each step of its plan has to succeed, or it never starts."""

    def line(layer: Layer, asked: str, got: str, held: bool) -> ReceiptLine:
        return ReceiptLine(layer=layer, asked=asked, got=got, held=held)

    where = "the workspace read-only" if profile.read_only else "the workspace"
    confined = spec.landlock is not None and landlock_abi > 0
    rlimits = ", ".join(f"{limit.name} {limit.soft}" for limit in spec.rlimits)
    lines = [
        line(Layer.NO_NEW_PRIVS, "no new privileges", f"NoNewPrivs {int(spec.no_new_privs)}", spec.no_new_privs),
        line(
            Layer.CAPABILITIES,
            "none in any set",
            "all dropped" if spec.drop_capabilities else "kept",
            spec.drop_capabilities,
        ),
        line(Layer.SECCOMP, "our filter", "filter in force" if spec.seccomp else "no filter", bool(spec.seccomp)),
        line(Layer.RLIMITS, rlimits, f"{len(spec.rlimits)} limits set", True),
        line(
            Layer.LANDLOCK,
            f"files: {where}, a private folder, and the system read-only",
            f"Landlock ABI {landlock_abi}" if confined else "the kernel has no Landlock",
            confined,
        ),
        line(
            Layer.WORKSPACE,
            f"writes only in {where} and a private folder",
            "by Landlock" if confined else "by file permissions only",
            confined,
        ),
        _egress(profile, spec, landlock_abi),
        line(Layer.ENVIRONMENT, f"{len(spec.env)} variables", f"{len(spec.env)} variables, none inherited", True),
        line(Layer.NEW_SESSION, "a session of its own", "setsid before exec", spec.new_session),
    ]
    return Receipt.of(lines)


# The layer that Tier B cannot enforce on any machine, and the fix.
FIXES: Final = {
    Layer.EGRESS: "Tier B shares the host's network on every machine: oblige the call to tier c as well, or set"
    ' sandbox.tier to "c"'
}


def _egress(profile: SandboxProfile, spec: LaunchSpec, landlock_abi: int) -> ReceiptLine:
    """Judge egress: only a network of its own enforces strict egress, so a call that demands it needs Tier C."""
    mode = profile.egress
    got = "the host's network; arguments are judged before the start"
    if spec.landlock is not None and net_handled(spec.landlock, landlock_abi) & Net.CONNECT_TCP:
        got = "the host's network with TCP closed by Landlock; UDP is open"
    return ReceiptLine(layer=Layer.EGRESS, asked=mode.value, got=got, held=mode is not EgressEnforcementMode.STRICT)
