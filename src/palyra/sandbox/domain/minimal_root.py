"""The root that an isolated program sees: the system read-only, a few files of /etc, and nothing of anybody's own.

Pure. Every line carries the reason for it; what is not listed here does not exist in the sandbox.
"""

from typing import Final

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import HostFacts, Identity
from palyra.sandbox.domain.launch_spec import MADE_ROOT, RootKind, RootPart

# Descriptor numbers in the started process.
PASSWD_FD: Final = 11
GROUP_FD: Final = 12
NSSWITCH_FD: Final = 13
RESOLV_FD: Final = 14
HOSTS_FD: Final = 15
FIRST_EXTRA_FILE_FD: Final = 18

HOSTNAME: Final = "sandbox"
HOME: Final = "/home/sandbox"
USER: Final = "sandbox"
# Root is shown as an ordinary user inside: tar, npm and others try to give files away when they think they are root.
ORDINARY_ID: Final = 1000

# The door's resolver, where there is one. It has no IPv6 address to give, so the C library need not ask for any.
STRICT_RESOLVER: Final = b"nameserver 127.0.0.1\noptions no-aaaa\n"
NSSWITCH: Final = b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n"


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """One option of bubblewrap with its arguments, and why it is there."""

    arguments: tuple[bytes, ...]
    reason: str


class ExpectedMount(msgspec.Struct, frozen=True, kw_only=True):
    """What must be seen in the sandbox before the program may start. Without an identity only the flag is looked at."""

    path: bytes
    read_only: bool
    identity: Identity | None = None
    kind: str = ""


def inside_ids(host: HostFacts) -> tuple[int, int]:
    """The uid and gid that the program sees: its own, or an ordinary one where its own is root."""
    return (host.uid or ORDINARY_ID, host.gid or ORDINARY_ID)


