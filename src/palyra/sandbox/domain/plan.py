"""The plan of an isolated process: bubblewrap's options and the root that the program sees, each with its reason.

Pure. The options travel on a descriptor (``--args``), so that neither the environment nor the paths show in the
process list. bubblewrap itself starts with an empty environment: its own would be readable in the sandbox as
/proc/1/environ, and an LD_PRELOAD in it would run outside. The root holds the system read-only, a few files of /etc,
and no files of any user. A path that is not listed here does not exist in the sandbox.
"""

from typing import Final

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Facts, HostFacts, HostHold, Identity, ProtectedMount
from palyra.sandbox.domain.launch_spec import (
    BESIDE_ROOT,
    MADE_ROOT,
    RootKind,
    RootPart,
)
from palyra.sandbox.domain.process_run import encode_word
from palyra.sandbox.domain.profile import (
    NAME_A_PROJECT,
    BadProfile,
    EgressEnforcementMode,
    Layer,
    ReceiptLine,
    SandboxProfile,
    unsupported,
)

# Descriptor numbers in the started process.
ARGS_FD: Final = 9
SECCOMP_FD: Final = 10
PASSWD_FD: Final = 11
GROUP_FD: Final = 12
NSSWITCH_FD: Final = 13
RESOLV_FD: Final = 14
HOSTS_FD: Final = 15
INFO_FD: Final = 16
BLOCK_FD: Final = 17
FIRST_EXTRA_FILE_FD: Final = 18
# The process that waits inside reads its orders from the first, and its machine code is the second.
ORDERS_FD: Final = 60
IMAGE_FD: Final = 61
WAITS_INSIDE: Final = (b"/proc/self/fd/%d" % IMAGE_FD,)

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOSTNAME: Final = "sandbox"
HOME: Final = "/home/sandbox"
USER: Final = "sandbox"
# Root is shown as an ordinary user inside: tar, npm and others try to change owners when they run as root.
ORDINARY_ID: Final = 1000

# A workspace that is one of these, or holds one, would hide or expose the system itself.
_SYSTEM: Final = (
    *("/usr", "/etc", "/proc", "/dev", "/sys", "/run", "/var", HOME),
    *("/tmp", "/bin", "/sbin", "/lib", "/lib64"),  # noqa: S108
)
_NEVER_BELOW: Final = ("/proc", "/dev", "/sys")

# The resolver of a sandbox with allowed hosts. It has no IPv6 address to give, so the C library need not ask for any.
STRICT_RESOLVER: Final = b"nameserver 127.0.0.1\noptions no-aaaa\n"
NSSWITCH: Final = b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n"

_FILES: Final = {
    PASSWD_FD: ("/etc/passwd", "the user's own name and no other account"),
    GROUP_FD: ("/etc/group", "the user's own group"),
    NSSWITCH_FD: ("/etc/nsswitch.conf", "names come from files and DNS only; no daemon is asked"),
    RESOLV_FD: ("/etc/resolv.conf", "the resolver that the egress mode allows"),
    HOSTS_FD: ("/etc/hosts", "localhost, and the host's own table only where its network is shared"),
}

ETC_REASONS: Final = {
    "/etc/ld.so.cache": "the dynamic linker finds libraries by it",
    "/etc/ld.so.conf": "the linker's search path, for compilers",
    "/etc/ld.so.conf.d": "the linker's search path, for compilers",
    "/etc/alternatives": "cc, awk, editor and others are links through it",
    "/etc/ssl/certs": "public certificates; the private directory beside it is not mounted",
    "/etc/ssl/openssl.cnf": "openssl's defaults",
    "/etc/ca-certificates.conf": "which public certificates are trusted",
    "/etc/pki/tls/certs": "public certificates",
    "/etc/pki/tls/openssl.cnf": "openssl's defaults",
    "/etc/pki/ca-trust/extracted": "public certificates",
    "/etc/crypto-policies": "the system's choice of algorithms",
    "/etc/localtime": "the time zone",
    "/etc/timezone": "the time zone's name",
    "/etc/os-release": "which distribution this is",
    "/etc/debian_version": "which distribution this is",
    "/etc/mime.types": "file types",
    "/etc/protocols": "protocol names",
    "/etc/services": "port names",
    "/etc/host.conf": "the order of name look-ups",
    "/etc/gai.conf": "the order of addresses",
    "/etc/magic": "what file(1) knows",
    "/etc/fonts": "font configuration",
    "/etc/python3.11": "the distribution's Python starts with a file of it",
}

