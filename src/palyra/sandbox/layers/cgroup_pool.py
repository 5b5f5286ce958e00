"""Control groups: limits for a whole tree of processes, where this user may set them.

``CgroupPool`` finds out once what can be used (version 1, version 2, both, or nothing), keeps a few groups made, and
lends one to each call. An ordinary user has no group of their own unless the system delegated one; then ``take`` lends
a group that limits nothing and says so, and the rlimits remain. Creating a group costs half a millisecond, so they are
reused, but only after every process in them is gone.
"""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from palyra.sandbox.layers import cgroup
from palyra.sandbox.layers.cgroup import EMPTY_SECONDS, WANTED, Group, Hierarchy, TreeLimits, parse_hierarchies

# Groups kept for the next calls. More only helps when more calls start at the same moment.
KEPT_GROUPS: Final = 8
_PREFIX: Final = "palyra-"


class CgroupPool:
    """Lends groups. Every method blocks for as long as the kernel takes, usually well below a millisecond."""

    def __init__(
        self,
        *,
        kept: int = KEPT_GROUPS,
        cpu_cores: float | None = None,
        hierarchies: tuple[Hierarchy, ...] | None = None,
    ) -> None:
        self._kept = kept
        self._cpu_cores = cpu_cores
        self._given = hierarchies
        self._bases: tuple[Hierarchy, ...] | None = None
        self._why_not = ""
        self._free: list[Group] = []
        # Given back and not kept, and the kernel had not let go of what was killed in them: to be removed yet.
        self._busy: list[Group] = []
        self._lock = threading.Lock()
        # Those whose files stay open: as many as are kept, so that a crowd of calls does not use up the descriptors.
        self._staying: set[Group] = set()
        self._made = 0
        self._closed = False

    @property
    def controllers(self) -> frozenset[str]:
        """Which of memory, pids and cpu can be limited here."""
        with self._lock:
            return frozenset().union(*(base.controllers for base in self._prepared()))

    @property
    def why_not(self) -> str:
        """Why some controller cannot be used; empty when all can."""
        with self._lock:
            self._prepared()
            return self._why_not

    def take(self, limits: TreeLimits) -> Group:
        """Lend a group with these limits. Never fails: what cannot be limited is missing from the group's receipt."""
        with self._lock:
            bases = self._prepared()
            group = self._free.pop() if self._free else self._make(bases)
        with contextlib.suppress(OSError):
            group.limit(limits, self._cpu_cores)
        return group

    @property
    def has_version_2(self) -> bool:
        """Whether programs have to be created in their group: moving one there waits 8 ms for a kernel lock."""
        with self._lock:
            return any(base.version == 2 for base in self._prepared())

    def stays_open(self, group: Group) -> bool:
        return group in self._staying

    def forget(self, group: Group) -> None:
        self._staying.discard(group)

    def give_back(self, group: Group, *, empty: bool = False) -> None:
        with self._lock:
            kept = group.entry.directories and not self._closed and len(self._free) < self._kept
            if kept and (empty or group.empty()):
                self._free.append(group)
                return
            going, self._busy = [*self._busy, group], []
        # The kernel takes a while for each: others need not wait for that.
        busy = [each for each in going if not each.remove()]
        if busy:
            with self._lock:
                self._busy += busy

    def close(self) -> None:
        with self._lock:
            self._closed = True
            until = time.monotonic() + EMPTY_SECONDS
            for group in (*self._free, *self._busy):
                group.remove(until=until)
            self._free.clear()
            self._busy.clear()
            for base in self._bases or ():
                with contextlib.suppress(OSError):
                    os.rmdir(base.directory)
            self._bases = ()

    def _make(self, bases: tuple[Hierarchy, ...]) -> Group:
        self._made += 1
        places = []
        for base in bases:
            directory = f"{base.directory}/{self._made}"
            try:
                os.mkdir(directory, 0o755)
            except OSError as problem:
                self._why_not = self._why_not or f"{directory}: {problem.strerror}"
                continue
            places.append(msgspec.structs.replace(base, directory=directory))
        group = Group(self, tuple(places), self._why_not)
        if len(self._staying) < self._kept:
            self._staying.add(group)
        return group

    def _prepared(self) -> tuple[Hierarchy, ...]:
        """Makes this pool's own parent groups, once, where it may."""
        if self._bases is None:
            try:
                found = self._given if self._given is not None else _this_process()
            except OSError as problem:
                found = ()
                self._why_not = f"/proc: {problem.strerror}"
            self._bases = tuple(self._parents(found))
        return self._bases

    def _parents(self, found: Iterable[Hierarchy]) -> Iterable[Hierarchy]:
        name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        found = tuple(found)
        limited_by_v1 = any(own.version == 1 for own in found)
        for own in found:
            _remove_leftovers(own.directory)
            directory = f"{own.directory}/{name}"
            try:
                controllers = _delegated(own.directory) if own.version == 2 else own.controllers
                if not controllers and limited_by_v1:
                    # A group that limits nothing: to start in it costs more than to end its processes one by one.
                    continue
                os.mkdir(directory, 0o755)
                if own.version == 2:
                    _enable(directory, controllers)
            except OSError as problem:
                self._why_not = f"{own.directory}: {problem.strerror}"
                continue
            yield msgspec.structs.replace(own, directory=directory, controllers=controllers)
        if not found and not self._why_not:
            self._why_not = "no control group hierarchy is mounted"


def _this_process() -> tuple[Hierarchy, ...]:
    with (
        open("/proc/self/cgroup", encoding="utf-8") as membership,
        open("/proc/self/mountinfo", encoding="utf-8") as mounts,
    ):
        return parse_hierarchies(membership.read(), mounts.read())


def _delegated(directory: str) -> frozenset[str]:
    """The controllers that children of a version 2 group get. They are switched on where the kernel lets us: it does
    not in a group that has processes of its own, unless that is the root."""
    wanted = set(cgroup.read_setting(directory, "cgroup.controllers").split()) & set(WANTED)
    _enable(directory, frozenset(wanted))
    return frozenset(wanted & set(cgroup.read_setting(directory, "cgroup.subtree_control").split()))


def _enable(directory: str, controllers: frozenset[str]) -> None:
    for controller in controllers:
        with contextlib.suppress(OSError):
            cgroup.write(directory, "cgroup.subtree_control", f"+{controller}")


def _remove_leftovers(directory: str) -> None:
    """Groups of a Palyra that was killed. Only empty ones can be removed, and only those whose maker is gone."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            maker = name.removeprefix(_PREFIX).partition("-")[0]
            if not name.startswith(_PREFIX) or not maker.isdigit() or os.path.exists(f"/proc/{maker}"):
                continue
            with contextlib.suppress(OSError):
                for child in os.listdir(f"{directory}/{name}"):
                    if child.isdigit():
                        os.rmdir(f"{directory}/{name}/{child}")
                os.rmdir(f"{directory}/{name}")
