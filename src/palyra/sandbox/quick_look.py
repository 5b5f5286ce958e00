"""Which calls are looked at without a change of threads.

A look at a small workspace on a disk of this machine takes less time than handing it to another thread and back. What
may take long (many files, another machine's disk, a path that leads who knows where) never keeps the event loop.
"""

import os
import re
from typing import Final

from palyra.sandbox import limits
from palyra.sandbox.domain.process_run import ProcessCommand

# Workspaces that are remembered.
MAX_REMEMBERED: Final = 256
# Kinds of file systems whose answers come from this machine.
_LOCAL: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "bcachefs"})
# A relative path downwards, and no option with one in it.
_DOWNWARDS: Final = re.compile(r"[\w.+][\w.+-]*(?:/[\w.+-]+)*/?", re.ASCII)
_SYSTEM: Final = ("/usr/", "/bin/")


class QuickLook:
    """Learns from each look, and forgets a workspace as soon as one took long."""

    def __init__(self) -> None:
        self._quick: set[str] = set()

    def expects(self, workspace_root: str, command: ProcessCommand) -> bool:
        return workspace_root in self._quick and all(
            _stays(word, workspace_root) for word in (command.command, *command.args, command.cwd or ".")
        )

    def learn(self, workspace_root: str, entries: int, seconds: float) -> None:
        if entries > limits.QUICK_ENTRIES // 2 or seconds > limits.QUICK_SECONDS:
            self._quick.discard(workspace_root)
        elif workspace_root not in self._quick and is_local(workspace_root):
            if len(self._quick) >= MAX_REMEMBERED:
                self._quick.clear()
            self._quick.add(workspace_root)


def _stays(word: str, workspace_root: str) -> bool:
    """Whether the word, should it name a path, names one of the workspace or of the system."""
    if ".." in word:
        return False
    if "/" not in word or _DOWNWARDS.fullmatch(word) is not None:
        return True
    below = word.removeprefix(workspace_root + "/") if word.startswith(workspace_root + "/") else None
    if below is None:
        below = next((word.removeprefix(place) for place in _SYSTEM if word.startswith(place)), None)
    return below is not None and _DOWNWARDS.fullmatch(below) is not None


def is_local(path: str) -> bool:
    """Whether the file system at a path is one of this machine. Reads a table; asks the file system itself little."""
    try:
        device = os.stat(path).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
            for line in table:
                fields = line.split(" ")
                if fields[2] == f"{os.major(device)}:{os.minor(device)}":
                    return fields[fields.index("-", 6) + 1] in _LOCAL
    except (OSError, ValueError):
        return False
    return False