_PRIVATE: Final = (
    ("/dev/shm", "1777", limits.SHM_BYTES, "shared memory, limited"),  # noqa: S108
    ("/tmp", "1777", limits.TMP_BYTES, "temporary files that end with the call"),  # noqa: S108
    ("/run", "0755", limits.RUN_BYTES, "sockets of its own and none of the host's"),
    (HOME, "0700", limits.HOME_BYTES, "an empty home: no keys, no history, no configuration"),
)
_DEVICES: Final = (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
_DEVICE_LINKS: Final = (
    ("core", "/proc/kcore"),
    ("fd", "/proc/self/fd"),
    ("ptmx", "pts/ptmx"),
    ("stderr", "/proc/self/fd/2"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
)


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """One option of bubblewrap with its arguments, and why it is there."""

    arguments: tuple[bytes, ...]
    reason: str


# The root was made before bubblewrap began (``read_only_host``).
_MADE_ROOT: Final = PlanLine(
    arguments=(b"--dev-bind", MADE_ROOT, b"/"),
    reason="the root: all in it is read-only but the workspace, and nothing but /dev has devices",
)


class ExpectedMount(msgspec.Struct, frozen=True, kw_only=True):
    """A mount that must be seen before the program may start. Without an identity only its flag is compared."""

    path: bytes
    read_only: bool
    identity: Identity | None = None
    kind: str = ""


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
    # The root that is put together before bubblewrap begins; empty where the host cannot be held read-only.
    parts: tuple[RootPart, ...] = ()


def plan_isolated(
    profile: SandboxProfile,
    command_argv: tuple[bytes, ...],
    facts: Facts,
    *,
    cwd: str | None = None,
    memory_is_counted: bool = False,
) -> BubblewrapPlan:
    """Plan the sandbox of a profile on this host. ``memory_is_counted``: a cgroup will limit real memory.

    With ``WAITS_INSIDE`` for its command the sandbox holds a process that waits for the program's words, environment
    and directory. Refuses with ``sandbox.unsupported_platform`` where bubblewrap lacks an option that the profile
    needs.
    """
    refuse_system_workspace(profile.workspace_root)
    inside = command_argv == WAITS_INSIDE
    if not command_argv or any(b"\0" in each for each in command_argv):
        raise BadProfile("a command has at least one word, and no NUL")
    where = cwd or profile.workspace_root
    strict = profile.egress is EgressEnforcementMode.STRICT
    environment = build_environment(profile)
    made_before = facts.host.hold is not HostHold.MISSING
    for root in profile.tool_roots:
        _refuse_system(root, "a tool root", hint=None)
    parts = (*(_device_parts() if made_before else ()), *_root_parts(facts.host, profile.extra_files, strict=strict))
    tools = _tool_parts(profile.tool_roots)
    expected = _expect_parts(parts)
    lines = [
        *_namespaces(facts.host, strict=strict),
        *([_MADE_ROOT] if made_before else _build_parts(parts)),
        _line("this pid namespace's own processes", "--proc", "/proc"),
        *(() if made_before else (_line("null, zero, random, tty and a pty of its own", "--dev", "/dev"),)),
        *_private(expected),
        *_tools(tools, expected, made_before=made_before),
        *_workspace(profile, facts, expected, made_before=made_before),
        *_seal(expected, made_before=made_before),
        *(_wait_inside(facts) if inside else _start_program(facts, environment, where)),
    ]
    _refuse_unknown_options(lines, facts.host)
    options = b"".join(each + b"\0" for line in lines for each in line.arguments)
    data = {ARGS_FD: options} | ({} if made_before else make_identity_files(facts.host, strict=strict))
    data |= {number: content for number, (_, content) in enumerate(profile.extra_files, FIRST_EXTRA_FILE_FD)}
    if facts.seccomp is not None:
        data[SECCOMP_FD] = facts.seccomp
    unshared = {"user", "pid", "mnt", "ipc", "uts", "cgroup"} | ({"net"} if strict else set())
    return BubblewrapPlan(
        argv=(encode_word(facts.host.bwrap), b"--args", b"%d" % ARGS_FD, b"--", *command_argv),
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


def build_environment(profile: SandboxProfile) -> tuple[tuple[str, str], ...]:
    """Return the whole environment of the program, sorted. It holds nothing of the daemon's own."""
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


def _line(reason: str, option: str, *arguments: str | int) -> PlanLine:
    return PlanLine(arguments=tuple(encode_word(str(each)) for each in (option, *arguments)), reason=reason)


def _namespaces(host: HostFacts, *, strict: bool) -> list[PlanLine]:
    uid, gid = _inside_ids(host)
    lines = [
        _line("a user namespace, so that nothing in the sandbox has a capability outside", "--unshare-user"),
        _line("the first program sees no other process, and all die with it", "--unshare-pid"),
        _line("no shared memory or message queue of the host", "--unshare-ipc"),
        _line("a host name of its own", "--unshare-uts"),
        _line("the host's control groups do not show, where the kernel has the namespace", "--unshare-cgroup-try"),
        _line("not root even inside: programs that run as root try what cannot work", "--uid", uid),
        _line("the group that goes with it", "--gid", gid),
        _line("a nested user namespace would give back mounts and a wide kernel surface", "--disable-userns"),
        _line("no capability, not even in its own namespaces", "--cap-drop", "ALL"),
        _line("the host's name stays private", "--hostname", HOSTNAME),
        _line("no controlling terminal to push characters into", "--new-session"),
        _line("killing the launcher kills everything", "--die-with-parent"),
    ]
    if strict:
        lines.insert(2, _line("a network with nothing but its own loopback", "--unshare-net"))
    return lines


def _inside_ids(host: HostFacts) -> tuple[int, int]:
    """Return the uid and gid that the program sees: its own, or an ordinary one where its own is root."""
    return (host.uid or ORDINARY_ID, host.gid or ORDINARY_ID)


def _root_parts(host: HostFacts, extra_files: tuple[tuple[str, bytes], ...], *, strict: bool) -> tuple[RootPart, ...]:
    """List the parts beside the workspace, tools, and what is new for each sandbox (/proc, /dev, /tmp)."""
    identity = make_identity_files(host, strict=strict)
    return (
        _mount("/usr", "programs and libraries"),
        *(_link(path, target, "the host's own link into /usr") for path, target in host.root_links),
        *(_mount(path, "a host that keeps this apart from /usr") for path in host.root_directories),
        *(
            RootPart(path=encode_word(path), kind=RootKind.FILE, reason=reason, content=identity[number])
            for number, (path, reason) in _FILES.items()
        ),
        *(_link(path, target, "the host's own link") for path, target in host.etc_links),
        *(
            _mount(path, ETC_REASONS.get(path, "configuration that programs need"), file=path in host.etc_files)
            for path in host.etc_paths
        ),
        *(
            RootPart(
                path=encode_word(path),
                kind=RootKind.FILE,
                reason="a file of this call's own, on the read-only root",
                descriptor=number,
                size=len(content),
            )
            for number, (path, content) in enumerate(extra_files, FIRST_EXTRA_FILE_FD)
        ),
        _link("/var/tmp", "../tmp", "some programs write here by name"),  # noqa: S108
        _link("/var/run", "../run", "the old name of /run"),
    )


def _tool_parts(roots: tuple[str, ...]) -> tuple[RootPart, ...]:
    parts = (_mount(root, "a toolchain outside /usr that the profile names") for root in roots)
    return tuple(msgspec.structs.replace(part, beside=is_covered(part.path)) for part in parts)


def _device_parts() -> tuple[RootPart, ...]:
    """List the devices that bubblewrap's own /dev would have, and its mount points: a read-only root needs both."""
    places = ("/proc", *(path for path, _, _, _ in _PRIVATE))
    mounted = "something new is mounted here"
    return (
        *(RootPart(path=encode_word(path), kind=RootKind.DIRECTORY, reason=mounted) for path in places),
        *(
            RootPart(path=b"/dev/" + name, kind=RootKind.DEVICE, reason="a device that gives away nothing")
            for name in _DEVICES
        ),
        RootPart(path=b"/dev/pts", kind=RootKind.TERMINALS, reason="terminals of its own"),
        *(_link(f"/dev/{name}", target, "a name that programs expect") for name, target in _DEVICE_LINKS),
    )


def _mount(path: str, reason: str, *, file: bool = False) -> RootPart:
    kind = RootKind.MOUNTED_FILE if file else RootKind.MOUNTED_DIRECTORY
    return RootPart(path=encode_word(path), kind=kind, reason=reason)


def _link(path: str, target: str, reason: str) -> RootPart:
    return RootPart(path=encode_word(path), kind=RootKind.LINK, reason=reason, content=encode_word(target))


def make_identity_files(host: HostFacts, *, strict: bool) -> dict[int, bytes]:
    uid, gid = _inside_ids(host)
    passwd = f"{USER}:x:{uid}:{gid}::{HOME}:/bin/sh\n"
    nobody = "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
    group = f"{USER}:x:{gid}:\n"
    root = "root:x:0:0::/nonexistent:/usr/sbin/nologin\n"
    local = f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost ip6-localhost\n".encode()
    return {
        PASSWD_FD: (root + passwd + (nobody if uid != 65534 else "")).encode(),
        GROUP_FD: ("root:x:0:\n" + group + ("nogroup:x:65534:\n" if gid != 65534 else "")).encode(),
        NSSWITCH_FD: NSSWITCH,
        RESOLV_FD: STRICT_RESOLVER if strict else host.resolv_conf,
        HOSTS_FD: local if strict else local + host.hosts,
    }


def _expect_parts(parts: tuple[RootPart, ...]) -> list[ExpectedMount]:
    mounted = (RootKind.MOUNTED_FILE, RootKind.MOUNTED_DIRECTORY, RootKind.DEVICE)
    terminals = [part.path for part in parts if part.kind is RootKind.TERMINALS]
    return [
        *(ExpectedMount(path=part.path, read_only=True) for part in parts if part.kind in mounted),
        *(ExpectedMount(path=path, read_only=False, kind="devpts") for path in terminals),
    ]


def _build_parts(parts: tuple[RootPart, ...]) -> list[PlanLine]:
    numbers = {encode_word(path): number for number, (path, _) in _FILES.items()}
    lines: list[PlanLine] = []
    for part in parts:
        if part.kind is RootKind.LINK:
            lines.append(PlanLine(arguments=(b"--symlink", part.content, part.path), reason=part.reason))
        elif part.kind is RootKind.FILE:
            number = numbers[part.path] if part.descriptor is None else part.descriptor
            lines.append(_line(part.reason, "--perms", "0444"))
            lines.append(PlanLine(arguments=(b"--file", b"%d" % number, part.path), reason=part.reason))
        elif part.kind is not RootKind.DIRECTORY:
            lines.append(PlanLine(arguments=(b"--ro-bind", part.path, part.path), reason=part.reason))
    return lines


def _private(expected: list[ExpectedMount]) -> list[PlanLine]:
    lines: list[PlanLine] = []
    for path, mode, size, reason in _PRIVATE:
        lines += [_line(reason, "--perms", mode), _line(reason, "--size", size), _line(reason, "--tmpfs", path)]
        expected.append(ExpectedMount(path=encode_word(path), read_only=False, kind="tmpfs"))
    return lines


def is_covered(path: bytes) -> bool:
    """Whether something new that is mounted above it hides a path of a made root."""
    return any((path + b"/").startswith(encode_word(place) + b"/") for place, _, _, _ in _PRIVATE)


def _tools(tools: tuple[RootPart, ...], expected: list[ExpectedMount], *, made_before: bool) -> list[PlanLine]:
    expected += _expect_parts(tools)
    if not made_before:
        return _build_parts(tools)
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
            lines.append(_protect(root, mount, expected))
    if not made_before:
        return lines
    # All is mounted before bubblewrap begins, by calls that never make a path, and comes with the root or in one bind.
    return lines[:1] if is_covered(root) else []


def _protect(root: bytes, mount: ProtectedMount, expected: list[ExpectedMount]) -> PlanLine:
    path = b"/".join((root, *mount.names))
    option = b"--ro-bind" if mount.read_only else b"--bind"
    expected.append(ExpectedMount(path=path, read_only=mount.read_only, identity=mount.identity))
    return PlanLine(arguments=(option, path, path), reason=mount.reason)


def _seal(expected: list[ExpectedMount], *, made_before: bool) -> list[PlanLine]:
    root_writes = "a process with the host's root uid may write sysctls (core_pattern) without any capability"
    lines = [_line(root_writes, "--remount-ro", "/proc")]
    if not made_before:
        lines.append(_line("no files beside the devices; /dev/shm stays writable", "--remount-ro", "/dev"))
        lines.append(_line("the made-up root and its links stay as they are", "--remount-ro", "/"))
    places = (b"/proc", b"/") if made_before else (b"/proc", b"/dev", b"/")
    expected += [ExpectedMount(path=path, read_only=True) for path in places]
    return lines


def _filter(facts: Facts) -> list[PlanLine]:
    reason = "system calls that no ordinary program needs are refused"
    return [] if facts.seccomp is None else [_line(reason, "--seccomp", SECCOMP_FD)]


def _start_program(facts: Facts, environment: tuple[tuple[str, str], ...], cwd: str) -> list[PlanLine]:
    return [
        _line("nothing of the launcher's environment", "--clearenv"),
        *(_line("the environment as planned", "--setenv", name, value) for name, value in environment),
        _line("where the program starts", "--chdir", cwd),
        *_filter(facts),
        _line("names the process to look at", "--info-fd", INFO_FD),
        _line("waits until the sandbox has been looked at from outside", "--block-fd", BLOCK_FD),
    ]


def _wait_inside(facts: Facts) -> list[PlanLine]:
    return [
        _line("nothing of the launcher's environment", "--clearenv"),
        _line("a directory that always exists; the program's own comes with its words", "--chdir", "/"),
        *_filter(facts),
    ]


_OPTION_LAYERS: Final = {
    b"--disable-userns": Layer.NESTED_USERNS_OFF,
    b"--seccomp": Layer.SECCOMP,
    b"--clearenv": Layer.ENVIRONMENT,
}


def _refuse_unknown_options(lines: list[PlanLine], host: HostFacts) -> None:
    known = {encode_word(option) for option in host.bwrap_options}
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
