"""Control groups: limits for a whole tree of processes, where this user may set them.

``CgroupPool`` finds out once what can be used (version 1, version 2, both, or nothing), keeps a few groups made, and
lends one to each call. An ordinary user has no group of their own unless the system delegated one; then ``take`` lends
a group that limits nothing and says so, and the rlimits remain. Creating a group costs half a millisecond, so they are
reused, but only after every process in them is gone.
"""

import contextlib
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from palyra.sandbox.cgroup_layout import CPU, MEMORY, PIDS, WANTED, Hierarchy, parse_hierarchies
from palyra.sandbox.receipt import Layer, ReceiptLine

# Groups kept for the next calls. More only helps when more calls start at the same moment.
KEPT_GROUPS: Final = 8
# The period over which the share of the processors is measured: short enough that no pause is felt.
CPU_PERIOD_MICROSECONDS: Final = 100_000
# How long an emptied group may take to be reported empty before it is left for the next clean-up.
EMPTY_SECONDS: Final = 2.0
_EMPTY_POLL_SECONDS: Final = 0.002
_PREFIX: Final = "palyra-"
_OOM: Final = "oom_kill"
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


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """What was used since the group was lent, as far as the kernel tells. ``None``: it does not."""

    memory_peak_bytes: int | None = None
    out_of_memory_kills: int | None = None
    pids_refused: int | None = None
    cpu_microseconds: int | None = None


