"""What the stack holds: memory over time, and at rest every process, descriptor, listener, folder and group."""

import os
import threading
from collections import Counter
from pathlib import Path

import msgspec

from fakes.processes import descendants
from soak.stack import Stack

_SAMPLE_SECONDS = 2.0


class Sample(msgspec.Struct, frozen=True):
    at: float
    life: int
    daemon_bytes: int
    browserd_bytes: int
    worker_bytes: int
    descriptors: int
    processes: int
    # Of each worker, by the number of its process.
    workers: dict[int, int]


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Of a stack at rest."""

    descriptors: Counter[str]
    threads: int
    processes: Counter[str]
    listeners: int
    temporary: list[str]
    groups: int
    mounts: list[str]


class Watch:
    def __init__(self, stack: Stack) -> None:
        self.samples: list[Sample] = []
        self._stack = stack
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            self.samples.append(self._sample())
            self._stack.pace.sleep(_SAMPLE_SECONDS, self._stop)

    def _sample(self) -> Sample:
        home = self._stack.home
        below = descendants(home.pid) if home.pid else set()
        browserd = next((pid for pid in below if "palyra.cli.browserd" in words_of(pid)), 0)
        pids = [one.worker.process.pid for one in self._stack.machines if one.worker is not None]
        workers = {pid: held for pid in pids if (held := resident(pid))}
        return Sample(
            at=self._stack.pace.awake,
            life=home.life,
            daemon_bytes=resident(home.pid),
            browserd_bytes=resident(browserd),
            worker_bytes=max(workers.values(), default=0),
            descriptors=sum(descriptors_of(home.pid).values()),
            processes=len(below),
            workers=workers,
        )

    def holding(self) -> Holding:
        stack, home = self._stack, self._stack.home
        return Holding(
            descriptors=descriptors_of(home.pid),
            threads=len(_listed(f"/proc/{home.pid}/task")),
            processes=Counter(_name(pid) for pid in descendants(stack.enclosure.first) if pid != os.getpid()),
            listeners=self.listeners(),
            temporary=sorted(str(path.name) for path in stack.enclosure.temporary.iterdir()),
            groups=len(stack.enclosure.left_groups()),
            mounts=sorted(stack.enclosure.mounted() - stack.enclosure.mounts),
        )

    def listeners(self) -> int:
        """Sockets that listen, in all of the stack's networks."""
        count = 0
        for network in (self._stack.networks.near, *self._stack.networks.far):
            for table in ("tcp", "tcp6"):
                lines = Path(f"/proc/{network.process.pid}/net/{table}").read_text().splitlines()[1:]
                count += sum(line.split()[3] == "0A" for line in lines)
        return count


def resident(pid: int) -> int:
    """Zero of one that is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def descriptors_of(pid: int) -> Counter[str]:
    """By what they are; files of control groups are kept for the next calls and counted by themselves."""
    found: Counter[str] = Counter()
    for name in _listed(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        kind = "cgroup" if "/cgroup/" in target else target.partition(":")[0] if ":" in target else "file"
        found[kind] += 1
    return found


def words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _name(pid: int) -> str:
    """What a process is, without what differs from one to the next."""
    words = words_of(pid).split()
    module = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"), "")
    if module:
        return module
    script = next((Path(word).name for word in words[1:] if word.endswith(".py")), "")
    return script or (Path(words[0]).name if words else "?")


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
