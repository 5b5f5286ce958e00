"""Reads the isolation of a browser's processes from /proc. Nothing that they report themselves counts."""

import os
import re
import socket
from pathlib import Path
from typing import Final

from palyra.browser.domain.limits import FolderSizes
from palyra.browser.engine.isolation_layers import BROWSER, UNNAMED, IsolationSeen, NetworkSeen, ProcessSeen
from palyra.browser.engine.launch_plan import writable_folders

_LISTEN: Final = "0A"
_TYPE: Final = "--type="
_SERVES: Final = "--utility-sub-type="
_FIELD: Final = re.compile(rb"^(Uid|Seccomp|CapEff):\t(\S+)", re.MULTILINE)
_NUMBERS: Final = re.compile(rb"^NSpid:\t(.*)$", re.MULTILINE)
# The first process inside is bubblewrap's; its only child waited at the gate and became Chromium.
_BROWSER_NUMBER: Final = b"2"
_MAX_PROCESSES: Final = 4096
# Fields of /proc/PID/stat, counted from the state, and the kernel's mark of a process that is exiting.
_FLAGS: Final = 6
_START_TIME: Final = 19
_EXITING: Final = 0x4


def start_time(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did. With the number it names the process for good."""
    fields = _stat(pid)
    return None if fields is None else int(fields[_START_TIME])


def is_ending(pid: int) -> bool:
    """Whether a process has ended, or has closed its descriptors: others may notice that before its end."""
    fields = _stat(pid)
    return fields is None or bool(int(fields[_FLAGS]) & _EXITING)


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat, from the state on. None for a process that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command may hold spaces and brackets; the fields after its last bracket are plain.
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else fields


def descendants(pid: int) -> list[int]:
    found, at = [pid], 0
    while at < len(found) < _MAX_PROCESSES:
        for children in Path(f"/proc/{found[at]}/task").glob("*/children"):
            try:
                found += [int(each) for each in children.read_bytes().split()]
            except OSError:  # it ended meanwhile
                continue
        at += 1
    return found


def inspect_process(pid: int) -> ProcessSeen | None:
    """Return None for a process that ended, or that is about to become another program."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if not raw:
        return None
    fields = dict(_FIELD.findall(status))
    numbers = _NUMBERS.search(status)
    # A helper's words are one text with spaces: it writes its own title.
    words = tuple(raw.decode("utf-8", "replace").rstrip("\0").split("\0"))
    each = words if len(words) > 1 else tuple(words[0].split(" "))
    # A helper has the browser's own words until it becomes what it was started for.
    is_browser = numbers is not None and numbers[1].split()[1:] == [_BROWSER_NUMBER]
    untyped = BROWSER if is_browser else UNNAMED
    kind = next((word.removeprefix(_TYPE) for word in each if word.startswith(_TYPE)), untyped)
    serves = next((word.removeprefix(_SERVES) for word in each if word.startswith(_SERVES)), kind)
    return ProcessSeen(
        pid=pid,
        started=start_time(pid) or 0,
        kind=serves,
        uid=int(fields.get(b"Uid", b"0")),
        seccomp=int(fields.get(b"Seccomp", b"0")),
        capabilities=int(fields.get(b"CapEff", b"0"), 16),
        words=each,
    )


def look_at_network(pid: int) -> NetworkSeen:
    base = Path(f"/proc/{pid}")
    four = [line.split() for line in _lines(base / "net/route")[1:]]
    six = [line.split() for line in _lines(base / "net/ipv6_route")]
    return NetworkSeen(
        is_own=os.readlink(base / "ns/net") != os.readlink("/proc/self/ns/net"),
        interfaces=tuple(line.partition(":")[0].strip() for line in _lines(base / "net/dev")[2:]),
        routes=(
            *(f"{fields[1]} over {fields[0]}" for fields in four),
            *(f"{fields[0]} over {fields[-1]}" for fields in six if fields[-1] != "lo"),
        ),
        listening=(*_listening(base / "net/tcp"), *_listening(base / "net/tcp6")),
    )


def inspect_folders(root: str, sizes: FolderSizes) -> tuple[tuple[str, int, bool], ...]:
    beneath = os.stat(root).st_dev
    seen = []
    for path, _, _ in writable_folders(sizes):
        held = os.statvfs(root + path)
        seen.append((path, held.f_blocks * held.f_frsize, os.stat(root + path).st_dev != beneath))
    return tuple(seen)


def inspect_isolation(first: int, sizes: FolderSizes) -> IsolationSeen:
    processes = [inspect_process(pid) for pid in descendants(first) if pid != first]
    return IsolationSeen(
        processes=tuple(each for each in processes if each is not None),
        network=look_at_network(first),
        folders=inspect_folders(f"/proc/{first}/root", sizes),
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii", "replace").splitlines()
    except FileNotFoundError:  # a kernel without IPv6
        return []


def _listening(path: Path) -> list[tuple[str, int]]:
    found = []
    for line in _lines(path)[1:]:
        fields = line.split()
        if fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            # Words of four bytes, each in the machine's own order.
            raw = b"".join(int(address[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(address), 8))
            family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
            found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return found
