"""The plan of an isolated process: bubblewrap's options, each with its reason, from a profile and facts.

Pure. The options travel on a descriptor (``--args``), so that neither the environment nor the paths show in the
process list, and bubblewrap itself is started with an empty environment: its own would be readable in the sandbox as
/proc/1/environ, and an LD_PRELOAD in it would run outside.
"""

import hashlib
from typing import Final

import msgspec

from palyra.sandbox.domain.facts import Facts, HostFacts, HostHold, ProtectedMount
from palyra.sandbox.domain.launch_spec import BESIDE_ROOT, NO_CORE_BYTES, RLimit, RootPart, memory_rlimits
from palyra.sandbox.domain.minimal_root import (
    FIRST_EXTRA_FILE_FD,
    HOME,
    HOSTNAME,
    USER,
    ExpectedMount,
    PlanLine,
    as_bytes,
    built_by_bubblewrap,
    device_parts,
    expected_parts,
    identity_files,
    inside_ids,
    is_covered,
    own_devices,
    own_processes,
    plan_line,
    private,
    root_parts,
    sealed,
    taken_by_bubblewrap,
    tool_parts,
)
from palyra.sandbox.domain.profile import (
    NAME_A_PROJECT,
    BadProfile,
    EgressEnforcementMode,
    Layer,
    ReceiptLine,
    SandboxLimits,
    SandboxProfile,
    unsupported,
)

# Descriptor numbers in the started process.
ARGS_FD: Final = 9
SECCOMP_FD: Final = 10
INFO_FD: Final = 16
BLOCK_FD: Final = 17
# The process that waits inside: where its orders come from, and what it is made of.
ORDERS_FD: Final = 60
IMAGE_FD: Final = 61
WAITS_INSIDE: Final = (b"/proc/self/fd/%d" % IMAGE_FD,)

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A workspace that is one of these, or holds one, would hide or expose the system itself.
_SYSTEM: Final = (
    *("/usr", "/etc", "/proc", "/dev", "/sys", "/run", "/var", HOME),
    *("/tmp", "/bin", "/sbin", "/lib", "/lib64"),  # noqa: S108
)
_NEVER_BELOW: Final = ("/proc", "/dev", "/sys")