def root_parts(host: HostFacts, extra_files: tuple[tuple[str, bytes], ...], *, strict: bool) -> tuple[RootPart, ...]:
    """What the root consists of, beside the workspace, tools, and what is new for each sandbox (/proc, /dev, /tmp)."""
    identity = identity_files(host, strict=strict)
    return (
        _mounted("/usr", "programs and libraries"),
        *(_link(path, target, "the host's own link into /usr") for path, target in host.root_links),
        *(_mounted(path, "a host that keeps this apart from /usr") for path in host.root_directories),
        *(
            RootPart(path=as_bytes(path), kind=RootKind.FILE, reason=reason, content=identity[number])
            for number, (path, reason) in _FILES.items()
        ),
        *(_link(path, target, "the host's own link") for path, target in host.etc_links),
        *(
            _mounted(path, ETC_REASONS.get(path, "configuration that programs need"), file=path in host.etc_files)
            for path in host.etc_paths
        ),
        *(
            RootPart(
                path=as_bytes(path),
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


def tool_parts(roots: tuple[str, ...]) -> tuple[RootPart, ...]:
    return tuple(
        msgspec.structs.replace(
            _mounted(root, "a toolchain outside /usr that the profile names"), beside=is_covered(as_bytes(root))
        )
        for root in roots
    )


def device_parts() -> tuple[RootPart, ...]:
    """What bubblewrap's own /dev would have, and the places where it mounts what is new for each sandbox: a root that
    is read-only must have them already."""
    reason = "something new is mounted here"
    places = ("/proc", *(path for path, _, _, _ in _PRIVATE))
    return (
        *(RootPart(path=as_bytes(path), kind=RootKind.DIRECTORY, reason=reason) for path in places),
        *(
            RootPart(path=b"/dev/" + name, kind=RootKind.DEVICE, reason="a device that gives away nothing")
            for name in (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
        ),
        RootPart(path=b"/dev/pts", kind=RootKind.TERMINALS, reason="terminals of its own"),
        *(
            _link(f"/dev/{name}", target, "a name that programs expect")
            for name, target in (
                ("core", "/proc/kcore"),
                ("fd", "/proc/self/fd"),
                ("ptmx", "pts/ptmx"),
                ("stderr", "/proc/self/fd/2"),
                ("stdin", "/proc/self/fd/0"),
                ("stdout", "/proc/self/fd/1"),
            )
        ),
    )


def expected_parts(parts: tuple[RootPart, ...]) -> list[ExpectedMount]:
    mounted = (RootKind.MOUNTED_FILE, RootKind.MOUNTED_DIRECTORY, RootKind.DEVICE)
    return [
        *(ExpectedMount(path=part.path, read_only=True) for part in parts if part.kind in mounted),
        *(
            ExpectedMount(path=part.path, read_only=False, kind="devpts")
            for part in parts
            if part.kind is RootKind.TERMINALS
        ),
    ]


def built_by_bubblewrap(parts: tuple[RootPart, ...]) -> list[PlanLine]:
    """The options that make these parts, where nothing made them beforehand."""
    numbers = {as_bytes(path): number for number, (path, _) in _FILES.items()}
    lines: list[PlanLine] = []
    for part in parts:
        if part.kind is RootKind.LINK:
            lines.append(PlanLine(arguments=(b"--symlink", part.content, part.path), reason=part.reason))
        elif part.kind is RootKind.FILE:
            number = numbers[part.path] if part.descriptor is None else part.descriptor
            lines.append(plan_line(part.reason, "--perms", "0444"))
            lines.append(PlanLine(arguments=(b"--file", b"%d" % number, part.path), reason=part.reason))
        elif part.kind is not RootKind.DIRECTORY:
            lines.append(PlanLine(arguments=(b"--ro-bind", part.path, part.path), reason=part.reason))
    return lines


def taken_by_bubblewrap() -> list[PlanLine]:
    """The same root, made before bubblewrap began (``read_only_host``)."""
    reason = "the root: all in it is read-only but the workspace, and nothing but /dev has devices"
    return [PlanLine(arguments=(b"--dev-bind", MADE_ROOT, b"/"), reason=reason)]


def own_processes() -> PlanLine:
    return plan_line("this pid namespace's own processes", "--proc", "/proc")


def own_devices() -> PlanLine:
    return plan_line("null, zero, full, random, urandom, tty, a pty of its own", "--dev", "/dev")


def _mounted(path: str, reason: str, *, file: bool = False) -> RootPart:
    kind = RootKind.MOUNTED_FILE if file else RootKind.MOUNTED_DIRECTORY
    return RootPart(path=as_bytes(path), kind=kind, reason=reason)


def _link(path: str, target: str, reason: str) -> RootPart:
    return RootPart(path=as_bytes(path), kind=RootKind.LINK, reason=reason, content=as_bytes(target))


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


def private(expected: list[ExpectedMount]) -> list[PlanLine]:
    lines: list[PlanLine] = []
    for path, mode, size, reason in _PRIVATE:
        lines += [
            plan_line(reason, "--perms", mode),
            plan_line(reason, "--size", size),
            plan_line(reason, "--tmpfs", path),
        ]
        expected.append(ExpectedMount(path=as_bytes(path), read_only=False, kind="tmpfs"))
    return lines


def is_covered(path: bytes) -> bool:
    """Whether what lies at a path of a made root is hidden by something new that is mounted above it."""
    return any((path + b"/").startswith(as_bytes(place) + b"/") for place, _, _, _ in _PRIVATE)


def sealed(expected: list[ExpectedMount], *, made_before: bool) -> list[PlanLine]:
    lines = [
        plan_line("a process with the host's root uid may write sysctls (core_pattern) without any capability", "--remount-ro", "/proc"),  # noqa: E501
    ]  # fmt: skip
    if not made_before:
        lines.append(plan_line("no files beside the devices; /dev/shm stays writable", "--remount-ro", "/dev"))
        lines.append(plan_line("the made-up root and its links stay as they are", "--remount-ro", "/"))
    places = (b"/proc", b"/") if made_before else (b"/proc", b"/dev", b"/")
    expected += [ExpectedMount(path=path, read_only=True) for path in places]
    return lines


def identity_files(host: HostFacts, *, strict: bool) -> dict[int, bytes]:
    uid, gid = inside_ids(host)
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


def plan_line(reason: str, option: str, *arguments: str | int) -> PlanLine:
    return PlanLine(arguments=tuple(as_bytes(str(each)) for each in (option, *arguments)), reason=reason)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
