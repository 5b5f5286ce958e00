"""The sandbox profile in the language of macOS: the text for sandbox-exec.

Pure, and tested as text. ``palyra run --show-plan --platform macos`` prints it; Tier C runs on Linux only. The last
matching rule decides, so denials of protected names follow the rules that allow the workspace. Names that do not exist
yet are denied too.
"""

import re
from typing import Final

from palyra.sandbox.domain.profile import EgressEnforcementMode, SandboxProfile
from palyra.workspace.names import ProtectedNames
from palyra.workspace.protected_table import watched_in_sandbox

_READABLE: Final = (
    ("/usr", "programs and libraries"),
    ("/bin", "programs"),
    ("/sbin", "programs"),
    ("/System", "frameworks"),
    ("/Library/Developer", "compilers"),
    ("/Library/Apple", "frameworks"),
    ("/opt/homebrew", "programs that people install"),
    ("/private/etc/ssl", "public certificates"),
    ("/private/var/db/dyld", "the dynamic linker's cache"),
    ("/private/var/db/timezone", "the time zone"),
)
_READABLE_FILES: Final = (
    ("/private/etc/localtime", "the time zone"),
    ("/private/etc/hosts", "names of this machine"),
    ("/private/etc/resolv.conf", "the resolver"),
    ("/private/etc/passwd", "names of users"),
    ("/private/etc/group", "names of groups"),
    ("/dev/random", "randomness"),
    ("/dev/urandom", "randomness"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/dtracehelper")

_HEAD: Final = """(version 1)
; whatever no rule below names is refused
(deny default)
; programs start programs, all of them under these same rules
(allow process-fork)
(allow process-exec)
; a program signals only what runs under these rules
(allow signal (target same-sandbox))
; facts about the machine that the C library reads at start
(allow sysctl-read)
; a path can be walked without reading what lies beside it
(allow file-read-metadata)
"""


def seatbelt_profile(profile: SandboxProfile, *, temporary: str) -> str:
    """``temporary`` is a directory made for this call; the workspace and it are the only places to write."""
    lines = [_HEAD]
    for path, reason in _READABLE:
        lines.append(f"; {reason}\n(allow file-read* (subpath {quoted(path)}))")
    for path, reason in _READABLE_FILES:
        lines.append(f"; {reason}\n(allow file-read* (literal {quoted(path)}))")
    for root in profile.tool_roots:
        lines.append(f"; a toolchain that the profile names\n(allow file-read* (subpath {quoted(root)}))")
    for path in _DEVICES:
        lines.append(f"; a device that holds nothing\n(allow file-read* file-write-data (literal {quoted(path)}))")
    lines.append(f"; temporary files\n(allow file-read* file-write* (subpath {quoted(temporary)}))")
    lines += _workspace(profile)
    lines += _network(profile)
    return "\n".join(lines) + "\n"


def _workspace(profile: SandboxProfile) -> list[str]:
    root = quoted(profile.workspace_root)
    if profile.read_only:
        return [f"; the workspace, read-only\n(allow file-read* (subpath {root}))"]
    lines = [f"; the workspace\n(allow file-read* file-write* (subpath {root}))"]
    lines.append(f"; the workspace itself is not renamed or removed\n(deny file-write-unlink (literal {root}))")
    for pattern in ProtectedNames(watched_in_sandbox(profile.protected_names)).patterns:
        for expression in _expressions(profile.workspace_root, pattern):
            lines.append(f"; protected, whether it exists or not\n(deny file-write* (regex {quoted(expression)}))")
        for expression in _ancestors(profile.workspace_root, pattern):
            lines.append(
                f"; a directory above a protected name is not renamed away\n"
                f"(deny file-write-unlink (regex {quoted(expression)}))"
            )
    return lines


def _expressions(root: str, pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    return [f"^{_escaped(root)}/(.*/)?{_joined(names)}(/.*)?$"]


def _ancestors(root: str, pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    above = [names[:cut] for cut in range(1, len(names))]
    return [f"^{_escaped(root)}/(.*/)?{_joined(each).removesuffix('/')}$" for each in above]


def _joined(names: list[str]) -> str:
    """Translate a path. ``**`` stands for any number of names, also for none."""
    inner = "".join("(.*/)?" if name == "**" else f"{_translated(name)}/" for name in names)
    return inner.removesuffix("/")


def _translated(name: str) -> str:
    """One name's glob. Letters match in both cases, as the usual file system there does."""
    out: list[str] = []
    position = 0
    while position < len(name):
        char = name[position]
        closing = name.find("]", position + 2) if char == "[" else -1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif closing > 0:
            inner = name[position + 1 : closing]
            inverted = inner[0] in "!^"
            members = "".join(_class_member(each) for each in (inner[1:] if inverted else inner))
            out.append(f"[{'^' if inverted else ''}{members}{'/' if inverted else ''}]")
            position = closing
        elif char.isascii() and char.isalpha():
            out.append(f"[{char.lower()}{char.upper()}]")
        else:
            out.append(_escaped(char))
        position += 1
    return "".join(out)


def _class_member(char: str) -> str:
    return char if char.isalnum() or char == "-" else "\\" + char


def _escaped(text: str) -> str:
    return re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", text)


def _network(profile: SandboxProfile) -> list[str]:
    if profile.egress is EgressEnforcementMode.STRICT:
        return ["; no network at all, loopback included\n(deny network*)"]
    return [
        "; the network as the host has it\n(allow network*)",
        '; names\n(allow mach-lookup (global-name "com.apple.dnssd.service"))',
    ]


def quoted(text: str) -> str:
    """Quote any text as a string of the profile language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r") + '"'
