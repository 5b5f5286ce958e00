"""Control groups: limits for a whole tree of processes, where this user may set them.

``CgroupPool`` finds out once which versions and controllers it can use, keeps a few groups, and lends one to each call.
An ordinary user has a group only if the system delegated one. Without it ``take`` lends a group that limits nothing and
reports so; the rlimits remain. Creating a group costs half a millisecond, so groups are reused, but only after every
process in them is gone.
"""

import contextlib
import errno
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from palyra.sandbox.domain.launch_spec import CgroupEntry
from palyra.sandbox.domain.profile import Layer, ReceiptLine, SandboxLimits


def write(directory: str, name: str, content: str) -> None:
    descriptor = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def read_setting(directory: str, name: str) -> str:
    with open(f"{directory}/{name}", "rb", buffering=0) as file:
        return file.read().decode().strip()


# Version 1 has one hierarchy for each controller, version 2 one for all. A machine may have both: then version 2 may
# hold no controller but can still kill a group at once.

MEMORY: Final = "memory"
PIDS: Final = "pids"
WANTED: Final = (MEMORY, PIDS)


class Hierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """``directory`` is this process's own group. ``controllers`` are those of ours that live here."""

    version: int
    directory: str
    controllers: frozenset[str]


def parse_hierarchies(membership: str, mountinfo: str) -> tuple[Hierarchy, ...]:
    """Read the text of /proc/self/cgroup and /proc/self/mountinfo."""
    mounts = _mounts(mountinfo)
    found = []
    for line in membership.splitlines():
        identifier, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not path.startswith("/") or path.startswith("/../"):
            continue
        if identifier == "0" and not names:
            directory = _place(mounts, path, version=2, controller=None)
            if directory is not None:
                found.append(Hierarchy(version=2, directory=directory, controllers=frozenset()))
            continue
        ours = frozenset(names.split(",")) & frozenset(WANTED)
        directory = _place(mounts, path, version=1, controller=next(iter(ours))) if ours else None
        if directory is not None:
            found.append(Hierarchy(version=1, directory=directory, controllers=ours))
    return tuple(found)


class _Mount(msgspec.Struct, frozen=True):
    root: str
    point: str
    version: int
    options: frozenset[str]


def _mounts(mountinfo: str) -> tuple[_Mount, ...]:
    found = []
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not dash or len(fields) < 6 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        found.append(_Mount(_unescaped(fields[3]), _unescaped(fields[4]), version, frozenset(kind[2].split(","))))
    return tuple(found)


