"""Ends all descendants of this process. Standard library only: the zygote loads it.

The caller is a child subreaper, so a process whose parent dies becomes its direct child, also after a new session or a
double fork, or when stopped. Only direct children that were not waited for get a signal, one by one and by process
group: the kernel gives their numbers to no other process before they are reaped. Killing one generation makes the next
one direct children. It ends when wait reports no child.
"""

import os
import signal
import time

# Between two rounds in which nothing died; a process in an uninterruptible sleep ends only when the disk answers.
PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05
# A process that refuses the signal has become another user; after this long it is reported instead of waited for.
GIVE_UP_ON_STRANGERS_SECONDS = 2.0


def direct_children() -> list[int]:
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as listing:
            return [int(word) for word in listing.read(1 << 20).split()]
    except OSError:
        return _children_by_search(pid)


def _children_by_search(pid: int) -> list[int]:
    """Find the children on kernels built without the list of children."""
    wanted = str(pid).encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as stat:
                # The name in parentheses may itself contain parentheses and spaces.
                fields = stat.read(4096).rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[1] == wanted:
            found.append(int(name))
    return found


def kill_children(spared: frozenset[int] = frozenset()) -> tuple[int, int]:
    """Send SIGKILL to each direct child and its process group. Return how many there were and how many refused it."""
    own_group = os.getpgrp()
    groups: set[int] = set()
    met = refused = 0
    for child in direct_children():
        if child in spared:
            continue
        met += 1
        try:
            group = os.getpgid(child)
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused += 1
            continue
        # A group outside our own holds only descendants: to join one, a process must be in its session already.
        if group != own_group:
            groups.add(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue
    return met, refused


def reap() -> tuple[list[int], bool]:
    """Collect the children that have died. Return them and whether any child, dead or alive, remains."""
    gone: list[int] = []
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return gone, False
        if pid == 0:
            return gone, True
        gone.append(pid)


def end_all() -> tuple[int, int]:
    """End every descendant. Return how many ended and how many could not be ended."""
    ended = 0
    pause = PAUSE_SECONDS
    strangers_since: float | None = None
    while True:
        gone, more = reap()
        ended += len(gone)
        if not more:
            return ended, 0
        met, refused = kill_children()
        if met and met == refused:
            now = time.monotonic()
            strangers_since = strangers_since or now
            if now - strangers_since > GIVE_UP_ON_STRANGERS_SECONDS:
                return ended, refused
        else:
            strangers_since = None
        gone, more = reap()
        ended += len(gone)
        if not more:
            return ended, 0
        if gone:
            pause = PAUSE_SECONDS
        else:
            # This ends early when a child dies, if the caller has blocked SIGCHLD.
            signal.sigtimedwait({signal.SIGCHLD}, pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
