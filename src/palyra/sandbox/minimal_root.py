"""The root that an isolated program sees: the system read-only, a few files of /etc, and nothing of anybody's own.

Pure. Every line carries the reason for it; what is not listed here does not exist in the sandbox.
"""

from typing import Final

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.host_facts import HostFacts, Identity

# Descriptor numbers in the started process.
PASSWD_FD: Final = 11
GROUP_FD: Final = 12
NSSWITCH_FD: Final = 13
RESOLV_FD: Final = 14
HOSTS_FD: Final = 15

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


def system(host: HostFacts, expected: list[ExpectedMount]) -> list[PlanLine]:
    lines = [plan_line("programs and libraries", "--ro-bind", "/usr", "/usr")]
    expected.append(ExpectedMount(path=b"/usr", read_only=True))
    for path, target in host.root_links:
        lines.append(plan_line("the host's own link into /usr", "--symlink", target, path))
    for path in host.root_directories:
        lines.append(plan_line("a host that keeps this apart from /usr", "--ro-bind", path, path))
        expected.append(ExpectedMount(path=as_bytes(path), read_only=True))
    for number, path, reason in (
        (PASSWD_FD, "/etc/passwd", "the user's own name and no other account"),
        (GROUP_FD, "/etc/group", "the user's own group"),
        (NSSWITCH_FD, "/etc/nsswitch.conf", "names come from files and DNS only; no daemon is asked"),
        (RESOLV_FD, "/etc/resolv.conf", "the resolver that the egress mode allows"),
        (HOSTS_FD, "/etc/hosts", "localhost, and the host's own table only where its network is shared"),
    ):
        lines.append(plan_line(reason, "--perms", "0444"))
        lines.append(plan_line(reason, "--file", number, path))
    for path, target in host.etc_links:
        lines.append(plan_line("the host's own link", "--symlink", target, path))
    for path in host.etc_paths:
        lines.append(plan_line(ETC_REASONS.get(path, "configuration that programs need"), "--ro-bind", path, path))
        expected.append(ExpectedMount(path=as_bytes(path), read_only=True))
    lines.append(plan_line("this pid namespace's own processes", "--proc", "/proc"))
    lines.append(plan_line("null, zero, full, random, urandom, tty, a pty of its own", "--dev", "/dev"))
    return lines


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


def private(expected: list[ExpectedMount]) -> list[PlanLine]:
    places = (
        ("/dev/shm", "1777", limits.SHM_BYTES, "shared memory, limited"),  # noqa: S108
        ("/tmp", "1777", limits.TMP_BYTES, "temporary files that end with the call"),  # noqa: S108
        ("/run", "0755", limits.RUN_BYTES, "sockets of its own and none of the host's"),
        (HOME, "0700", limits.HOME_BYTES, "an empty home: no keys, no history, no configuration"),
    )
    lines: list[PlanLine] = []
    for path, mode, size, reason in places:
        lines += [
            plan_line(reason, "--perms", mode),
            plan_line(reason, "--size", size),
            plan_line(reason, "--tmpfs", path),
        ]
        expected.append(ExpectedMount(path=as_bytes(path), read_only=False, kind="tmpfs"))
    lines.append(plan_line("some programs write here by name", "--symlink", "../tmp", "/var/tmp"))  # noqa: S108
    lines.append(plan_line("the old name of /run", "--symlink", "../run", "/var/run"))
    return lines


def sealed(expected: list[ExpectedMount]) -> list[PlanLine]:
    expected += [ExpectedMount(path=path, read_only=True) for path in (b"/proc", b"/dev", b"/")]
    return [
        plan_line("a process with the host's root uid may write sysctls (core_pattern) without any capability", "--remount-ro", "/proc"),  # noqa: E501
        plan_line("no files beside the devices; /dev/shm stays writable", "--remount-ro", "/dev"),
        plan_line("the made-up root and its links stay as they are", "--remount-ro", "/"),
    ]  # fmt: skip


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