def _unescaped(path: str) -> str:
    """Decode space, tab, newline and backslash, which mountinfo writes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), path)


def _place(mounts: tuple[_Mount, ...], path: str, *, version: int, controller: str | None) -> str | None:
    for mount in mounts:
        if mount.version != version or (controller is not None and controller not in mount.options):
            continue
        root = mount.root.rstrip("/")
        if path == root or path.startswith(root + "/"):
            return mount.point.rstrip("/") + path[len(root) :].rstrip("/")
    return None


# How long an emptied group may take to be reported empty before it is left for the next clean-up.
EMPTY_SECONDS: Final = 2.0
_EMPTY_POLL_SECONDS: Final = 0.002
_OOM_KILLS: Final = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_UNLIMITED_V1: Final = str(2**63 - 4096)

_LAYERS: Final = {MEMORY: Layer.CGROUP_MEMORY, PIDS: Layer.CGROUP_PIDS}


class Group:
    """One call's group: its limits, what it counts, and the end of everything in it."""

    def __init__(self, pool: "CgroupPool", places: tuple[Hierarchy, ...], why_not: str) -> None:
        self._pool = pool
        self._places = places
        self._why_not = why_not
        self._wanted: dict[str, str] = {}
        self._got: dict[str, str] = {}
        self._oom_kills_before = 0

    @property
    def entry(self) -> CgroupEntry:
        v1 = tuple(place.directory for place in self._places if place.version == 1)
        return CgroupEntry(v1=v1, v2=next((place.directory for place in self._places if place.version == 2), None))

    @property
    def limits_memory(self) -> bool:
        return MEMORY in self._got

    def directory(self, controller: str) -> str | None:
        return next((place.directory for place in self._places if controller in place.controllers), None)

    def _version(self, controller: str) -> int:
        return next(place.version for place in self._places if controller in place.controllers)

    def limit(self, limits: SandboxLimits) -> None:
        """Set the limits and read them back. Only a limit that reads back as set counts as got."""
        self._oom_kills_before = self._oom_kills()
        self._got = {}
        self._wanted = {MEMORY: f"{limits.memory_bytes} bytes", PIDS: f"{limits.pids} processes"}
        if (directory := self.directory(PIDS)) is not None:
            write(directory, "pids.max", str(limits.pids))
            self._note(PIDS, directory, "pids.max", str(limits.pids))
        if (directory := self.directory(MEMORY)) is not None:
            self._limit_memory(directory, limits.memory_bytes)

    def _limit_memory(self, directory: str, wanted: int) -> None:
        if self._version(MEMORY) == 2:
            write(directory, "memory.max", str(wanted))
            with contextlib.suppress(OSError):
                write(directory, "memory.swap.max", "0")
            with contextlib.suppress(OSError):
                write(directory, "memory.oom.group", "1")
            name = "memory.max"
        else:
            # Memory with swap may not be less than memory: first out of the way, then both down.
            with contextlib.suppress(OSError):
                write(directory, "memory.memsw.limit_in_bytes", _UNLIMITED_V1)
            write(directory, "memory.limit_in_bytes", str(wanted))
            with contextlib.suppress(OSError):
                write(directory, "memory.memsw.limit_in_bytes", str(wanted))
            name = "memory.limit_in_bytes"
        # The kernel rounds down to whole pages.
        page = os.sysconf("SC_PAGE_SIZE")
        self._note(MEMORY, directory, name, str(wanted // page * page))

    def _note(self, controller: str, directory: str, name: str, wanted: str) -> None:
        read = read_setting(directory, name)
        if read == wanted:
            self._got[controller] = f"cgroup v{self._version(controller)}: {read}"

    def receipt(self) -> tuple[ReceiptLine, ...]:
        missing = self._why_not or "the controller is not available here"
        return tuple(
            ReceiptLine(
                layer=_LAYERS[controller],
                asked=asked,
                got=self._got.get(controller, f"not limited: {missing}"),
                held=controller in self._got,
            )
            for controller, asked in self._wanted.items()
        )

    def processes(self) -> set[int]:
        found: set[int] = set()
        for place in self._places:
            with contextlib.suppress(OSError, ValueError):
                found |= {int(line) for line in read_setting(place.directory, "cgroup.procs").split()}
        return found

    def kill(self) -> None:
        """Kill everything in the group. A pids limit of 0 forbids new processes meanwhile."""
        if (directory := self.directory(PIDS)) is not None:
            with contextlib.suppress(OSError):
                write(directory, "pids.max", "0")
        for place in self._places:
            if place.version == 2:
                with contextlib.suppress(OSError):
                    write(place.directory, "cgroup.kill", "1")
        deadline = time.monotonic() + EMPTY_SECONDS
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                self._kill_one(pid)
            time.sleep(_EMPTY_POLL_SECONDS)

    def _kill_one(self, pid: int) -> None:
        """Kill by descriptor, and only if the pid is still in the group once the descriptor holds the process."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return
        try:
            if pid in self.processes():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except OSError:
            return
        finally:
            os.close(descriptor)

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the group for want of memory since it was lent."""
        return self._oom_kills() > self._oom_kills_before

    def _oom_kills(self) -> int:
        if (directory := self.directory(MEMORY)) is None:
            return 0
        name = "memory.events" if self._version(MEMORY) == 2 else "memory.oom_control"
        try:
            found = _OOM_KILLS.search(read_setting(directory, name))
        except OSError:
            return 0
        return 0 if found is None else int(found[1])

    def release(self) -> None:
        """Kill what is still inside and give the group back."""
        if not self.empty():
            self.kill()
        self._pool.give_back(self)

    def empty(self) -> bool:
        """Ask the controller that counts processes first: it needs no list of them, but is a moment late."""
        if (directory := self.directory(PIDS)) is not None:
            with contextlib.suppress(OSError):
                if read_setting(directory, "pids.current") == "0":
                    return True
        return not self.processes()

    def remove(self, *, until: float = 0.0) -> bool:
        """Remove the group, and return whether it is gone.

        A killed process stays in its group for a moment longer than it can be seen. ``until``, on the monotonic
        clock, bounds the wait for it.
        """
        gone = True
        for place in self._places:
            while not (removed := _removed(place.directory)) and time.monotonic() < until:
                time.sleep(_EMPTY_POLL_SECONDS)
            gone = gone and removed
        return gone


def _removed(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except OSError as problem:
        return problem.errno != errno.EBUSY
    return True


# Groups kept for the next calls. More only helps when more calls start at the same moment.
KEPT_GROUPS: Final = 8
_PREFIX: Final = "palyra-"


class CgroupPool:
    """Lends groups. Every method blocks for as long as the kernel takes, usually well below a millisecond."""

    def __init__(
        self,
        *,
        kept: int = KEPT_GROUPS,
        hierarchies: tuple[Hierarchy, ...] | None = None,
    ) -> None:
        self._kept = kept
        self._given = hierarchies
        self._bases: tuple[Hierarchy, ...] | None = None
        self._why_not = ""
        self._free: list[Group] = []
        # Given back and not kept, but the kernel still held the processes killed in them: removed later.
        self._busy: list[Group] = []
        self._lock = threading.Lock()
        self._made = 0
        self._closed = False

    def take(self, limits: SandboxLimits) -> Group:
        """Lend a group with these limits. Never fails: the group's receipt names what is not limited."""
        with self._lock:
            bases = self._prepared()
            group = self._free.pop() if self._free else self._make(bases)
        with contextlib.suppress(OSError):
            group.limit(limits)
        return group

    @property
    def has_version_2(self) -> bool:
        """Whether programs have to be created in their group: moving one there waits 8 ms for a kernel lock."""
        with self._lock:
            return any(base.version == 2 for base in self._prepared())

    def give_back(self, group: Group) -> None:
        with self._lock:
            kept = group.entry.directories and not self._closed and len(self._free) < self._kept
            if kept and group.empty():
                self._free.append(group)
                return
            going, self._busy = [*self._busy, group], []
        # The kernel takes a while for each: other calls do not wait for it.
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
        return Group(self, tuple(places), self._why_not)

    def _prepared(self) -> tuple[Hierarchy, ...]:
        """Create the parent groups of this pool, once, where it may."""
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
    """Switch on and return the controllers that children of a version 2 group get.

    The kernel refuses that in a group that has processes of its own, unless that is the root.
    """
    wanted = set(read_setting(directory, "cgroup.controllers").split()) & set(WANTED)
    _enable(directory, frozenset(wanted))
    return frozenset(wanted & set(read_setting(directory, "cgroup.subtree_control").split()))


def _enable(directory: str, controllers: frozenset[str]) -> None:
    for controller in controllers:
        with contextlib.suppress(OSError):
            write(directory, "cgroup.subtree_control", f"+{controller}")


def _remove_leftovers(directory: str) -> None:
    """Remove the empty groups of a Palyra that was killed. Groups of a running one stay."""
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