class Group:
    """One call's group. ``procs`` are the files through which the program enters it before it runs."""

    def __init__(self, pool: "CgroupPool", places: tuple[Hierarchy, ...], why_not: str) -> None:
        self._pool = pool
        self._places = places
        self._why_not = why_not
        self._asked: dict[str, str] = {}
        self._got: dict[str, str] = {}
        self._counted: dict[str, int] = {}
        # What was set and read back: directory, file, value.
        self._settings: list[tuple[str, str, str]] = []
        # Files that are read at every call, and so stay open in the groups that the pool says.
        self._open: dict[tuple[str, str], int] = {}

    @property
    def procs(self) -> tuple[str, ...]:
        return tuple(f"{place.directory}/cgroup.procs" for place in self._places)

    @property
    def limits_memory(self) -> bool:
        return MEMORY in self._got

    @property
    def limits_pids(self) -> bool:
        return PIDS in self._got

    def directory(self, controller: str) -> str | None:
        return next((place.directory for place in self._places if controller in place.controllers), None)

    def _version(self, controller: str) -> int:
        return next(place.version for place in self._places if controller in place.controllers)

    def limit(self, limits: TreeLimits, cpu_cores: float | None, *, counted: bool = False) -> None:
        """Sets the limits and reads them back; what does not read back as set is not counted as got.

        A group that was lent with the same ones before, as most are, is only read."""
        asked = {MEMORY: f"{limits.memory_bytes} bytes", PIDS: f"{limits.pids} processes"}
        if cpu_cores is not None:
            asked[CPU] = f"{cpu_cores:g} cores"
        if asked != self._asked or not self._as_set():
            self._asked = asked
            self._set(limits, cpu_cores)
        self._counted = self._counters() if counted else {_OOM: self._oom_kills()}
        if counted and (directory := self.directory(MEMORY)) is not None and self._version(MEMORY) == 1:
            with contextlib.suppress(OSError):
                _write(directory, "memory.max_usage_in_bytes", "0")

    def _as_set(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._settings) and all(
                self._again(place, name) == value for place, name, value in self._settings
            )
        return False

    def _again(self, directory: str, name: str) -> str:
        """A short file, as it reads now."""
        if not self._pool.stays_open(self):
            return _read(directory, name)
        descriptor = self._open.get((directory, name))
        if descriptor is None:
            descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            self._open[directory, name] = descriptor
        return os.pread(descriptor, _SHORT_BYTES, 0).decode().strip()

    def _set(self, limits: TreeLimits, cpu_cores: float | None) -> None:
        self._got, self._settings = {}, []
        if (directory := self.directory(PIDS)) is not None:
            _write(directory, "pids.max", str(limits.pids))
            self._note(PIDS, directory, "pids.max", str(limits.pids))
        if (directory := self.directory(MEMORY)) is not None:
            self._limit_memory(directory, limits.memory_bytes)
        if cpu_cores is not None and (directory := self.directory(CPU)) is not None:
            self._limit_cpu(directory, cpu_cores)

    def _limit_memory(self, directory: str, wanted: int) -> None:
        if self._version(MEMORY) == 2:
            _write(directory, "memory.max", str(wanted))
            with contextlib.suppress(OSError):
                _write(directory, "memory.swap.max", "0")
            with contextlib.suppress(OSError):
                _write(directory, "memory.oom.group", "1")
            name = "memory.max"
        else:
            # Memory with swap may not be less than memory: first out of the way, then both down.
            with contextlib.suppress(OSError):
                _write(directory, "memory.memsw.limit_in_bytes", _UNLIMITED_V1)
            _write(directory, "memory.limit_in_bytes", str(wanted))
            with contextlib.suppress(OSError):
                _write(directory, "memory.memsw.limit_in_bytes", str(wanted))
            name = "memory.limit_in_bytes"
        # The kernel rounds down to whole pages.
        page = os.sysconf("SC_PAGE_SIZE")
        self._note(MEMORY, directory, name, str(wanted // page * page))

    def _limit_cpu(self, directory: str, cores: float) -> None:
        quota = str(int(cores * CPU_PERIOD_MICROSECONDS))
        if self._version(CPU) == 2:
            _write(directory, "cpu.max", f"{quota} {CPU_PERIOD_MICROSECONDS}")
            self._note(CPU, directory, "cpu.max", f"{quota} {CPU_PERIOD_MICROSECONDS}")
        else:
            _write(directory, "cpu.cfs_period_us", str(CPU_PERIOD_MICROSECONDS))
            _write(directory, "cpu.cfs_quota_us", quota)
            self._note(CPU, directory, "cpu.cfs_quota_us", quota)

    def _note(self, controller: str, directory: str, name: str, wanted: str) -> None:
        read = _read(directory, name)
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
                found |= {int(line) for line in _read(place.directory, "cgroup.procs").split()}
        return found

    def kill(self) -> None:
        """Ends everything in the group. No new process can be made meanwhile, so this comes to an end."""
        if (directory := self.directory(PIDS)) is not None:
            with contextlib.suppress(OSError):
                _write(directory, "pids.max", "0")
        for place in self._places:
            if place.version == 2:
                with contextlib.suppress(OSError):
                    _write(place.directory, "cgroup.kill", "1")
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

    def _counters(self) -> dict[str, int]:
        """Numbers that only grow, to be compared with what they were when the group was lent."""
        found: dict[str, int] = {}
        if self.directory(MEMORY) is not None:
            found[_OOM] = self._oom_kills()
        if (directory := self.directory(PIDS)) is not None:
            found["pids_max"] = _keyed(directory, "pids.events").get("max", 0)
        for place in self._places:
            if place.version == 2:
                found["cpu"] = _keyed(place.directory, "cpu.stat").get("usage_usec", 0)
        return found

    def stats(self) -> GroupStats:
        """For a group that was taken to be ``counted``."""
        now = self._counters()
        since = {name: value - self._counted.get(name, 0) for name, value in now.items()}
        peak: int | None = None
        if (directory := self.directory(MEMORY)) is not None:
            name = "memory.peak" if self._version(MEMORY) == 2 else "memory.max_usage_in_bytes"
            with contextlib.suppress(OSError, ValueError):
                peak = int(_read(directory, name))
        return GroupStats(
            memory_peak_bytes=peak,
            out_of_memory_kills=since.get(_OOM),
            pids_refused=since.get("pids_max"),
            cpu_microseconds=since.get("cpu"),
        )

    def out_of_memory(self) -> bool:
        """Whether the kernel ended something in it, since it was lent, for want of memory."""
        return self._oom_kills() > self._counted.get(_OOM, 0)

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

    def remove(self) -> None:
        self._pool.forget(self)
        while self._open:
            os.close(self._open.popitem()[1])
        for place in self._places:
            with contextlib.suppress(OSError):
                os.rmdir(place.directory)


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
        # Groups that a waiting process is in already, by their files, and whether it is under Tier B's filter.
        self._manned: dict[tuple[str, ...], tuple[Group, bool]] = {}
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

    def take(self, limits: TreeLimits, *, filtered: bool = False, counted: bool = False) -> Group:
        """A group with these limits. Never fails: what cannot be limited is missing from the group's receipt.

        Better one in which a process waits: entering a group takes longer than starting a program. One that waits
        under a filter serves only a launch that is ``filtered``. ``counted``: its ``stats`` will be asked for.
        """
        with self._lock:
            bases = self._prepared()
            waiting = [procs for procs, (_, has_filter) in self._manned.items() if filtered or not has_filter]
            if waiting:
                group, _ = self._manned.pop(max(waiting, key=lambda procs: self._manned[procs][1]))
            else:
                group = self._free.pop() if self._free else self._make(bases)
        with contextlib.suppress(OSError):
            group.limit(limits, self._cpu_cores, counted=counted)
        return group

    def man(self, *, filtered: bool) -> tuple[str, ...]:
        """The files of a group for a waiting process to enter ahead of need; none where there are no groups."""
        with self._lock:
            if self._closed:
                return ()
            bases = self._prepared()
            # The one that was given back first: whatever still ends in it has had the most time.
            group = self._free.pop(0) if self._free else self._make(bases)
            if group.procs:
                self._manned[group.procs] = (group, filtered)
            return group.procs

    def unman(self, procs: tuple[str, ...]) -> None:
        """The process that waited is gone, or goes elsewhere. One that is about to end may still be inside."""
        with self._lock:
            if procs in self._manned:
                group, _ = self._manned.pop(procs)
                self._free.append(group)

    def stays_open(self, group: Group) -> bool:
        return group in self._staying

    def forget(self, group: Group) -> None:
        self._staying.discard(group)

    def give_back(self, group: Group, *, empty: bool = False) -> None:
        with self._lock:
            kept = group.procs and not self._closed and len(self._free) < self._kept
            if kept and (empty or group.empty()):
                self._free.append(group)
                return
        group.remove()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for group in (*self._free, *(group for group, _ in self._manned.values())):
                group.remove()
            self._free.clear()
            self._manned.clear()
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
        any_found = False
        for own in found:
            any_found = True
            _remove_leftovers(own.directory)
            directory = f"{own.directory}/{name}"
            try:
                controllers = _delegated(own.directory) if own.version == 2 else own.controllers
                os.mkdir(directory, 0o755)
                if own.version == 2:
                    _enable(directory, controllers)
            except OSError as problem:
                self._why_not = f"{own.directory}: {problem.strerror}"
                continue
            yield msgspec.structs.replace(own, directory=directory, controllers=controllers)
        if not any_found and not self._why_not:
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
    wanted = set(_read(directory, "cgroup.controllers").split()) & set(WANTED)
    _enable(directory, frozenset(wanted))
    return frozenset(wanted & set(_read(directory, "cgroup.subtree_control").split()))


def _enable(directory: str, controllers: frozenset[str]) -> None:
    for controller in controllers:
        with contextlib.suppress(OSError):
            _write(directory, "cgroup.subtree_control", f"+{controller}")


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


def _write(directory: str, name: str, content: str) -> None:
    descriptor = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def _read(directory: str, name: str) -> str:
    descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
        return b"".join(parts).decode().strip()
    finally:
        os.close(descriptor)


def _keyed(directory: str, name: str) -> dict[str, int]:
    try:
        lines = [line.split() for line in _read(directory, name).splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
