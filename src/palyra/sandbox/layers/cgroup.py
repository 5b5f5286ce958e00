"""Reads and writes the small files of a control group."""

import contextlib
import errno
import os
import re
import signal
import time
from typing import Final, Protocol

import msgspec

from palyra.sandbox.domain.launch_spec import CgroupEntry
from palyra.sandbox.domain.receipt import Layer, ReceiptLine


def write(directory: str, name: str, content: str) -> None:
    descriptor = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def read_setting(directory: str, name: str) -> str:
    descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
        return b"".join(parts).decode().strip()
    finally:
        os.close(descriptor)


# Where a process stands in the control group hierarchies, read from /proc's text.
#
# Version 1 has one hierarchy for each controller, version 2 one for all; a machine may have both, with version 2
# holding no controller but still able to kill a group at once.

MEMORY: Final = "memory"
PIDS: Final = "pids"
CPU: Final = "cpu"
WANTED: Final = (MEMORY, PIDS, CPU)


class Hierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """``directory`` is this process's own group. ``controllers`` are those of ours that live here."""

    version: int
    directory: str
    controllers: frozenset[str]


def parse_hierarchies(membership: str, mountinfo: str) -> tuple[Hierarchy, ...]:
    """From the text of /proc/self/cgroup and /proc/self/mountinfo."""
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
    """mountinfo writes space, tab, newline and backslash in octal."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escape, character)
    return path


def _place(mounts: tuple[_Mount, ...], path: str, *, version: int, controller: str | None) -> str | None:
    for mount in mounts:
        if mount.version != version or (controller is not None and controller not in mount.options):
            continue
        root = mount.root.rstrip("/")
        if path == root or path.startswith(root + "/"):
            return mount.point.rstrip("/") + path[len(root) :].rstrip("/")
    return None


# One control group, lent to one call: its limits, what it counts, and the end of everything in it.

# The period over which the share of the processors is measured: short enough that no pause is felt.
CPU_PERIOD_MICROSECONDS: Final = 100_000
# How long an emptied group may take to be reported empty before it is left for the next clean-up.
EMPTY_SECONDS: Final = 2.0
_EMPTY_POLL_SECONDS: Final = 0.002
_OOM_KILLS: Final = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
# More than any file has that is read at every call.
_SHORT_BYTES: Final = 4096
_UNLIMITED_V1: Final = str(2**63 - 4096)

_LAYERS: Final = {MEMORY: Layer.CGROUP_MEMORY, PIDS: Layer.CGROUP_PIDS, CPU: Layer.CGROUP_CPU}


class TreeLimits(Protocol):
    @property
    def memory_bytes(self) -> int: ...
    @property
    def pids(self) -> int: ...


class Lender(Protocol):
    """Whose the group is: ``CgroupPool``."""

    def stays_open(self, group: "Group") -> bool: ...
    def give_back(self, group: "Group", *, empty: bool = False) -> None: ...
    def forget(self, group: "Group") -> None: ...


class Group:
    """One call's group. ``entry`` says how a program gets into it."""

    def __init__(self, pool: Lender, places: tuple[Hierarchy, ...], why_not: str) -> None:
        self._pool = pool
        self._places = places
        self._why_not = why_not
        self._asked: dict[str, str] = {}
        self._got: dict[str, str] = {}
        self._oom_kills_before = 0
        # What was set and read back: directory, file, value.
        self._settings: list[tuple[str, str, str]] = []
        # Files that are read at every call, and so stay open in the groups that the pool says.
        self._open: dict[tuple[str, str], int] = {}

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

    def limit(self, limits: TreeLimits, cpu_cores: float | None) -> None:
        """Sets the limits and reads them back; what does not read back as set is not counted as got.

        A group that was lent with the same ones before, as most are, is only read."""
        asked = {MEMORY: f"{limits.memory_bytes} bytes", PIDS: f"{limits.pids} processes"}
        if cpu_cores is not None:
            asked[CPU] = f"{cpu_cores:g} cores"
        if asked != self._asked or not self._as_set():
            self._asked = asked
            self._set(limits, cpu_cores)
        self._oom_kills_before = self._oom_kills()

    def _as_set(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._settings) and all(
                self._again(place, name) == value for place, name, value in self._settings
            )
        return False

    def _again(self, directory: str, name: str) -> str:
        """A short file, as it reads now."""
        if not self._pool.stays_open(self):
            return read_setting(directory, name)
        descriptor = self._open.get((directory, name))
        if descriptor is None:
            descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            self._open[directory, name] = descriptor
        return os.pread(descriptor, _SHORT_BYTES, 0).decode().strip()

    def _set(self, limits: TreeLimits, cpu_cores: float | None) -> None:
        self._got, self._settings = {}, []
        if (directory := self.directory(PIDS)) is not None:
            write(directory, "pids.max", str(limits.pids))
            self._note(PIDS, directory, "pids.max", str(limits.pids))
        if (directory := self.directory(MEMORY)) is not None:
            self._limit_memory(directory, limits.memory_bytes)
        if cpu_cores is not None and (directory := self.directory(CPU)) is not None:
            self._limit_cpu(directory, cpu_cores)

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

    def _limit_cpu(self, directory: str, cores: float) -> None:
        quota = str(int(cores * CPU_PERIOD_MICROSECONDS))
        if self._version(CPU) == 2:
            write(directory, "cpu.max", f"{quota} {CPU_PERIOD_MICROSECONDS}")
            self._note(CPU, directory, "cpu.max", f"{quota} {CPU_PERIOD_MICROSECONDS}")
        else:
            write(directory, "cpu.cfs_period_us", str(CPU_PERIOD_MICROSECONDS))
            write(directory, "cpu.cfs_quota_us", quota)
            self._note(CPU, directory, "cpu.cfs_quota_us", quota)

    def _note(self, controller: str, directory: str, name: str, wanted: str) -> None:
        read = read_setting(directory, name)
        if read == wanted:
            self._settings.append((directory, name, wanted))
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
            for controller, asked in self._asked.items()
        )

    def processes(self) -> set[int]:
        found: set[int] = set()
        for place in self._places:
            with contextlib.suppress(OSError, ValueError):
                found |= {int(line) for line in read_setting(place.directory, "cgroup.procs").split()}
        return found

    def kill(self) -> None:
        """Ends everything in the group. No new process can be made meanwhile, so this comes to an end."""
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
        """By descriptor, and only if the number still means a process of the group after the descriptor holds it."""
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
        """Whether the kernel ended something in it, since it was lent, for want of memory."""
        return self._oom_kills() > self._oom_kills_before

    def _oom_kills(self) -> int:
        if (directory := self.directory(MEMORY)) is None:
            return 0
        name = "memory.events" if self._version(MEMORY) == 2 else "memory.oom_control"
        try:
            found = _OOM_KILLS.search(self._again(directory, name))
        except OSError:
            return 0
        return 0 if found is None else int(found[1])

    def release(self, *, empty: bool = False) -> None:
        """Ends what is still inside, and gives the group back. ``empty``: the caller has just seen that nothing is."""
        if not empty and not self.empty():
            self.kill()
        self._pool.give_back(self, empty=empty)

    def empty(self) -> bool:
        """The controller that counts processes knows without a list of them, if a moment later than the list."""
        if (directory := self.directory(PIDS)) is not None:
            with contextlib.suppress(OSError):
                if self._again(directory, "pids.current") == "0":
                    return True
        return not self.processes()

    def remove(self, *, until: float = 0.0) -> bool:
        """Whether it is gone. A process that was killed is in its group for a moment longer than it can be seen;
        ``until`` is how long, on the monotonic clock, the caller has time for that."""
        self._pool.forget(self)
        while self._open:
            os.close(self._open.popitem()[1])
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