class BubblewrapPlan(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[bytes, ...]
    lines: tuple[PlanLine, ...]
    data_fds: tuple[tuple[int, bytes], ...]
    pass_fds: tuple[int, ...]
    expected: tuple[ExpectedMount, ...]
    unshared: frozenset[str]
    environment: tuple[tuple[str, str], ...]
    profile: SandboxProfile
    facts: Facts
    cwd: str
    memory_is_counted: bool = False
    # What is put together before bubblewrap begins; nothing where the host cannot be held.
    parts: tuple[RootPart, ...] = ()

    @property
    def digest(self) -> str:
        """Names the plan without the command: equal digests are equal sandboxes."""
        taken = hashlib.sha256()
        for number, content in self.data_fds:
            taken.update(b"%d:%d:" % (number, len(content)))
            taken.update(content)
        for part in self.parts:
            for each in (part.kind.value.encode(), part.path, part.content):
                taken.update(b"%d:" % len(each) + each)
        for mount in self.expected:
            taken.update(b"%d:%d:" % (len(mount.path), mount.read_only) + mount.path)
        return "sha256:" + taken.hexdigest()


def plan_isolated(
    profile: SandboxProfile,
    command_argv: tuple[bytes, ...],
    facts: Facts,
    *,
    cwd: str | None = None,
    memory_is_counted: bool = False,
) -> BubblewrapPlan:
    """``memory_is_counted`` says that a cgroup will limit real memory. With ``WAITS_INSIDE`` for its command the
    sandbox holds a process that waits for the program's words, environment and directory.

    Refuses with ``sandbox.unsupported_platform`` where bubblewrap lacks an option that the profile needs."""
    refuse_system_workspace(profile.workspace_root)
    inside = command_argv == WAITS_INSIDE
    if not command_argv or any(b"\0" in each for each in command_argv):
        raise BadProfile("a command has at least one word, and no NUL")
    where = cwd or profile.workspace_root
    strict = profile.egress is EgressEnforcementMode.STRICT
    environment = environment_of(profile)
    made_before = facts.host.hold is not HostHold.MISSING
    for root in profile.tool_roots:
        _refuse_system(root, "a tool root", hint=None)
    parts = root_parts(facts.host, profile.extra_files, strict=strict)
    if made_before:
        parts = (*device_parts(), *parts)
    tools = tool_parts(profile.tool_roots)
    expected = expected_parts(parts)
    lines = [
        *_namespaces(facts.host, strict=strict),
        *(taken_by_bubblewrap() if made_before else built_by_bubblewrap(parts)),
        own_processes(),
        *(() if made_before else (own_devices(),)),
        *private(expected),
        *_tools(tools, expected, made_before=made_before),
        *_workspace(profile, facts, expected, made_before=made_before),
        *sealed(expected, made_before=made_before),
        *(_waiting(facts) if inside else _process(facts, environment, where)),
    ]
    _refuse_unknown_options(lines, facts.host)
    options = b"".join(each + b"\0" for line in lines for each in line.arguments)
    data = {ARGS_FD: options} | ({} if made_before else identity_files(facts.host, strict=strict))
    data |= {number: content for number, (_, content) in enumerate(profile.extra_files, FIRST_EXTRA_FILE_FD)}
    if facts.seccomp is not None:
        data[SECCOMP_FD] = facts.seccomp
    unshared = {"user", "pid", "mnt", "ipc", "uts", "cgroup"} | ({"net"} if strict else set())
    return BubblewrapPlan(
        argv=(as_bytes(facts.host.bwrap), b"--args", b"%d" % ARGS_FD, b"--", *command_argv),
        lines=tuple(lines),
        data_fds=tuple(sorted(data.items())),
        pass_fds=(ORDERS_FD, IMAGE_FD) if inside else (INFO_FD, BLOCK_FD),
        expected=tuple(expected),
        unshared=frozenset(unshared),
        environment=environment,
        profile=profile,
        facts=facts,
        cwd=where,
        memory_is_counted=memory_is_counted,
        parts=(*parts, *tools) if made_before else (),
    )


def rlimits_of(wanted: SandboxLimits, *, memory_is_counted: bool) -> tuple[RLimit, ...]:
    """Limits that bubblewrap itself can live with.

    Memory is limited for each process, by its address space, only where no cgroup counts it for all: programs reserve
    far more than they use. The number of processes is not among them:
    counted for the user outside, it would fail where that user is busy. It is set on the waiting sandbox
    (``readback.Waiting.limit_processes``), where the kernel counts the sandbox's own.
    """
    memory = () if memory_is_counted else memory_rlimits(wanted.memory_bytes)
    return (
        RLimit("CPU", wanted.cpu_seconds, wanted.cpu_seconds + 1),
        *memory,
        RLimit("NOFILE", wanted.open_files, wanted.open_files),
        RLimit("FSIZE", wanted.file_bytes, wanted.file_bytes),
        RLimit("CORE", NO_CORE_BYTES, NO_CORE_BYTES),
    )


def environment_of(profile: SandboxProfile) -> tuple[tuple[str, str], ...]:
    """The whole environment of the program, sorted. Nothing of the daemon's own is in it."""
    roots = "".join(f"{root}/bin:" for root in profile.tool_roots)
    base = {
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "LOGNAME": USER,
        "PATH": roots + SYSTEM_PATH,
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108  a tmpfs of the sandbox's own
        "USER": USER,
    }
    return tuple(sorted({**base, **dict(profile.env)}.items()))


def refuse_system_workspace(root: str) -> None:
    _refuse_system(root, "a workspace", hint=NAME_A_PROJECT)


def _refuse_system(root: str, what: str, *, hint: str | None) -> None:
    for place in _SYSTEM:
        if root == place:
            raise BadProfile(f"{root} cannot be {what}: a sandbox has that place for itself", hint=hint)
        if place.startswith(root.rstrip("/") + "/"):
            raise BadProfile(f"{root} cannot be {what}: it holds {place}, which a sandbox has for itself", hint=hint)
    for place in _NEVER_BELOW:
        if root.startswith(place + "/"):
            raise BadProfile(f"{root} cannot be {what}: it lies in {place}, which a sandbox has for itself", hint=hint)


def _namespaces(host: HostFacts, *, strict: bool) -> list[PlanLine]:
    uid, gid = inside_ids(host)
    lines = [
        plan_line("a user namespace, so that nothing in the sandbox has a capability outside", "--unshare-user"),
        plan_line("the first program sees no other process, and all die with it", "--unshare-pid"),
        plan_line("no shared memory or message queue of the host", "--unshare-ipc"),
        plan_line("a host name of its own", "--unshare-uts"),
        plan_line("the host's control groups do not show, where the kernel has the namespace", "--unshare-cgroup-try"),
        plan_line("not root even inside: programs that think they are root try what cannot work", "--uid", uid),
        plan_line("the group that goes with it", "--gid", gid),
        plan_line("a nested user namespace would give back mounts and a wide kernel surface", "--disable-userns"),
        plan_line("no capability, not even in its own namespaces", "--cap-drop", "ALL"),
        plan_line("the host's name is nobody's business", "--hostname", HOSTNAME),
        plan_line("no controlling terminal to push characters into", "--new-session"),
        plan_line("killing the launcher kills everything", "--die-with-parent"),
    ]
    if strict:
        lines.insert(2, plan_line("a network with nothing but its own loopback", "--unshare-net"))
    return lines


def _tools(tools: tuple[RootPart, ...], expected: list[ExpectedMount], *, made_before: bool) -> list[PlanLine]:
    expected += expected_parts(tools)
    if not made_before:
        return built_by_bubblewrap(tools)
    return [
        PlanLine(arguments=(b"--ro-bind", tool.place, tool.path), reason=tool.reason) for tool in tools if tool.beside
    ]


def _workspace(
    profile: SandboxProfile, facts: Facts, expected: list[ExpectedMount], *, made_before: bool
) -> list[PlanLine]:
    root = facts.workspace.root
    option = b"--ro-bind" if profile.read_only else b"--bind"
    source = BESIDE_ROOT + root if made_before else root
    lines = [PlanLine(arguments=(option, source, root), reason="the workspace, at its own path")]
    expected.append(ExpectedMount(path=root, read_only=profile.read_only, identity=facts.workspace.identity))
    if not profile.read_only:  # else all of it is read-only already, with the mounts in it
        for mount in sorted(facts.workspace.mounts, key=lambda each: each.names):
            lines.append(_protection(root, mount, expected))
    if not made_before:
        return lines
    # All is mounted before bubblewrap begins, by calls that never make a path, and comes with the root or in one bind.
    return lines[:1] if is_covered(root) else []


def _protection(root: bytes, mount: ProtectedMount, expected: list[ExpectedMount]) -> PlanLine:
    path = b"/".join((root, *mount.names))
    option = b"--ro-bind" if mount.read_only else b"--bind"
    expected.append(ExpectedMount(path=path, read_only=mount.read_only, identity=mount.identity))
    return PlanLine(arguments=(option, path, path), reason=mount.reason)


def _process(facts: Facts, environment: tuple[tuple[str, str], ...], cwd: str) -> list[PlanLine]:
    lines = [plan_line("nothing of the launcher's environment", "--clearenv")]
    lines += [plan_line("the environment as planned", "--setenv", name, value) for name, value in environment]
    lines.append(plan_line("where the program starts", "--chdir", cwd))
    if facts.seccomp is not None:
        lines.append(plan_line("system calls that no ordinary program needs are refused", "--seccomp", SECCOMP_FD))
    lines.append(plan_line("says which process to look at", "--info-fd", INFO_FD))
    lines.append(plan_line("waits until the sandbox has been looked at from outside", "--block-fd", BLOCK_FD))
    return lines


def _waiting(facts: Facts) -> list[PlanLine]:
    lines = [
        plan_line("nothing of the launcher's environment", "--clearenv"),
        plan_line("a directory that is always there; the program's own comes with its words", "--chdir", "/"),
    ]
    if facts.seccomp is not None:
        lines.append(plan_line("system calls that no ordinary program needs are refused", "--seccomp", SECCOMP_FD))
    return lines


_OPTION_LAYERS: Final = {
    b"--disable-userns": Layer.NESTED_USERNS_OFF,
    b"--size": Layer.MINIMAL_ROOT,
    b"--perms": Layer.MINIMAL_ROOT,
    b"--seccomp": Layer.SECCOMP,
    b"--clearenv": Layer.ENVIRONMENT,
}


def _refuse_unknown_options(lines: list[PlanLine], host: HostFacts) -> None:
    known = {as_bytes(option) for option in host.bwrap_options}
    version = ".".join(map(str, host.bwrap_version))
    missing = sorted({line.arguments[0] for line in lines} - known)
    if missing:
        raise unsupported(
            ReceiptLine(
                layer=_OPTION_LAYERS.get(option, Layer.MINIMAL_ROOT),
                asked=option.decode(),
                got=f"bubblewrap {version} does not know {option.decode()}",
                held=False,
            )
            for option in missing
        )
