"""Looks for processes on this machine by a mark that a test has put into their arguments."""

import gc
import os
from pathlib import Path
from uuid import uuid4


def new_mark() -> str:
    return f"mark-{uuid4().hex}"


def marked(mark: str) -> dict[int, str]:
    """Living processes with the mark in their arguments or environment, in any namespace below this one."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes() + Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in words:
            found[int(name)] = words.replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    return found


def descendants(root: int) -> set[int]:
    """Every process below ``root``, but not those that have died and wait to be buried."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(name)] = int(fields[1])
    found: set[int] = set()
    level = {root}
    while level := {pid for pid, parent in parents.items() if parent in level} - found:
        found |= level
    return found


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{pid} has no memory")


def own_descriptors() -> int:
    """How many files this process has open, without those of control groups that are kept for the next calls, and
    without those that nobody has a hold of any more: what earlier tests let go of is collected first."""
    gc.collect()
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += "/cgroup/" not in os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return count
